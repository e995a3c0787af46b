//! The list of operators against their float64 references, on one device.

use super::{Layout, Tensor, vouched};
use libtest_mimic::Failed;
use openmps_graph::entry::{Case, Entry, Input, Values};
use openmps_graph::operators::elementwise;
use openmps_graph::operators::elementwise::{Call, Elementwise};
use openmps_graph::{DType, Meta};
use openmps_runtime::Device;
use openmps_tile::Number;

/// Which part of an operator's cases is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Breadth {
    /// Every case in every layout and element type.
    Whole,
    /// Every operator in every element type that a GPU of Apple's has; of shapes and layouts only what makes kernels of different kinds.
    /// One element type has all of an operator's cases.
    Kernels,
}

impl Breadth {
    /// What `OPENMPS_TEST_BREADTH` asks for: `whole`, or what fits into every run.
    #[allow(dead_code, reason = "one of the test binaries runs everything anyway")]
    pub fn of_environment() -> Breadth {
        if openmps_settings::TEST_BREADTH.get() == Some("whole") { Breadth::Whole } else { Breadth::Kernels }
    }

    fn dtypes(self, all: &[DType]) -> Vec<DType> {
        all.iter().copied().filter(|&dtype| self == Breadth::Whole || dtype != DType::F64).collect()
    }

    /// Whether a case belongs to it: the `case`-th, of the `dtype`-th type.
    fn takes(self, case: usize, dtype: usize, layout: Layout) -> bool {
        self == Breadth::Whole || layout == Layout::Dense && (case == 0 || dtype == 0)
    }
}

/// An operator of the list.
pub fn listed(device: &Device, entry: &'static Entry, breadth: Breadth) -> Result<(), Failed> {
    let cases = (entry.cases)();
    if cases.is_empty() {
        return Err(format!("{} has no cases", entry.name).into());
    }
    for (number, case) in cases.iter().enumerate() {
        for (of_type, &dtype) in breadth.dtypes(entry.dtypes).iter().enumerate() {
            for &layout in Layout::ALL.iter().filter(|layout| breadth.takes(number, of_type, **layout)) {
                check(device, case, dtype, layout, entry.tolerance, true)
                    .map_err(|error| format!("case {number} ({dtype}, {layout:?}, {:?}): {error}", case.operator))?;
            }
        }
    }
    Ok(())
}

/// Shapes of the inputs: equal, odd, empty, scalar, and each kind of broadcasting.
fn shapes(inputs: usize) -> Vec<Vec<&'static [usize]>> {
    let same: [&[usize]; 8] = [&[4], &[], &[0], &[1], &[1031], &[3, 5, 7], &[2, 0, 3], &[5000]];
    let mut shapes: Vec<Vec<&[usize]>> = same.iter().map(|&shape| vec![shape; inputs]).collect();
    if inputs >= 2 {
        let pairs: [[&[usize]; 2]; 11] = [
            [&[3, 1, 5], &[4, 1]],
            [&[7, 33], &[33]],
            [&[7, 33], &[7, 1]],
            [&[1], &[2, 3]],
            [&[2, 3, 4, 5], &[3, 1, 1]],
            [&[2, 3, 1, 5], &[2, 1, 4, 1]],
            [&[], &[6]],
            [&[130, 70], &[1, 70]],
            [&[300, 1, 2], &[2, 2]],
            [&[3, 70, 2], &[3, 1, 2]],
            [&[90, 6, 9], &[6, 1]],
        ];
        for pair in pairs {
            let mut shape = pair.to_vec();
            shape.resize(inputs, pair[0]);
            shapes.push(shape);
        }
    }
    shapes
}

/// The shapes of an elementwise operator that are run: (number, shapes, layout). Long and dense is one kernel for each type; rows with
/// something stretched along them is another.
fn calls(inputs: usize, breadth: Breadth, of_type: usize) -> Vec<(usize, Vec<&'static [usize]>, Layout)> {
    let all = shapes(inputs).into_iter().enumerate();
    let mut calls =
        all.flat_map(|(number, shapes)| Layout::ALL.iter().map(move |&layout| (number, shapes.clone(), layout)));
    if breadth == Breadth::Whole {
        return calls.collect();
    }
    let kept = |number: usize, layout: Layout| match number {
        4 | 7 => layout == Layout::Dense,
        5 => layout == Layout::Transposed && of_type == 0,
        10 => layout == Layout::Dense && of_type == 0,
        _ => false,
    };
    calls.by_ref().filter(|(number, _, layout)| kept(*number, *layout)).collect()
}

