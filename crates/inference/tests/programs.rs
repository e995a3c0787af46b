//! Programs written out by hand: what they compute, and that nothing in a file ends the process.

use openmps::operators::operators::elementwise::Elementwise;
use openmps::{DataType, Device, TensorData};
use openmps_inference::program::Dialect;
use openmps_inference::{Error, Format, Model, read_program, supported};
use proptest::prelude::*;

/// A program of the new representation with these operations; `x` is value 1, of float32 [-1, 4].
fn program(operations: &str, parameters: &str) -> String {
    let input = format!(
        r##"{{"#": "1.data", "A": [{}], "I": [], "O": [{}]}}"##,
        attribute("name", r##"{"#": "0.a_str", "D": "x"}"##),
        output(1, "f32", "-1, 4"),
    );
    let body = [parameters, &input, operations].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>();
    format!(
        r##"{{"base_code": {{"magic": "pir", "version": 1}}, "program": {{"regions": [{{"blocks": [{{"args": [], "ops": [{}]}}]}}]}}}}"##,
        body.join(", ")
    )
}

fn attribute(name: &str, content: &str) -> String {
    format!(r##"{{"N": "{name}", "AT": {content}}}"##)
}

fn output(number: i64, dtype: &str, dims: &str) -> String {
    format!(
        r##"{{"%": {number}, "TT": {{"#": "0.t_dtensor", "D": [{{"#": "0.t_{dtype}"}}, [{dims}], "NCHW", [], 0]}}}}"##
    )
}

fn operation(name: &str, inputs: &[i64], out: i64, attributes: &[String]) -> String {
    let inputs: Vec<String> = inputs.iter().map(|number| format!(r##"{{"%": {number}}}"##)).collect();
    let (inputs, attributes) = (inputs.join(", "), attributes.join(", "));
    format!(r##"{{"#": "{name}", "A": [{attributes}], "I": [{inputs}], "O": [{}]}}"##, output(out, "f32", "-1, 4"))
}

fn fetch(value: i64) -> String {
    operation("1.fetch", &[value], 99, &[attribute("name", r##"{"#": "0.a_str", "D": "y"}"##)])
}

/// The stored form of one float32 tensor.
fn stored(dims: &[i64], values: &[f32]) -> Vec<u8> {
    let mut description = vec![0x08, 5];
    dims.iter().for_each(|&size| description.extend([0x10, size as u8]));
    let mut bytes = vec![0; 16];
    bytes.extend((description.len() as i32).to_le_bytes());
    bytes.extend(description);
    values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    bytes
}

fn run(program: &str, parameters: &[u8], x: &[f32]) -> Result<Vec<f32>, Error> {
    let device = Device::get(0).expect("a device");
    let model = Model::load(&device, program.as_bytes(), parameters)?;
    let x = TensorData::from_slice(&device, &[x.len() / 4, 4], x)?;
    Ok(model.run(&[x])?[0].read::<f32>()?)
}

/// `relu(x + w)` with w a parameter.
fn sum_and_relu() -> (String, Vec<u8>) {
    let parameter = format!(r##"{{"#": "p", "A": [0, 1, 1, "w"], "O": {}, "OA": [1, 0, 1]}}"##, output(2, "f32", "4"));
    let operations = [operation("1.add", &[1, 2], 3, &[]), operation("1.relu_", &[3], 4, &[]), fetch(4)].join(", ");
    (program(&operations, &parameter), stored(&[4], &[1.0, -1.0, 0.5, -9.0]))
}

#[test]
fn a_program_computes() {
    let (text, parameters) = sum_and_relu();
    let y = run(&text, &parameters, &[1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 1.0, 9.5]).unwrap();
    assert_eq!(y, [2.0, 1.0, 3.5, 0.0, 0.0, 0.0, 1.5, 0.5]);
}

/// The formulas of openmps's tables, on one tensor as every operand.
#[test]
fn every_formula_of_the_tables_is_an_operation() {
    const OTHERWISE_CALLED: [&str; 8] = [
        "bitwise_left_shift",
        "bitwise_right_shift",
        "gelu_tanh",
        "hard_shrink",
        "logit",
        "negate",
        "quantize_away",
        "quantize_even",
    ];
    let is_forward =
        |of: &Elementwise| matches!(of, Elementwise::Unary(_) | Elementwise::Activation(_) | Elementwise::Binary(_));
    for row in Elementwise::all().filter(is_forward).map(Elementwise::row) {
        let is_known = supported(Dialect::Paddle).contains(&row.name);
        assert_ne!(is_known, OTHERWISE_CALLED.contains(&row.name), "{}", row.name);
        let is_of_floats =
            row.dtypes.contains(&DataType::F32) && row.output_dtype(&[DataType::F32; 3]) == Some(DataType::F32);
        if !is_known || !is_of_floats || !row.scalars.is_empty() || row.name == "where" {
            continue;
        }
        let (x, operands) = ([0.25, 0.75, 1.5, -2.5], row.operands.len());
        let operations = [operation(&format!("1.{}", row.name), &vec![1; operands], 2, &[]), fetch(2)].join(", ");
        for (got, x) in run(&program(&operations, ""), &[], &x).unwrap().into_iter().zip(x) {
            let expected = (row.reference)(&vec![f64::from(x); operands], &[]) as f32;
            let error = (got - expected).abs();
            assert!(
                got == expected || got.is_nan() && expected.is_nan() || error <= 1e-5 * expected.abs(),
                "{}({x}): {got}",
                row.name
            );
        }
    }
}

#[test]
fn a_rounding_has_decimal_places() {
    let decimals = attribute("decimals", r##"{"#": "0.a_i32", "D": 1}"##);
    let operations = [operation("1.round", &[1], 2, &[decimals]), fetch(2)].join(", ");
    let y = run(&program(&operations, ""), &[], &[0.26, -1.04, 2.5, 7.77]).unwrap();
    assert_eq!(y, [0.3, -1.0, 2.5, 7.8]);
}

/// A model reads its file of parameters when a run needs them: from the file that it opened, or not at all.
#[test]
fn parameters_are_those_of_the_file_that_was_opened() {
    let (text, parameters) = sum_and_relu();
    let (device, folder) = (Device::get(0).unwrap(), tempfile::tempdir().unwrap());
    let [program, weights, others] = ["a.json", "a.pdiparams", "b.pdiparams"].map(|name| folder.path().join(name));
    std::fs::write(&program, &text).unwrap();
    std::fs::write(&weights, &parameters).unwrap();
    let x = |rows: usize| TensorData::from_slice(&device, &[rows, 4], &vec![1.0f32; 4 * rows]).unwrap();
    let model = Model::open(&device, &program, &weights).unwrap();

    std::fs::write(&others, stored(&[4], &[7.0; 4])).unwrap();
    std::fs::rename(&others, &weights).unwrap();
    assert_eq!(model.run(&[x(1)]).unwrap()[0].read::<f32>().unwrap(), [2.0, 0.0, 1.5, 0.0], "the old file");
    let model = Model::open(&device, &program, &weights).unwrap();
    assert_eq!(model.run(&[x(1)]).unwrap()[0].read::<f32>().unwrap(), [8.0; 4], "the new one");

    std::fs::write(&weights, &stored(&[4], &[7.0; 4])[..20]).unwrap();
    let fresh = Model::open(&device, &program, &weights).unwrap_err();
    assert!(matches!(fresh, Error::Parameters { .. }), "{fresh}");
    assert_eq!(model.run(&[x(1)]).unwrap()[0].read::<f32>().unwrap(), [8.0; 4], "compiled before");
    drop(model);

    std::fs::write(&weights, &parameters).unwrap();
    let model = Model::open(&device, &program, &weights).unwrap();
    std::fs::write(&weights, &parameters[..parameters.len() - 4]).unwrap();
    let error = model.run(&[x(3)]).unwrap_err().to_string();
    assert!(error.contains("changed after it had been opened"), "{error}");
}

#[test]
fn ports_are_described() {
    let (text, parameters) = sum_and_relu();
    let model = Model::load(&Device::get(0).unwrap(), text.as_bytes(), &parameters).unwrap();
    assert_eq!(model.inputs(), [("x", &[-1, 4][..], Some(DataType::F32))]);
    assert_eq!(model.outputs()[0].0, "y");
}

#[test]
fn a_condition_that_a_run_computes_chooses_the_block() {
    let block = |operations: &str, value: i64| {
        let hand_back = format!(r##"{{"#": "2.yield", "A": [], "I": [{{"%": {value}}}], "O": []}}"##);
        format!(r##"{{"blocks": [{{"args": [], "ops": [{operations}, {hand_back}]}}]}}"##)
    };
    let zero = attribute("value", r##"{"#": "0.a_f64", "D": 0.0}"##);
    let shape = attribute("shape", r##"{"#": "1.a_intarray", "D": []}"##);
    let dtype = attribute("dtype", r##"{"#": "1.a_dtype", "D": "float32"}"##);
    let all = attribute("reduce_all", r##"{"#": "0.a_bool", "D": true}"##);
    let operations = [
        operation("1.sum", &[1], 2, &[all]),
        operation("1.full", &[], 3, &[zero, shape, dtype]),
        operation("1.greater_than", &[2, 3], 4, &[]),
        format!(
            r##"{{"#": "1.if", "A": [], "I": [{{"%": 4}}], "O": [{}], "regions": [{}, {}]}}"##,
            output(7, "f32", "-1, 4"),
            block(&operation("1.square", &[1], 5, &[]), 5),
            block(&operation("1.abs", &[1], 6, &[]), 6),
        ),
        fetch(7),
    ];
    let text = program(&operations.join(", "), "");
    assert_eq!(run(&text, &[], &[1.0, 2.0, 3.0, -1.0]).unwrap(), [1.0, 4.0, 9.0, 1.0]);
    assert_eq!(run(&text, &[], &[-1.0, 2.0, -3.0, -4.0]).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn what_cannot_run_is_named_at_once() {
    let operations = [operation("1.nothing", &[1], 2, &[]), operation("1.neither", &[2], 3, &[]), fetch(3)].join(", ");
    match run(&program(&operations, ""), &[], &[0.0; 4]) {
        Err(Error::Unsupported(names)) => assert_eq!(names, ["neither", "nothing"]),
        other => panic!("{other:?}"),
    }
    assert!(supported(Dialect::Paddle).contains(&"conv2d") && supported(Dialect::Paddle).is_sorted());
}

#[test]
fn wrong_inputs_are_named() {
    let (text, parameters) = sum_and_relu();
    let device = Device::get(0).unwrap();
    let model = Model::load(&device, text.as_bytes(), &parameters).unwrap();
    let wrong = [
        TensorData::from_slice(&device, &[1, 5], &[0.0f32; 5]).unwrap(),
        TensorData::from_slice(&device, &[4], &[0.0f32; 4]).unwrap(),
        TensorData::from_slice(&device, &[1, 4], &[0.0f64; 4]).unwrap(),
    ];
    for x in wrong {
        assert!(matches!(model.run(&[x]), Err(Error::Input { name, .. }) if name == "x"));
    }
    assert!(model.run(&[]).is_err());
}

#[test]
fn attributes_of_another_kind_are_errors() {
    let wrong = attribute("axis", r##"{"#": "0.a_str", "D": "last"}"##);
    let operations = [operation("1.softmax", &[1], 2, &[wrong]), fetch(2)].join(", ");
    let error = run(&program(&operations, ""), &[], &[0.0; 4]).unwrap_err().to_string();
    assert!(error.contains("softmax") && error.contains("axis"), "{error}");
    let far = attribute("axis", r##"{"#": "0.a_i32", "D": 9}"##);
    let operations = [operation("1.softmax", &[1], 2, &[far]), fetch(2)].join(", ");
    assert!(run(&program(&operations, ""), &[], &[0.0; 4]).is_err());
}

#[test]
fn blocks_inside_blocks_end() {
    let mut inner = fetch(1);
    for _ in 0..40 {
        inner = format!(
            r##"{{"#": "1.if", "A": [], "I": [{{"%": 1}}], "O": [], "regions": [{{"blocks": [{{"args": [], "ops": [{inner}]}}]}}]}}"##
        );
    }
    assert!(read_program(program(&inner, "").as_bytes()).is_err());
}

/// Every operation on inputs and attributes that it does not expect: an error or a result, never a panic.
#[test]
fn no_operation_panics_on_what_it_does_not_expect() {
    let numbers = |values: &[i64]| {
        let values: Vec<String> = values.iter().map(|value| format!(r##"{{"#": "0.a_i64", "D": {value}}}"##)).collect();
        format!(r##"{{"#": "0.a_array", "D": [{}]}}"##, values.join(", "))
    };
    let names = [
        "axis",
        "shape",
        "perm",
        "strides",
        "paddings",
        "groups",
        "sections",
        "num",
        "starts",
        "ends",
        "axes",
        "kernel_size",
    ];
    let contents = [
        r##"{"#": "0.a_i64", "D": -7}"##.to_owned(),
        r##"{"#": "0.a_i64", "D": 9223372036854775807}"##.to_owned(),
        numbers(&[]),
        numbers(&[0, -1]),
        numbers(&[1 << 62, 1 << 62]),
        // More dimensions than a tensor has.
        numbers(&[1; 11]),
        numbers(&[-3, 5, 0, 1, 2, 7, 9]),
    ];
    let test_mode = attribute("is_test", r##"{"#": "0.a_bool", "D": true}"##);
    for name in supported(Dialect::Paddle) {
        for content in &contents {
            for inputs in [&[1][..], &[1, 1], &[1, 1, 1, 1, 1], &[]] {
                let mut attributes: Vec<String> = names.iter().map(|name| attribute(name, content)).collect();
                attributes.push(test_mode.clone());
                let operations = [operation(&format!("1.{name}"), inputs, 2, &attributes), fetch(2)].join(", ");
                let _ = run(&program(&operations, ""), &[], &[0.5; 8]);
            }
        }
    }
}

#[test]
fn a_model_of_onnx_is_told_from_a_program() {
    // `ir_version` 8, an empty graph, version 13 of the operators.
    let model = [0x08, 0x08, 0x3a, 0x00, 0x42, 0x02, 0x10, 0x0d];
    assert_eq!(Format::of(&model), Format::Onnx);
    assert_eq!(read_program(&model).expect("an empty model").dialect, Dialect::Onnx { opset: 13 });
    let device = Device::get(0).expect("there is a device");
    assert!(Model::load_onnx(&device, &model).expect("an empty model").run(&[]).expect("a run").is_empty());
    let error = Model::load(&device, &model, &[]).expect_err("without a file of parameters").to_string();
    assert!(error.contains("ONNX"), "{error}");
    let error = read_program(&[]).expect_err("nothing").to_string();
    assert!(!error.contains("ONNX"), "{error}");
    assert!(supported(Dialect::Onnx { opset: 13 }).contains(&"Conv"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_errors_or_programs(seed: u64, count in 1_usize..8) {
        let (text, parameters) = sum_and_relu();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut damage = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            for _ in 0..count {
                let at = random.usize(..bytes.len().max(1));
                match random.u8(..3) {
                    _ if bytes.is_empty() => {}
                    0 => bytes[at] = random.u8(..),
                    1 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            bytes
        };
        let (program, weights) = (damage(text.as_bytes()), damage(&parameters));
        let device = Device::get(0).expect("a device");
        for (program, weights) in [(&program[..], &parameters[..]), (text.as_bytes(), &weights)] {
            if let Ok(model) = Model::load(&device, program, weights) {
                let x = TensorData::from_slice(&device, &[1, 4], &[1.0f32; 4]).expect("a tensor");
                let _ = model.run(&[x]);
            }
        }
    }

    #[test]
    fn bytes_are_no_program(bytes: Vec<u8>) {
        let _ = read_program(&bytes);
    }
}
