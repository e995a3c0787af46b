//! Shape and type rules of the operations: what MPSGraph would end the process for is refused here.

mod indexing;

use super::TensorType;
use super::operation::{Operation, Reduction, Unary, Window};
use crate::error::{Error, Result};
use crate::matrix::refuse;
use openmps_tile::DType;

/// The type and lengths of an operation's result.
pub fn infer(operation: &Operation, inputs: &[&TensorType]) -> Result<TensorType> {
    let name = operation.name();
    check_count(operation, inputs.len())?;
    let same = |shape: Vec<usize>| Ok(TensorType { dtype: inputs[0].dtype, shape });
    match operation {
        Operation::Unary(unary) => {
            let integers = matches!(unary, Unary::Absolute | Unary::Negative | Unary::Square);
            check_number(name, inputs[0].dtype, integers)?;
            same(inputs[0].shape.clone())
        }
        Operation::Binary(_) => {
            check_number(name, inputs[0].dtype, true)?;
            check_same_type(name, inputs)?;
            same(broadcast(name, &inputs[0].shape, &inputs[1].shape)?)
        }
        Operation::Relu => {
            check_number(name, inputs[0].dtype, true)?;
            same(inputs[0].shape.clone())
        }
        Operation::Sigmoid => {
            check_number(name, inputs[0].dtype, false)?;
            same(inputs[0].shape.clone())
        }
        Operation::Constant { shape, dtype, .. } => Ok(TensorType { dtype: *dtype, shape: shape.clone() }),
        Operation::Cast(dtype) => Ok(TensorType { dtype: *dtype, shape: inputs[0].shape.clone() }),
        Operation::Reshape(shape) => {
            let (before, after) = (count(&inputs[0].shape), count(shape));
            check(before == after, name, || format!("{before} elements do not become {shape:?}"))?;
            same(shape.clone())
        }
        Operation::Transpose(permutation) => {
            let mut sorted = permutation.clone();
            sorted.sort_unstable();
            let rank = inputs[0].shape.len();
            check(sorted.into_iter().eq(0..rank), name, || format!("{permutation:?} is no order of {rank} axes"))?;
            same(permutation.iter().map(|&axis| inputs[0].shape[axis]).collect())
        }
        Operation::Broadcast(shape) => {
            let result = broadcast(name, &inputs[0].shape, shape)?;
            check(result == *shape, name, || format!("{:?} does not become {shape:?}", inputs[0].shape))?;
            same(result)
        }
        Operation::MatrixMultiplication => product(name, inputs),
        Operation::Convolution { window, groups } => convolution(name, inputs, window, *groups),
        Operation::DepthwiseConvolution { window } => depthwise(name, inputs, window),
        Operation::ConvolutionTranspose { window, groups, extra } => transposed(name, inputs, window, *groups, *extra),
        Operation::MaxPooling { window, ceil } | Operation::AveragePooling { window, ceil, .. } => {
            check_number(name, inputs[0].dtype, false)?;
            let [batch, channels, height, width] = image(name, "the input", inputs[0])?;
            let reach = |axis: usize| window.before[axis].max(window.after[axis]) < window.size[axis];
            check(reach(0) && reach(1), name, || format!("padding must be smaller than the window {:?}", window.size))?;
            let size = slid(name, [height, width], window, *ceil)?;
            same(vec![batch, channels, size[0], size[1]])
        }
        Operation::Reduce(reduction, axes) => {
            let integers = !matches!(reduction, Reduction::Mean | Reduction::Variance);
            check_number(name, inputs[0].dtype, integers)?;
            check_axes(name, axes, inputs[0].shape.len())?;
            same(reduced(&inputs[0].shape, axes))
        }
        Operation::SoftMax(axis) | Operation::LogSoftMax(axis) => {
            check_number(name, inputs[0].dtype, false)?;
            check_axes(name, &[*axis], inputs[0].shape.len())?;
            same(inputs[0].shape.clone())
        }
        Operation::Normalisation { axes, .. } => {
            check_number(name, inputs[0].dtype, false)?;
            check_same_type(name, inputs)?;
            check_axes(name, axes, inputs[0].shape.len())?;
            stretches(name, &inputs[1..], &inputs[0].shape)?;
            same(inputs[0].shape.clone())
        }
        Operation::FixedNormalisation { .. } => {
            check_number(name, inputs[0].dtype, false)?;
            check_same_type(name, inputs)?;
            stretches(name, &inputs[1..], &inputs[0].shape)?;
            same(inputs[0].shape.clone())
        }
        Operation::Gather { axis } => {
            check_axes(name, &[*axis], inputs[0].shape.len())?;
            indexing::check_index(name, inputs[1])?;
            let (before, after) = (&inputs[0].shape[..*axis], &inputs[0].shape[axis + 1..]);
            same([before, &inputs[1].shape, after].concat())
        }
        Operation::GatherAlong { axis } => {
            indexing::check_along(name, inputs[0], inputs[1], *axis)?;
            same(inputs[1].shape.clone())
        }
        Operation::GatherTuples => same(indexing::of_tuples(name, inputs[0], inputs[1])?),
        Operation::Scatter { axis, .. } => indexing::scatter(name, inputs, *axis),
        Operation::ScatterAlong { axis, .. } => indexing::scatter_along(name, inputs, *axis),
        Operation::ScatterTuples { .. } => indexing::scatter_tuples(name, inputs),
        Operation::Band { .. } => {
            check(inputs[0].shape.len() >= 2, name, || format!("{:?} are no matrices", inputs[0].shape))?;
            same(inputs[0].shape.clone())
        }
        Operation::Equal => {
            check_same_type(name, inputs)?;
            let shape = broadcast(name, &inputs[0].shape, &inputs[1].shape)?;
            Ok(TensorType { dtype: DType::Bool, shape })
        }
        Operation::Select => {
            check(inputs[0].dtype == DType::Bool, name, || format!("the condition is {}", inputs[0].dtype))?;
            check_same_type(name, &inputs[1..])?;
            let shapes = inputs.iter().all(|input| input.shape == inputs[0].shape);
            check(shapes, name, || "condition and choices differ in shape".to_string())?;
            Ok(inputs[1].clone())
        }
        Operation::Resize(resize) => {
            check_number(name, inputs[0].dtype, false)?;
            let [batch, channels, ..] = image(name, "the input", inputs[0])?;
            check(!resize.size.contains(&0), name, || format!("the size {:?} is empty", resize.size))?;
            same(vec![batch, channels, resize.size[0], resize.size[1]])
        }
        Operation::Attention { .. } => attention(name, inputs),
        Operation::Concat { axis } => concat(name, inputs, *axis),
    }
}

