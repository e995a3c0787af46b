//! Operators that move elements, against their references: every case, element type and a strided layout of each input.

use openmps_graph::entry::{Input, Values};
use openmps_graph::operators::advanced_index::{Axis, Selection};
use openmps_graph::operators::{MOVEMENT, nonzero, random};
use openmps_graph::view::{dense_strides, shape_of};
use openmps_graph::{Array, DType, Meta, Operator, Queue, View};
use openmps_host::by_type;
use openmps_host::native::memory::Element;
use openmps_runtime::Device;

/// A tensor in memory of its own.
struct Tensor {
    view: View,
    _memory: Vec<u64>,
}

/// The queue for calls of operators.
fn vouched(queue: &openmps_runtime::Queue) -> &Queue {
    // SAFETY: views in these tests are of tensors of their own, which live until the device was waited for.
    unsafe { Queue::vouched(queue) }
}

/// Rounds to an element type.
fn round(value: f64, dtype: DType) -> f64 {
    if dtype == DType::Bool {
        return f64::from(value != 0.0);
    }
    by_type!(dtype, T => T::from_f64(value).to_f64())
}

fn make(dims: &[usize], dtype: DType, doubled: bool) -> Tensor {
    let mut strides = dense_strides(&shape_of(dims).unwrap());
    if doubled {
        // Every second element of a tensor that is transposed too.
        let reversed: Vec<usize> = dims.iter().rev().copied().collect();
        strides = dense_strides(&shape_of(&reversed).unwrap()).into_iter().rev().map(|stride| 2 * stride).collect();
    }
    let elements = dims.iter().product::<usize>() * 2 + 1;
    let mut memory = vec![0x5555_5555_5555_5555_u64; elements];
    let address = memory.as_mut_ptr() as usize;
    Tensor { view: View::strided(address, dtype, dims, &strides).unwrap(), _memory: memory }
}

impl Tensor {
    fn each(&self, mut visit: impl FnMut(usize)) {
        openmps_graph::reference::for_each_index(&self.view.shape, |index| {
            let offset: isize = index.iter().zip(&self.view.strides).map(|(&i, &stride)| i as isize * stride).sum();
            visit(self.view.address.wrapping_add_signed(offset * self.view.dtype.size() as isize));
        });
    }

    fn write(&self, values: &[f64]) {
        let mut values = values.iter();
        self.each(|address| {
            let value = *values.next().unwrap();
            // SAFETY: an element of this tensor.
            by_type!(self.view.dtype, T => unsafe { *(address as *mut T) = T::from_f64(value) });
        });
    }

    fn read(&self) -> Vec<f64> {
        let mut values = Vec::new();
        // SAFETY: an element of this tensor.
        self.each(|address| values.push(by_type!(self.view.dtype, T => unsafe { (*(address as *const T)).to_f64() })));
        values
    }
}

fn array(input: &Input, under_test: DType) -> Array {
    let dtype = input.dtype.unwrap_or(under_test);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5, 100.0];
    let value = |i: usize| match &input.values {
        Values::Uniform(low, high) => {
            let unit = (i as u64 * 2654435761 % 1000003) as f64 / 1000003.0;
            let value = low + unit * (high - low);
            match dtype {
                DType::U8 => (unit * 7.0).floor(),
                _ if dtype.is_float() => value,
                _ => value.floor(),
            }
        }
        Values::Special if dtype.is_float() => special[i % special.len()],
        Values::Special | Values::Counting => (i % 100) as f64,
        Values::Given(values) => values.get(i % values.len().max(1)).copied().unwrap_or(0.0),
    };
    let data = (0..input.dims.iter().product()).map(|i| round(value(i), dtype)).collect();
    Array::new(&input.dims, data, dtype)
}

fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2.0_f64.powi(-11),
        DType::BF16 => 2.0_f64.powi(-8),
        DType::F32 => 2.0_f64.powi(-24),
        DType::F64 => 2.0_f64.powi(-53),
        _ => 0.0,
    }
}

fn compare(got: &Tensor, expected: &Array, tolerance: f64, what: &str) {
    let dtype = got.view.dtype;
    assert_eq!(dtype, expected.dtype, "{what}");
    for (i, (got, &expected)) in got.read().into_iter().zip(&expected.data).enumerate() {
        let same = got == round(expected, dtype) || got.is_nan() && expected.is_nan();
        // One rounding of the result is allowed besides the tolerance.
        let bound = tolerance * 2.0 * epsilon(dtype) * expected.abs().max(f64::MIN_POSITIVE);
        assert!(same || (got - expected).abs() <= bound, "{what}: element {i} is {got}, expected {expected}");
    }
}

