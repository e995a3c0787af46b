//! Every declared gradient against finite differences of the operator's own reference, in float64, and every call that a gradient makes on the
//! device against the reference of that call. The list of operators makes the tests.

#[allow(dead_code, reason = "other tests use the rest")]
mod harness;

use harness::{Layout, Tensor, vouched};
use libtest_mimic::{Arguments, Failed, Trial};
use openmps_graph::entry::{Case, Entry, Input, Values};
use openmps_graph::gradient::{Backward, Gradients, Node, Recorder};
use openmps_graph::operators::ENTRIES;
use openmps_graph::operators::elementwise::{Call, Elementwise};
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce, Scatter};
use openmps_graph::{Array, DType, Error, Meta, Operator};
use openmps_runtime::Device;
use openmps_tile::Number;
use std::any::Any;
use std::sync::Arc;

/// Operators that declare none: what passes make of others, steps of optimizers, and those whose gradient nobody has written yet.
const WITHOUT: &[&str] = &[
    "adam",
    "batch_norm_gradient",
    "cholesky",
    "cumulative_product_gradient",
    "fused",
    "grid_sample_grid_gradient",
    "grid_sample_input_gradient",
    "momentum",
    "multiclass_nms",
    "pad_gradient",
    "pooling_gradient",
    "recurrent",
    "recurrent_gradient",
    "upper_gamma",
];

/// Operators with a gradient but for some cases: convolutions with an epilogue, which passes make; exclusive running products; products and
/// extremes of what is put.
const PARTLY: &[&str] = &["convolution", "convolution_transpose", "cumulative_product", "put_along_axis"];

/// The step of the differences, and how far they may be from the gradient, relative to the sum of what the gradient sums up.
const STEP: f64 = 1e-6;
const TOLERANCE: f64 = 1e-6;

/// How far the device's float32 may be from the reference of one call, in roundings of the largest element.
const DEVICE_TOLERANCE: f64 = 256.0;

/// Operators that are computed at once by their references.
struct Reference(Vec<Array>);

impl Reference {
    fn push(&mut self, array: Array) -> Node {
        self.0.push(array);
        Node(self.0.len() - 1)
    }
}

impl Recorder for Reference {
    fn meta(&self, node: Node) -> Meta {
        meta(&self.0[node.0])
    }

    fn record(&mut self, operator: Arc<dyn Operator>, inputs: &[Node]) -> openmps_graph::Result<Vec<Node>> {
        let inputs: Vec<Array> = inputs.iter().map(|input| self.0[input.0].clone()).collect();
        let metas: Vec<Meta> = inputs.iter().map(meta).collect();
        let expected = operator.infer(&metas)?;
        let outputs = operator.reference(&inputs);
        assert_eq!(outputs.iter().map(meta).collect::<Vec<_>>(), expected, "{operator:?} of {metas:?}");
        Ok(outputs.into_iter().map(|output| self.push(output)).collect())
    }

    fn record_reshape(&mut self, x: Node, dims: &[usize]) -> openmps_graph::Result<Node> {
        let Array { data, dtype, .. } = self.0[x.0].clone();
        Ok(self.push(Array::new(dims, data, dtype)))
    }
}

/// Operators that the device computes, each held to its reference of what it was given.
struct OnDevice<'d> {
    device: &'d Device,
    tensors: Vec<Tensor>,
}

impl OnDevice<'_> {
    fn push(&mut self, array: &Array) -> Node {
        let input = Input { values: Values::Given(array.data.clone()), ..Input::of(&array.shape, Values::Counting) };
        self.tensors.push(Tensor::make(self.device, &input, array.dtype, Layout::Dense, 0));
        Node(self.tensors.len() - 1)
    }
}