/// How many inputs an operation takes; concatenation takes any number but none.
fn check_count(operation: &Operation, given: usize) -> Result<()> {
    let expected = match operation {
        Operation::Constant { .. } => 0,
        Operation::Binary(_)
        | Operation::MatrixMultiplication
        | Operation::Convolution { .. }
        | Operation::DepthwiseConvolution { .. }
        | Operation::ConvolutionTranspose { .. }
        | Operation::Gather { .. }
        | Operation::GatherAlong { .. }
        | Operation::GatherTuples
        | Operation::Equal => 2,
        Operation::Normalisation { .. }
        | Operation::Scatter { .. }
        | Operation::ScatterAlong { .. }
        | Operation::ScatterTuples { .. }
        | Operation::Select => 3,
        Operation::Attention { mask, .. } => 3 + usize::from(*mask),
        Operation::FixedNormalisation { .. } => 5,
        Operation::Concat { .. } => given.max(1),
        _ => 1,
    };
    check(given == expected, operation.name(), || format!("{given} inputs were given, {expected} are taken"))
}

fn check(holds: bool, operation: &'static str, why: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(refuse(operation, why())) }
}

fn check_number(operation: &'static str, dtype: DType, integers: bool) -> Result<()> {
    let fits = dtype.is_float() || (integers && dtype.is_integer());
    if fits { Ok(()) } else { Err(Error::Type { operation, dtype, engine: "MPSGraph" }) }
}

fn check_same_type(operation: &'static str, inputs: &[&TensorType]) -> Result<()> {
    let names: Vec<&str> = inputs.iter().map(|input| input.dtype.name()).collect();
    check(names.windows(2).all(|pair| pair[0] == pair[1]), operation, || format!("the types {names:?} differ"))
}