fn run(operator: &dyn Operator, inputs: &[Array], tolerance: f64, strided: bool, what: &str) {
    let queue = &Device::get(0).unwrap().queue();
    let queue = vouched(queue);
    let metas: Vec<Meta> = inputs.iter().map(|x| Meta { dtype: x.dtype, shape: x.shape.clone() }).collect();
    let outputs: Vec<Tensor> =
        operator.infer(&metas).unwrap().iter().map(|meta| make(&meta.shape, meta.dtype, false)).collect();
    let tensors: Vec<Tensor> = inputs.iter().map(|x| make(&x.shape, x.dtype, strided)).collect();
    tensors.iter().zip(inputs).for_each(|(tensor, x)| tensor.write(&x.data));
    let views = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.view.clone()).collect::<Vec<View>>();
    operator.run(queue, &views(&tensors), &views(&outputs)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = operator.reference(inputs);
    assert_eq!(expected.len(), outputs.len(), "{what}");
    for (output, expected) in outputs.iter().zip(&expected) {
        assert_eq!(output.view.shape, expected.shape, "{what}");
        compare(output, expected, tolerance, what);
    }
}

#[test]
fn every_case_of_the_family() {
    for entry in MOVEMENT {
        for &dtype in entry.dtypes {
            for case in (entry.cases)() {
                let inputs: Vec<Array> = case.inputs.iter().map(|input| array(input, dtype)).collect();
                assert_eq!(case.operator.name(), entry.name);
                for strided in [false, true] {
                    let what = format!("{:?} of {dtype}, strided {strided}, {:?}", case.operator, case.inputs);
                    run(&*case.operator, &inputs, entry.tolerance, strided, &what);
                }
            }
        }
    }
}

#[test]
fn wrong_calls_name_the_values() {
    use openmps_graph::operators::{concat, gather, pad, sort, transpose};
    let meta = |dims: &[usize]| Meta { dtype: DType::F32, shape: shape_of(dims).unwrap() };
    let message = |operator: &dyn Operator, metas: &[Meta]| operator.infer(metas).unwrap_err().to_string();
    let error = message(&transpose::Transpose { axes: vec![0, 0] }, &[meta(&[2, 3])]);
    assert_eq!(error, "transpose: attribute axes is [0, 0], expected each of 2 axes once");
    let error = message(&concat::Concat { axis: 1 }, &[meta(&[2, 3]), meta(&[3, 3])]);
    assert_eq!(error, "concat: input has shape [3, 3], expected [2, 3] except at axis 1");
    let error = message(&sort::TopK { k: 9, axis: -1, largest: true }, &[meta(&[2, 3])]);
    assert_eq!(error, "top_k: attribute k is 9, expected at most 3, the size of axis 1");
    let reflect =
        pad::Pad { paddings: vec![(3, 0)], mode: pad::Mode::Reflect, value: openmps_tile::Number::Integer(0) };
    assert!(message(&reflect, &[meta(&[3])]).contains("(3, 0), expected 0 to 2"));
    let (table, index, out) =
        (make(&[4, 2], DType::F32, false), make(&[3], DType::I64, false), make(&[3, 2], DType::F32, false));
    index.write(&[0.0, 7.0, 1.0]);
    let queue = &Device::get(0).unwrap().queue();
    let queue = vouched(queue);
    let error = gather::Gather { axis: 0 }.run(queue, &[table.view, index.view], &[out.view]).unwrap_err().to_string();
    assert!(error.contains("index 7 at position 1 is outside -4..4"), "{error}");
    let _ = queue.synchronize();
}