/// An elementwise operator.
pub fn elementwise(device: &Device, operator: Elementwise, breadth: Breadth) -> Result<(), Failed> {
    let row = operator.row();
    let scalars = row.sample.iter().map(|&value| Number::Float(value)).collect::<Vec<_>>();
    let outputs: &[Option<DType>] = match row.output_dtype(&[DType::F32; 3]) {
        Some(_) => &[None],
        None => &[
            Some(DType::F32),
            Some(DType::F16),
            Some(DType::I32),
            Some(DType::Bool),
            Some(DType::U8),
            Some(DType::U32),
            Some(DType::F64),
        ],
    };
    for (of_type, dtype) in breadth.dtypes(row.dtypes).into_iter().enumerate() {
        for (number, shapes, layout) in calls(row.operands.len(), breadth, of_type) {
            for &output in outputs.iter().filter(|output| breadth == Breadth::Whole || **output != Some(DType::F64)) {
                let special = number % 2 == 0 && dtype.is_float() && output.is_none();
                let values = if special { special_values(operator) } else { Values::Uniform(-3.0, 3.0) };
                let mut inputs: Vec<Input> = shapes.iter().map(|dims| Input::of(dims, values.clone())).collect();
                avoid_undefined(row, dtype, &mut inputs);
                let call = Call { operator, scalars: scalars.clone(), output };
                let case = Case { operator: Box::new(call), inputs };
                // A formula that cancels is as exact as its largest terms, not as its result.
                let cancels = row.tolerance >= 8.0;
                check(device, &case, dtype, layout, row.tolerance, cancels)
                    .map_err(|error| format!("{dtype} -> {output:?}, {shapes:?}, {layout:?}: {error}"))?;
            }
        }
    }
    Ok(())
}

/// Formulas whose terms overflow where their sums, in float64, do not.
const SUMS: &[&str] = &["floor_divide", "lerp", "products_difference", "products_sum"];

/// Every kind of number for the operators that are one instruction; for formulas those at which float64 does not hide
/// what overflow and cancellation do to the terms; for gradients and optimizers, where infinities have no meaning, ordinary ones.
fn special_values(operator: Elementwise) -> Values {
    match operator {
        Elementwise::Gradient(_) | Elementwise::Optimizer(_) | Elementwise::Recurrent(_) => Values::Uniform(-3.0, 3.0),
        _ if SUMS.contains(&operator.row().name) => Values::Uniform(-3.0, 3.0),
        Elementwise::Activation(_) => Values::Given(vec![f64::NAN, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 20.0, -15.0, 1e-3]),
        _ => Values::Special,
    }
}

/// Integers have no quotient by zero and no negative powers; unsigned ones no negative numbers.
fn avoid_undefined(row: &elementwise::Row, dtype: DType, inputs: &mut [Input]) {
    let divides = matches!(row.name, "divide" | "floor_divide" | "remainder" | "elementwise_pow" | "reciprocal");
    if divides && !dtype.is_float() {
        inputs[0].values = Values::Uniform(1.0, 50.0);
        let last = inputs.len() - 1;
        inputs[last].values = Values::Uniform(1.0, 4.0);
    } else if row.name == "cast" {
        inputs[0].values = Values::Uniform(0.0, 100.0);
    }
}

/// Runs one call and compares it with its reference.
pub fn check(
    device: &Device,
    case: &Case,
    dtype: DType,
    layout: Layout,
    tolerance: f64,
    relative_to_largest: bool,
) -> Result<(), String> {
    let queue = &device.queue();
    let queue = vouched(queue);
    let inputs: Vec<Tensor> = case
        .inputs
        .iter()
        .enumerate()
        .map(|(i, input)| Tensor::make(device, input, input.dtype.unwrap_or(dtype), layout, i as u64))
        .collect();
    let metas: Vec<Meta> = inputs.iter().map(Tensor::meta).collect();
    let outputs = case.operator.infer(&metas).map_err(|error| error.to_string())?;
    let outputs: Vec<Tensor> = outputs.iter().map(|meta| Tensor::empty(device, meta)).collect();
    let views = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.view.clone()).collect::<Vec<_>>();
    case.operator.run(queue, &views(&inputs), &views(&outputs)).map_err(|error| error.to_string())?;
    queue.synchronize().map_err(|error| error.to_string())?;
    let arrays: Vec<_> = inputs.iter().map(|input| input.array.clone()).collect();
    let expected = case.operator.reference(&arrays);
    if expected.len() != outputs.len() {
        return Err(format!("the reference gives {} outputs, the rule {}", expected.len(), outputs.len()));
    }
    for (output, expected) in outputs.iter().zip(&expected) {
        output.compare(expected, tolerance, relative_to_largest)?;
    }
    Ok(())
}