fn check_axes(operation: &'static str, axes: &[usize], rank: usize) -> Result<()> {
    let repeated = axes.iter().enumerate().any(|(index, axis)| axes[..index].contains(axis));
    let fits = axes.iter().all(|&axis| axis < rank) && !repeated && !axes.is_empty();
    check(fits, operation, || format!("{axes:?} are no axes of a tensor with {rank}"))
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

fn reduced(shape: &[usize], axes: &[usize]) -> Vec<usize> {
    shape.iter().enumerate().map(|(axis, &length)| if axes.contains(&axis) { 1 } else { length }).collect()
}

/// Two shapes aligned at their innermost axes; lengths must be the same, or 1.
fn broadcast(operation: &'static str, left: &[usize], right: &[usize]) -> Result<Vec<usize>> {
    let rank = left.len().max(right.len());
    let length = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
    let axis = |axis: usize| match (length(left, axis), length(right, axis)) {
        (one, other) if one == other || other == 1 => Ok(one),
        (1, other) => Ok(other),
        _ => Err(refuse(operation, format!("{left:?} and {right:?} cannot be broadcast"))),
    };
    (0..rank).map(axis).collect()
}

fn stretches(operation: &'static str, inputs: &[&TensorType], shape: &[usize]) -> Result<()> {
    for input in inputs {
        let result = broadcast(operation, &input.shape, shape)?;
        check(result == shape, operation, || format!("{:?} does not stretch to {shape:?}", input.shape))?;
    }
    Ok(())
}

fn product(name: &'static str, inputs: &[&TensorType]) -> Result<TensorType> {
    check_number(name, inputs[0].dtype, false)?;
    check_same_type(name, inputs)?;
    let (left, right) = (&inputs[0].shape, &inputs[1].shape);
    check(left.len() >= 2 && right.len() >= 2, name, || format!("{left:?} and {right:?} are no matrices"))?;
    let ((outer_left, l), (outer_right, r)) = (left.split_at(left.len() - 2), right.split_at(right.len() - 2));
    check(l[1] == r[0], name, || format!("{left:?} and {right:?} do not match"))?;
    let mut shape = broadcast(name, outer_left, outer_right)?;
    shape.extend([l[0], r[1]]);
    Ok(TensorType { dtype: inputs[0].dtype, shape })
}

fn image(operation: &'static str, what: &str, tensor: &TensorType) -> Result<[usize; 4]> {
    <[usize; 4]>::try_from(&tensor.shape[..])
        .map_err(|_| refuse(operation, format!("{what} has the shape {:?}, where four axes are needed", tensor.shape)))
}

/// How often a window fits along height and width.
fn slid(operation: &'static str, image: [usize; 2], window: &Window, ceil: bool) -> Result<[usize; 2]> {
    let fit = |axis: usize| {
        let all = [window.size[axis], window.strides[axis], window.dilations[axis]];
        check(!all.contains(&0), operation, || format!("{window:?} has a length of zero"))?;
        let padded = image[axis] + window.before[axis] + window.after[axis];
        let reach = (window.size[axis] - 1) * window.dilations[axis] + 1;
        check(padded >= reach, operation, || format!("a window of {reach} does not fit into {padded}"))?;
        let steps = if ceil {
            (padded - reach).div_ceil(window.strides[axis])
        } else {
            (padded - reach) / window.strides[axis]
        };
        // Frameworks leave such a window out; MPSGraph's rule is not documented, so it is not asked.
        let begins_inside = steps * window.strides[axis] < image[axis] + window.before[axis];
        check(begins_inside, operation, || "the last window would begin in the padding behind the image".to_string())?;
        Ok(steps + 1)
    };
    Ok([fit(0)?, fit(1)?])
}

fn weights_fit(name: &'static str, window: &Window, height: usize, width: usize) -> Result<()> {
    check(window.size == [height, width], name, || {
        format!("weights are {height}x{width}, the window {:?}", window.size)
    })
}

fn convolution(name: &'static str, inputs: &[&TensorType], window: &Window, groups: usize) -> Result<TensorType> {
    check_number(name, inputs[0].dtype, false)?;
    check_same_type(name, inputs)?;
    let [batch, channels, height, width] = image(name, "the input", inputs[0])?;
    let [out, depth, weight_height, weight_width] = image(name, "the weights", inputs[1])?;
    weights_fit(name, window, weight_height, weight_width)?;
    let fits = groups > 0 && channels == depth * groups && out.is_multiple_of(groups);
    check(fits, name, || format!("{channels} channels do not fit weights {:?} in {groups} groups", inputs[1].shape))?;
    let size = slid(name, [height, width], window, false)?;
    Ok(TensorType { dtype: inputs[0].dtype, shape: vec![batch, out, size[0], size[1]] })
}

fn depthwise(name: &'static str, inputs: &[&TensorType], window: &Window) -> Result<TensorType> {
    let channels = image(name, "the input", inputs[0])?[1];
    let weights = image(name, "the weights", inputs[1])?;
    check(weights[1] == 1, name, || {
        format!("the weights {weights:?} are not [channels * multiplier, 1, height, width]")
    })?;
    convolution(name, inputs, window, channels)
}

fn transposed(
    name: &'static str,
    inputs: &[&TensorType],
    window: &Window,
    groups: usize,
    extra: [usize; 2],
) -> Result<TensorType> {
    check_number(name, inputs[0].dtype, false)?;
    check_same_type(name, inputs)?;
    let [batch, channels, height, width] = image(name, "the input", inputs[0])?;
    let [weight_in, out, weight_height, weight_width] = image(name, "the weights", inputs[1])?;
    weights_fit(name, window, weight_height, weight_width)?;
    let fits = groups > 0 && channels == weight_in && channels.is_multiple_of(groups);
    check(fits, name, || format!("{channels} channels do not fit weights {:?} in {groups} groups", inputs[1].shape))?;
    let length = |axis: usize, image: usize| {
        let full =
            (image - 1) * window.strides[axis] + (window.size[axis] - 1) * window.dilations[axis] + 1 + extra[axis];
        let padding = window.before[axis] + window.after[axis];
        check(full > padding, name, || format!("padding of {padding} leaves nothing of {full}"))?;
        check(extra[axis] < window.strides[axis].max(window.dilations[axis]), name, || {
            format!("{} extra rows need a larger stride than {}", extra[axis], window.strides[axis])
        })?;
        Ok(full - padding)
    };
    let shape = vec![batch, out * groups, length(0, height)?, length(1, width)?];
    Ok(TensorType { dtype: inputs[0].dtype, shape })
}

fn attention(name: &'static str, inputs: &[&TensorType]) -> Result<TensorType> {
    check_number(name, inputs[0].dtype, false)?;
    check_same_type(name, inputs)?;
    let [batch, heads, length, depth] = image(name, "the query", inputs[0])?;
    let key = image(name, "the key", inputs[1])?;
    let value = image(name, "the value", inputs[2])?;
    let fits = key[..2] == [batch, heads] && value[..2] == [batch, heads] && key[2] == value[2] && key[3] == depth;
    let shapes = || inputs.iter().map(|input| format!("{:?}", input.shape)).collect::<Vec<_>>().join(", ");
    check(fits, name, || format!("query, key and value do not match: {}", shapes()))?;
    if let Some(mask) = inputs.get(3) {
        stretches(name, &[mask], &[batch, heads, length, key[2]])?;
    }
    Ok(TensorType { dtype: inputs[0].dtype, shape: vec![batch, heads, length, value[3]] })
}

fn concat(name: &'static str, inputs: &[&TensorType], axis: usize) -> Result<TensorType> {
    check_same_type(name, inputs)?;
    let mut shape = inputs[0].shape.clone();
    check_axes(name, &[axis], shape.len())?;
    for input in &inputs[1..] {
        let others = |shape: &[usize]| [&shape[..axis], &shape[axis + 1..]].concat();
        let fits = input.shape.len() == shape.len() && others(&input.shape) == others(&shape);
        check(fits, name, || format!("{shape:?} and {:?} differ in more than axis {axis}", input.shape))?;
        shape[axis] += input.shape[axis];
    }
    Ok(TensorType { dtype: inputs[0].dtype, shape })
}