impl Recorder for OnDevice<'_> {
    fn meta(&self, node: Node) -> Meta {
        self.tensors[node.0].meta()
    }

    fn record(&mut self, operator: Arc<dyn Operator>, inputs: &[Node]) -> openmps_graph::Result<Vec<Node>> {
        let (queue, of) = (self.device.queue(), |node: &Node| &self.tensors[node.0]);
        let metas: Vec<Meta> = inputs.iter().map(|input| self.meta(*input)).collect();
        let views: Vec<_> = inputs.iter().map(|input| of(input).view.clone()).collect();
        let arrays: Vec<Array> = inputs.iter().map(|input| of(input).array.clone()).collect();
        let outputs: Vec<Tensor> =
            operator.infer(&metas)?.iter().map(|meta| Tensor::empty(self.device, meta)).collect();
        let places: Vec<_> = outputs.iter().map(|output| output.view.clone()).collect();
        operator.run(vouched(&queue), &views, &places)?;
        queue.synchronize().expect("the device computes");
        for (output, expected) in outputs.iter().zip(&operator.reference(&arrays)) {
            let compared = output.compare(expected, DEVICE_TOLERANCE, true);
            assert_eq!(compared, Ok(()), "{operator:?} of {metas:?} on the device");
        }
        let nodes = (self.tensors.len()..).map(Node).take(outputs.len()).collect();
        self.tensors.extend(outputs.into_iter().map(Tensor::with_what_is_there));
        Ok(nodes)
    }

    fn record_reshape(&mut self, x: Node, dims: &[usize]) -> openmps_graph::Result<Node> {
        let Array { data, dtype, .. } = self.tensors[x.0].array.clone();
        Ok(self.push(&Array::new(dims, data, dtype)))
    }
}

/// Computes a gradient step by step on the device, in the type that most networks are trained in.
fn on_device(case: &Case, inputs: &[Array], upstream: &[Option<Array>]) -> Result<(), Failed> {
    let device = Device::get(0).map_err(|error| error.to_string())?;
    let narrowed = |array: &Array| {
        let dtype = if array.dtype == DType::F64 { DType::F32 } else { array.dtype };
        Array { dtype, ..array.clone() }
    };
    let mut recorder = OnDevice { device: &device, tensors: Vec::new() };
    let wanted: Vec<bool> = inputs.iter().map(|input| input.dtype.is_float()).collect();
    let nodes: Vec<Node> = inputs.iter().map(|input| recorder.push(&narrowed(input))).collect();
    let given: Vec<Array> = nodes.iter().map(|node| recorder.tensors[node.0].array.clone()).collect();
    let outputs: Vec<Node> = case.operator.reference(&given).iter().map(|output| recorder.push(output)).collect();
    let upstream: Vec<Option<Node>> =
        upstream.iter().map(|weights| weights.as_ref().map(|weights| recorder.push(&narrowed(weights)))).collect();
    let mut backward =
        Backward { recorder: &mut recorder, inputs: &nodes, outputs: &outputs, upstream: &upstream, wanted: &wanted };
    case.operator.gradient(&mut backward).map(drop).map_err(|error| error.to_string().into())
}

fn meta(array: &Array) -> Meta {
    Meta { dtype: array.dtype, shape: array.shape.clone() }
}

/// Weights of every element of an array, neither of which is like another.
fn weights(array: &Array, seed: u64) -> Array {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    Array::from_fn(&array.shape, array.dtype, |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.4
    })
}

/// The weighted sum of the outputs that `upstream` has weights for.
fn weighted(operator: &dyn Operator, inputs: &[Array], upstream: &[Option<Array>]) -> f64 {
    let outputs = operator.reference(inputs);
    let products = outputs.iter().zip(upstream).filter_map(|(output, weights)| Some((output, weights.as_ref()?)));
    products.map(|(output, weights)| output.data.iter().zip(&weights.data).map(|(y, w)| y * w).sum::<f64>()).sum()
}

fn recorded(
    operator: &dyn Operator,
    inputs: &[Array],
    upstream: &[Option<Array>],
) -> openmps_graph::Result<Vec<Option<Array>>> {
    let mut recorder = Reference(Vec::new());
    let wanted: Vec<bool> = inputs.iter().map(|input| input.dtype.is_float()).collect();
    let nodes: Vec<Node> = inputs.iter().map(|input| recorder.push(input.clone())).collect();
    let outputs: Vec<Node> = operator.reference(inputs).into_iter().map(|output| recorder.push(output)).collect();
    let upstream: Vec<Option<Node>> =
        upstream.iter().map(|weights| weights.clone().map(|weights| recorder.push(weights))).collect();
    let mut backward =
        Backward { recorder: &mut recorder, inputs: &nodes, outputs: &outputs, upstream: &upstream, wanted: &wanted };
    let gradients: Gradients = operator.gradient(&mut backward)?;
    assert_eq!(gradients.len(), inputs.len(), "one for each input");
    let of =
        |(gradient, wanted): (Option<Node>, bool)| gradient.filter(|_| wanted).map(|node| recorder.0[node.0].clone());
    Ok(gradients.into_iter().zip(wanted).map(of).collect())
}