#[test]
fn random_tensors_repeat_and_dropout_keeps_its_share() {
    let queue = &Device::get(0).unwrap().queue();
    let queue = vouched(queue);
    let source = random::Source { seed: 3, offset: 1 };
    let make_normal = |offset| {
        let dims = shape_of(&[100, 1000]).unwrap();
        let law = random::Law::Normal { mean: 1.0, deviation: 2.0 };
        let source = random::Source { offset, ..source };
        let out = make(&dims, DType::F32, false);
        random::Random { law, source, dims, dtype: DType::F32 }
            .run(queue, &[], std::slice::from_ref(&out.view))
            .unwrap();
        out.read()
    };
    let first = make_normal(1);
    assert_eq!(first, make_normal(1));
    assert_ne!(first, make_normal(2));
    let mean = first.iter().sum::<f64>() / first.len() as f64;
    assert!((mean - 1.0).abs() < 0.03, "{mean}");

    let x = make(&[100, 1000], DType::F32, true);
    x.write(&vec![1.0; 100_000]);
    let (out, mask) = (make(&[100, 1000], DType::F32, false), make(&[100, 1000], DType::U8, false));
    let dropout = random::Dropout { probability: 0.25, upscale: true, source };
    dropout.run(queue, std::slice::from_ref(&x.view), &[out.view.clone(), mask.view.clone()]).unwrap();
    let (out, mask) = (out.read(), mask.read());
    assert!(out.iter().zip(&mask).all(|(&out, &mask)| out == mask * (1.0_f32 / 0.75) as f64));
    assert!((mask.iter().sum::<f64>() / 1e5 - 0.75).abs() < 0.01);
    let bad = random::Random {
        law: random::Law::Integers { low: 5, high: 5 },
        source,
        dims: shape_of(&[2]).unwrap(),
        dtype: DType::I64,
    };
    assert!(bad.infer(&[]).unwrap_err().to_string().contains("high is 5, expected more than low, which is 5"));
}

#[test]
fn results_whose_size_depends_on_values() {
    let queue = &Device::get(0).unwrap().queue();
    let queue = vouched(queue);
    let x = make(&[2, 3], DType::F32, true);
    x.write(&[0.0, 1.0, 0.0, -2.0, 0.0, f64::NAN]);
    assert_eq!(nonzero::count_nonzero(queue, &x.view).unwrap(), 3);
    let places = make(&[3, 2], DType::I64, false);
    nonzero::nonzero(queue, &x.view, &places.view).unwrap();
    assert_eq!(places.read(), [0.0, 1.0, 1.0, 0.0, 1.0, 2.0]);
    let mask = make(&[3], DType::Bool, false);
    mask.write(&[1.0, 0.0, 1.0]);
    assert_eq!(nonzero::count_masked(queue, &x.view, &mask.view).unwrap(), 4);
    let chosen = make(&[4], DType::F32, false);
    nonzero::masked_select(queue, &x.view, &mask.view, &chosen.view).unwrap();
    assert_eq!(chosen.read()[..3], [0.0, 0.0, -2.0]);
    let (back, values) = (make(&[3], DType::F32, false), make(&[2], DType::F32, true));
    values.write(&[5.0, 6.0]);
    nonzero::masked_scatter(queue, &values.view, &mask.view, &back.view).unwrap();
    assert_eq!(back.read(), [5.0, 0.0, 6.0]);
    let wrong = make(&[2], DType::F32, false);
    assert!(nonzero::masked_select(queue, &x.view, &mask.view, &wrong.view).is_err());
}

#[test]
fn indexing_by_tensors() {
    // x[1:, j] of a tensor of shape [4, 6].
    let queue = &Device::get(0).unwrap().queue();
    let queue = vouched(queue);
    let (x, index, out) =
        (make(&[4, 6], DType::F32, false), make(&[1, 3], DType::I64, false), make(&[3, 3], DType::F32, false));
    let counting: Vec<f64> = (0..24).map(f64::from).collect();
    x.write(&counting);
    index.write(&[1.0, 0.0, -1.0]);
    let selection = Selection {
        shape: shape_of(&[3, 3]).unwrap(),
        strides: [6, 0].into_iter().collect(),
        start: 6,
        axes: vec![Axis { size: 6, stride: 1 }],
    };
    let indices = [index.view.clone()];
    selection.get(queue, &x.view, &indices, &out.view).unwrap();
    assert_eq!(out.read(), [7.0, 6.0, 11.0, 13.0, 12.0, 17.0, 19.0, 18.0, 23.0]);
    selection.add(queue, &x.view, &indices, &out.view).unwrap();
    let mut expected = counting.clone();
    out.read().iter().for_each(|&value| expected[value as usize] += value);
    assert_eq!(x.read(), expected);
    let value = make(&[3], DType::F32, true);
    value.write(&[-1.0, -2.0, -3.0]);
    selection.put(queue, &x.view, &indices, &value.view).unwrap();
    assert_eq!(x.read()[6..12], [-2.0, -1.0, 8.0, 9.0, 10.0, -3.0]);
    index.write(&[1.0, 6.0, 0.0]);
    let error = selection.get(queue, &x.view, &indices, &out.view).unwrap_err().to_string();
    assert_eq!(error, "index: index 6 at position 1 is outside -6..6");
}
