//! Kernels that draw random numbers. The seed is the attribute's, or comes from the device's generator, which `paddle.seed` sets.

use super::compose::Compose;
use super::images::sizes;
use super::movement::{many, one};
use super::values::store_integers;
use crate::error::{Result, refuse};
use crate::scalar::dims_of;
use crate::table::Table;
use crate::{Context, DataType, IntArray, Output, Scalar, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::random::{ApplyMask, Bernoulli, Draws, Dropout, Law, Multinomial, Random, Source};
use openmps_graph::view::shape_of;
use openmps_graph::{DType, Operator};
use openmps_tile::dtype::{FLOATS, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("uniform", FLOATS, uniform).output_as_inferred(0);
    table.add("uniform_raw", FLOATS, uniform_raw).output_as_inferred(0);
    table.add("uniform_inplace", FLOATS, uniform_inplace);
    table.add("gaussian", FLOATS, gaussian).output_as_inferred(0);
    table.add("gaussian_inplace", FLOATS, gaussian_inplace);
    table.add("truncated_gaussian_random", FLOATS, truncated_gaussian).output_as_inferred(0);
    table.add("randint_with_seed", &[DType::I32, DType::I64], randint_with_seed).output_as_inferred(0);
    table.add("seed", &[DType::I32], seed);
    table.add("randint", &[DType::I32, DType::I64], randint).output_as_inferred(0);
    table.add("randperm", &[DType::I32, DType::I64, DType::F32, DType::F64], randperm).output_as_inferred(0);
    table.add("bernoulli", FLOATS, bernoulli).strided();
    table.add("multinomial", FLOATS, multinomial).strided().output(0, DType::I64);
    table.add("exponential", FLOATS, exponential);
    table.add("random", NUMBERS, random);
    table.add("uniform_random_batch_size_like", FLOATS, uniform_like).output_as_inferred(0);
    table.add("dropout", FLOATS, dropout).strided().output(1, DType::U8);
    table.add("dropout_grad", FLOATS, dropout_grad).strided();
    table.add("dropout_nd", &[DType::F32, DType::F64], dropout_nd).output(1, DType::U8);
    table.add("dropout_nd_grad", &[DType::F32, DType::F64], dropout_nd_grad);
}

/// Numbers of a seed that is given, or else the next ones.
pub(super) fn source(context: &Context, seed: i32) -> Source {
    Source { seed: if seed == 0 { context.random() } else { seed as u64 }, offset: 0 }
}

fn draw(context: &Context, law: Law, seed: i32, dims: &[usize], dtype: DType, out: &Output) -> Result<()> {
    let random = Random { law, source: source(context, seed), dims: shape_of(dims)?, dtype };
    many(context, &random, &[], &[Some(out)])
}

fn uniform(
    context: &Context,
    shape: IntArray,
    data_type: DataType,
    low: Scalar,
    high: Scalar,
    seed: i32,
    out: Output,
) -> Result<()> {
    let dims = shape.dims()?;
    out.set_dims(&dims);
    let law = Law::Uniform { low: low.f64(), high: high.f64() };
    draw(context, law, seed, &dims, data_type.or(DType::F32)?, &out)
}

/// Ones on a diagonal, which legacy programs may ask for.
fn refuse_diagonal(diagonal: i32) -> Result<()> {
    if diagonal == 0 { Ok(()) } else { Err(refuse("diag_num", diagonal, "0")) }
}

/// The form of legacy programs.
fn uniform_raw(
    context: &Context,
    shape: IntArray,
    data_type: DataType,
    low: Scalar,
    high: Scalar,
    seed: i32,
    diagonal: i32,
    _step: i32,
    _value: f32,
    out: Output,
) -> Result<()> {
    refuse_diagonal(diagonal)?;
    uniform(context, shape, data_type, low, high, seed, out)
}

fn uniform_inplace(
    context: &Context,
    x: Tensor,
    low: f32,
    high: f32,
    seed: i32,
    _: i32,
    _: i32,
    _: f32,
    out: Output,
) -> Result<()> {
    draw(context, Law::Uniform { low: low.into(), high: high.into() }, seed, &x.shape(), x.dtype()?, &out)
}

fn gaussian(
    context: &Context,
    shape: IntArray,
    mean: f32,
    deviation: f32,
    seed: i32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let dims = shape.dims()?;
    out.set_dims(&dims);
    let law = Law::Normal { mean: mean.into(), deviation: deviation.into() };
    draw(context, law, seed, &dims, data_type.or(DType::F32)?, &out)
}

fn gaussian_inplace(context: &Context, x: Tensor, mean: f32, deviation: f32, seed: i32, out: Output) -> Result<()> {
    let law = Law::Normal { mean: mean.into(), deviation: deviation.into() };
    draw(context, law, seed, &x.shape(), x.dtype()?, &out)
}

fn truncated_gaussian(
    context: &Context,
    shape: Vec<i32>,
    mean: f32,
    deviation: f32,
    seed: i32,
    low: f32,
    high: f32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let dims = dims_of(&shape.iter().map(|&size| size.into()).collect::<Vec<i64>>())?;
    out.set_dims(&dims);
    let (mean, deviation, low, high) = (mean.into(), deviation.into(), low.into(), high.into());
    let law = Law::TruncatedNormal { mean, deviation, low, high };
    draw(context, law, seed, &dims, data_type.or(DType::F32)?, &out)
}

fn randint(context: &Context, low: i32, high: i32, shape: IntArray, data_type: DataType, out: Output) -> Result<()> {
    let dims = shape.dims()?;
    out.set_dims(&dims);
    let law = Law::Integers { low: low.into(), high: high.into() };
    draw(context, law, 0, &dims, data_type.or(DType::I64)?, &out)
}

fn randint_with_seed(
    context: &Context,
    low: i32,
    high: i32,
    shape: IntArray,
    data_type: DataType,
    seed: i32,
    out: Output,
) -> Result<()> {
    let dims = shape.dims()?;
    out.set_dims(&dims);
    let law = Law::Integers { low: low.into(), high: high.into() };
    draw(context, law, seed, &dims, data_type.or(DType::I64)?, &out)
}

/// A seed: the given one, or else a random one that is not 0, which would mean none.
fn seed(
    context: &Context,
    given: i32,
    _deterministic: bool,
    _generator: String,
    _on_host: bool,
    out: Output,
) -> Result<()> {
    let drawn = || (context.random() >> 33).max(1) as i64;
    let seed = if given == 0 { drawn() } else { given.into() };
    store_integers(context, &out, DType::I32, &[1], &[seed])
}

fn randperm(context: &Context, len: i32, data_type: DataType, out: Output) -> Result<()> {
    let dims = dims_of(&[len.into()])?;
    out.set_dims(&dims);
    draw(context, Law::Permutation, 0, &dims, data_type.or(DType::I64)?, &out)
}

fn bernoulli(context: &Context, x: Tensor, out: Output) -> Result<()> {
    one(context, &Bernoulli { source: source(context, 0) }, x, &out)
}

fn multinomial(context: &Context, x: Tensor, count: Scalar, replacement: bool, out: Output) -> Result<()> {
    let count = sizes("num_samples", &[count.i64()])?[0];
    let draws = if replacement { Draws::Replaced(count) } else { Draws::Distinct(count) };
    many(context, &Multinomial { draws, source: source(context, 0) }, &[x.view()?], &[Some(&out)])
}

fn exponential(context: &Context, x: Tensor, rate: f32, out: Output) -> Result<()> {
    draw(context, Law::Exponential { rate: rate.into() }, 0, &x.shape(), x.dtype()?, &out)
}

fn random(context: &Context, x: Tensor, low: i64, high: i64, out: Output) -> Result<()> {
    draw(context, Law::Integers { low, high }, 0, &x.shape(), x.dtype()?, &out)
}

/// Of a size that is one of another tensor's; Paddle's rule has set it.
fn uniform_like(
    context: &Context,
    _x: Tensor,
    _shape: Vec<i32>,
    _input_axis: i32,
    _output_axis: i32,
    low: f32,
    high: f32,
    seed: i32,
    diagonal: i32,
    _step: i32,
    _value: f32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    refuse_diagonal(diagonal)?;
    draw(
        context,
        Law::Uniform { low: low.into(), high: high.into() },
        seed,
        &out.shape(),
        data_type.or(DType::F32)?,
        &out,
    )
}

/// The seed of a tensor, which pipelines use to repeat a dropout.
fn seed_of(context: &Context, tensor: Option<Tensor>, seed: i32, fixed: bool) -> Result<i32> {
    let Some(tensor) = tensor else { return Ok(if fixed { seed.max(1) } else { 0 }) };
    Ok(Scalar::of_tensor(context, &tensor)?.i64() as i32)
}

fn dropout(
    context: &Context,
    x: Tensor,
    seed_tensor: Option<Tensor>,
    probability: Scalar,
    is_test: bool,
    mode: String,
    seed: i32,
    fixed: bool,
    out: Output,
    mask: Option<Output>,
) -> Result<()> {
    let (probability, upscale) = (probability.f64(), mode == "upscale_in_train");
    if is_test {
        return inference(context, x, &out, probability, upscale);
    }
    let source = source(context, seed_of(context, seed_tensor, seed, fixed)?);
    many(context, &Dropout { probability, upscale, source }, &[x.view()?], &[Some(&out), mask.as_ref()])
}

/// Dropout at inference: the input, times the probability of keeping where training did not scale up.
fn inference(context: &Context, x: Tensor, out: &Output, probability: f64, upscale: bool) -> Result<()> {
    if upscale {
        return one(context, &Copy, x, out);
    }
    let (c, x) = (Compose::new(context), x.view()?);
    // All is dropped, and a dropped NaN is zero.
    if probability == 1.0 {
        return c.fill(&context.allocate(out, x.dtype)?, 0.0);
    }
    c.store(out, x.dtype, Elementwise::Unary(Unary::Scale), &[&x], &[1.0 - probability, 0.0])
}

/// The mask varies along some axes, and is one for all the others.
fn dropout_nd(
    context: &Context,
    x: Tensor,
    seed_tensor: Option<Tensor>,
    probability: Scalar,
    is_test: bool,
    mode: String,
    seed: i32,
    fixed: bool,
    axes: Vec<i32>,
    out: Output,
    mask: Option<Output>,
) -> Result<()> {
    if is_test || axes.is_empty() {
        return dropout(context, x, seed_tensor, probability, is_test, mode, seed, fixed, out, mask);
    }
    let (c, x, probability) = (Compose::new(context), x.view()?, probability.f64());
    let varies = |axis: &usize| axes.contains(&(*axis as i32));
    let dims: Vec<usize> = (0..x.rank()).map(|axis| if varies(&axis) { x.shape[axis] } else { 1 }).collect();
    let source = source(context, seed_of(context, seed_tensor, seed, fixed)?);
    let ones = c.constant(x.dtype, &dims, 1.0)?;
    let (kept, bits) = (c.temporary(x.dtype, &dims)?, c.temporary(DType::U8, &dims)?);
    let operator = Dropout { probability, upscale: mode == "upscale_in_train", source };
    c.launch(&operator, &[ones], &[kept.clone(), bits.clone()])?;
    if let Some(mask) = mask {
        mask.set_dims(&dims);
        c.store_value(&mask, DType::U8, &bits)?;
    }
    c.store(&out, x.dtype, Elementwise::Binary(Binary::Multiply), &[&x, &kept], &[])
}

fn dropout_nd_grad(
    context: &Context,
    mask: Tensor,
    gradient: Tensor,
    probability: Scalar,
    is_test: bool,
    mode: String,
    axes: Vec<i32>,
    out: Output,
) -> Result<()> {
    if is_test || axes.is_empty() {
        return dropout_grad(context, mask, gradient, probability, is_test, mode, out);
    }
    let (c, gradient, keep) = (Compose::new(context), gradient.view()?, 1.0 - probability.f64());
    let scale = if mode == "upscale_in_train" && keep > 0.0 { 1.0 / keep } else { 1.0 };
    let kept = c.scale(&c.cast(&mask.view()?, gradient.dtype)?, scale, 0.0)?;
    c.store(&out, gradient.dtype, Elementwise::Binary(Binary::Multiply), &[&gradient, &kept], &[])
}

fn dropout_grad(
    context: &Context,
    mask: Tensor,
    gradient: Tensor,
    probability: Scalar,
    is_test: bool,
    mode: String,
    out: Output,
) -> Result<()> {
    let (keep, upscale) = (1.0 - probability.f64(), mode == "upscale_in_train");
    if is_test {
        return inference(context, gradient, &out, probability.f64(), upscale);
    }
    let scale = if upscale && keep > 0.0 { 1.0 / keep } else { 1.0 };
    let inputs = [gradient.view()?, mask.view()?];
    let out = context.allocate(&out, inputs[0].dtype)?;
    Ok(ApplyMask { scale }.run(context.queue(), &inputs, &[out])?)
}