/// Compares the slope along one direction for each input; whether the operator has a gradient.
fn check(case: &Case, dtype: DType, takes_float32: bool) -> Result<bool, Failed> {
    let device = Device::get(0).map_err(|error| error.to_string())?;
    let array = |(number, input): (usize, &Input)| {
        let dtype = input.dtype.unwrap_or(dtype);
        let mut array = Tensor::make(&device, input, dtype, Layout::Dense, number as u64 + 1).array;
        if dtype.is_float() {
            // Chosen numbers lie where there is no slope, on the edge of a pixel for example.
            let off = weights(&array, number as u64);
            array.data.iter_mut().zip(&off.data).for_each(|(x, off)| *x += 0.01 * off);
        }
        array
    };
    let inputs: Vec<Array> = case.inputs.iter().enumerate().map(array).collect();
    let operator = case.operator.as_ref();
    let outputs = operator.reference(&inputs);
    let weight =
        |(number, output): (usize, &Array)| output.dtype.is_float().then(|| weights(output, number as u64 + 100));
    let mut upstream: Vec<Option<Array>> = outputs.iter().enumerate().map(weight).collect();
    let mut gradients = recorded(operator, &inputs, &upstream);
    if matches!(gradients, Err(Error::NoGradient { .. })) && upstream.len() > 1 {
        // Statistics beside the result.
        upstream[1..].fill(None);
        gradients = recorded(operator, &inputs, &upstream);
    }
    let gradients = match gradients {
        Err(Error::NoGradient { .. }) => return Ok(false),
        other => other.map_err(|error| error.to_string())?,
    };
    for (number, gradient) in gradients.iter().enumerate().filter(|(number, _)| inputs[*number].dtype.is_float()) {
        compare(operator, &inputs, &upstream, number, gradient.as_ref())
            .map_err(|error| format!("{operator:?}, input {number} of {:?}: {error}", case.inputs))?;
    }
    if takes_float32 {
        on_device(case, &inputs, &upstream)?;
    }
    Ok(true)
}

fn compare(
    operator: &dyn Operator,
    inputs: &[Array],
    upstream: &[Option<Array>],
    number: usize,
    gradient: Option<&Array>,
) -> Result<(), String> {
    let direction = weights(&inputs[number], 7);
    let moved = |step: f64| {
        let mut inputs = inputs.to_vec();
        inputs[number].data.iter_mut().zip(&direction.data).for_each(|(x, d)| *x += step * d);
        weighted(operator, &inputs, upstream)
    };
    let measured = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
    let (mut slope, mut size) = (0.0, moved(0.0).abs().max(1.0));
    if let Some(gradient) = gradient {
        if gradient.shape != inputs[number].shape {
            return Err(format!("the gradient's shape is {:?}, not {:?}", gradient.shape, inputs[number].shape));
        }
        let terms: Vec<f64> = gradient.data.iter().zip(&direction.data).map(|(g, d)| g * d).collect();
        slope = terms.iter().sum();
        size += terms.iter().map(|term| term.abs()).sum::<f64>();
    }
    if !measured.is_finite() || (slope - measured).abs() <= TOLERANCE * size {
        return Ok(());
    }
    Err(format!("the gradient gives {slope}, differences {measured}"))
}

/// Whether a case puts two values at one place, of which one is lost: which one is not said.
fn overwrites(case: &Case) -> bool {
    let operator = case.operator.as_ref() as &dyn Any;
    let scatters = operator.downcast_ref::<Scatter>().is_some_and(|scatter| scatter.overwrite);
    let puts = operator.downcast_ref::<PutAlongAxis>().is_some_and(|put| put.reduce == Reduce::Assign);
    let Some(Input { values: Values::Given(places), .. }) = case.inputs.get(1) else { return false };
    let is_repeated = |(at, place): (usize, &f64)| places[..at].contains(place);
    (scatters || puts) && places.iter().enumerate().any(is_repeated)
}

/// Cases with numbers that have no slope (infinities, NaN), and those that take long, are left to the tests of the operators themselves.
fn is_fit(case: &Case, dtype: DType) -> bool {
    let special = |input: &Input| matches!(input.values, Values::Special);
    let metas: Vec<Meta> = case
        .inputs
        .iter()
        .map(|input| Meta { dtype: input.dtype.unwrap_or(dtype), shape: input.dims.iter().copied().collect() })
        .collect();
    let work = case.operator.infer(&metas).map(|outputs| case.operator.arithmetic(&metas, &outputs));
    !case.inputs.iter().any(special) && !overwrites(case) && work.is_ok_and(|work| work <= 100_000)
}

fn verdict(name: &str, has: &[bool]) -> Result<(), Failed> {
    let expected = match (WITHOUT.contains(&name), PARTLY.contains(&name)) {
        (true, _) => (false, has.contains(&false)),
        (_, true) => (true, true),
        (false, false) => (true, false),
    };
    if (has.contains(&true), has.contains(&false)) == expected {
        return Ok(());
    }
    Err(format!("{name} is in the wrong list: its {} cases that are fit have a gradient as in {has:?}", has.len())
        .into())
}

fn listed(entry: &Entry) -> Result<(), Failed> {
    let dtype = if entry.dtypes.contains(&DType::F64) { DType::F64 } else { entry.dtypes[0] };
    let cases = (entry.cases)();
    let fit = cases.iter().filter(|case| is_fit(case, dtype));
    let has = fit
        .map(|case| check(case, dtype, entry.dtypes.contains(&DType::F32)))
        .collect::<Result<Vec<bool>, Failed>>()?;
    verdict(entry.name, &has)
}

/// Formulas of single elements, where each is defined: in the positive part of the domain, and around zero.
fn elementwise(operator: Elementwise) -> Result<(), Failed> {
    let row = operator.row();
    let scalars: Vec<Number> = row.sample.iter().map(|&value| Number::Float(value)).collect();
    let output = row.output_dtype(&[DType::F64; 3]).is_none().then_some(DType::F64);
    let mut has = Vec::new();
    for values in [Values::Uniform(0.1, 0.9), Values::Uniform(-2.9, 2.9)] {
        for shapes in [[[3, 5]; 6], [[3, 5], [1, 5], [3, 1], [3, 5], [1, 1], [3, 5]]] {
            let inputs = shapes[..row.operands.len()].iter().map(|dims| Input::of(dims, values.clone())).collect();
            let call = Call { operator, scalars: scalars.clone(), output };
            has.push(check(&Case { operator: Box::new(call), inputs }, DType::F64, true)?);
        }
    }
    match (has.contains(&true), operator) {
        (true, _) if has.contains(&false) => Err(format!("{} has a gradient in some cases only", row.name).into()),
        (false, Elementwise::Unary(_) | Elementwise::Activation(_) | Elementwise::Gradient(_)) => {
            Err(format!("{} has no gradient", row.name).into())
        }
        _ => Ok(()),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let formulas = Elementwise::all().filter(|operator| operator.row().dtypes.contains(&DType::F64));
    let mut trials: Vec<Trial> =
        formulas.map(|operator| Trial::test(operator.row().name, move || elementwise(operator))).collect();
    for entry in ENTRIES.iter().copied().flatten().copied() {
        trials.push(Trial::test(entry.name, move || listed(entry)));
    }
    trials.push(Trial::test("the_lists_name_operators", || {
        let is_listed = |name: &&&str| ENTRIES.iter().copied().flatten().any(|entry| entry.name == **name);
        match WITHOUT.iter().chain(PARTLY).find(|name| !is_listed(name)) {
            Some(name) => Err(format!("{name} is no operator").into()),
            None => Ok(()),
        }
    }));
    libtest_mimic::run(&arguments, trials).exit();
}
