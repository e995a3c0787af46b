//! Reductions along axes.

use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, DataType, IntArray, Output, Tensor};
use openmps_graph::Operator;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::reduce::{Reduce, Reduction};
use openmps_tile::DType;
use openmps_tile::dtype::{ALL, FLOATS};

const MULTIPLIED: &[DType] = &[DType::Bool, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
const COMPARED: &[DType] =
    &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("sum", ALL, sum).strided().output_as_inferred(0);
    table.add("prod", MULTIPLIED, prod).strided().output_as_inferred(0);
    table.add("prod_infer", MULTIPLIED, prod_infer).strided().output_as_inferred(0);
    table.add("sum_raw", ALL, sum_raw).strided().output_as_inferred(0);
    table.add("mean", MULTIPLIED, mean).strided();
    table.add("mean_raw", MULTIPLIED, mean_raw).strided();
    table.add("mean_all", FLOATS, mean_all).strided();
    table.add("max", COMPARED, max).strided();
    table.add("max_raw", COMPARED, max_raw).strided();
    table.add("min", COMPARED, min).strided();
    table.add("min_raw", COMPARED, min_raw).strided();
    table.add("amax", COMPARED, amax).strided();
    table.add("amax_raw", COMPARED, amax_raw).strided();
    table.add("amin", COMPARED, amin).strided();
    table.add("amin_raw", COMPARED, amin_raw).strided();
    table.add("any", ALL, any).strided().output(0, DType::Bool);
    table.add("any_raw", ALL, any_raw).strided().output(0, DType::Bool);
    table.add("all", ALL, all).strided().output(0, DType::Bool);
    table.add("all_raw", ALL, all_raw).strided().output(0, DType::Bool);
    table.add("squared_l2_norm", FLOATS, squared_l2_norm).strided();
    table.add("frobenius_norm", FLOATS, frobenius_norm).strided();
}

fn reduce(
    context: &Context,
    reduction: Reduction,
    x: &Tensor,
    axes: &[i64],
    output: Option<DType>,
    out: &Output,
) -> Result<()> {
    let x = x.view()?;
    let operator = Reduce { reduction, axes: axes.to_vec(), keep_dims: false, output };
    let meta = openmps_graph::Meta { dtype: x.dtype, shape: x.shape.clone() };
    let inferred = operator.infer(&[meta])?.remove(0);
    let mut view = context.allocate(out, inferred.dtype)?;
    // Kept dimensions of size 1 change the output's shape, not its elements.
    view = openmps_graph::View::dense(view.address, view.dtype, &inferred.shape)?;
    Ok(operator.run(context.queue(), &[x], &[view])?)
}

fn axes_of(dims: &[i64], all: bool) -> &[i64] {
    if all { &[] } else { dims }
}

fn sum(context: &Context, x: Tensor, dims: IntArray, data_type: DataType, _keep: bool, out: Output) -> Result<()> {
    let (own, dtype) = (x.dtype()?, data_type.or(promoted(x.dtype()?))?);
    if own.is_float() && !dtype.is_float() {
        // Paddle converts what is summed, not the sum.
        let c = Compose::new(context);
        let sum = c.reduce(Reduction::Sum, &c.cast(&x.view()?, dtype)?, &dims)?;
        return c.store_value(&out, dtype, &sum);
    }
    reduce(context, Reduction::Sum, &x, &dims, Some(dtype), &out)
}

fn promoted(dtype: DType) -> DType {
    if matches!(dtype, DType::Bool | DType::I32) { DType::I64 } else { dtype }
}

fn prod(context: &Context, x: Tensor, dims: IntArray, _keep: bool, all: bool, out: Output) -> Result<()> {
    // Unlike sums, products keep the type of integers.
    let dtype = Some(x.dtype()?).filter(|&dtype| dtype != DType::Bool).unwrap_or(DType::I64);
    reduce(context, Reduction::Product, &x, axes_of(&dims, all), Some(dtype), &out)
}

/// The form of programs that say which axes there are: of none, all.
fn prod_infer(context: &Context, x: Tensor, dims: IntArray, keep: bool, out: Output) -> Result<()> {
    let all = dims.is_empty();
    prod(context, x, dims, keep, all, out)
}

fn mean(context: &Context, x: Tensor, dims: IntArray, _keep: bool, out: Output) -> Result<()> {
    let dtype = x.dtype()?;
    match dtype {
        // The mean of booleans is true where it is not zero.
        DType::Bool => reduce(context, Reduction::Any, &x, &dims, None, &out),
        _ if dtype.is_float() => reduce(context, Reduction::Mean, &x, &dims, None, &out),
        _ => integer_mean(context, &x, &dims, &out),
    }
}

/// The mean of integers is one: the quotient towards zero.
fn integer_mean(context: &Context, x: &Tensor, dims: &[i64], out: &Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let sum = c.reduce(Reduction::Sum, &x, dims)?;
    let count = c.temporary(sum.dtype, &[])?;
    c.fill(&count, (x.len() / sum.len().max(1)) as f64)?;
    let mean = c.map(Elementwise::Binary(Binary::Divide), &[&sum, &count], &[])?;
    c.store_value(out, x.dtype, &mean)
}

fn mean_all(context: &Context, x: Tensor, out: Output) -> Result<()> {
    reduce(context, Reduction::Mean, &x, &[], None, &out)
}

fn max(context: &Context, x: Tensor, dims: IntArray, _keep: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Maximum, &x, &dims, None, &out)
}

fn min(context: &Context, x: Tensor, dims: IntArray, _keep: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Minimum, &x, &dims, None, &out)
}

fn amax(context: &Context, x: Tensor, dims: Vec<i64>, _keep: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Maximum, &x, &dims, None, &out)
}

fn amin(context: &Context, x: Tensor, dims: Vec<i64>, _keep: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Minimum, &x, &dims, None, &out)
}

fn any(context: &Context, x: Tensor, dims: Vec<i64>, _keep: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Any, &x, &dims, None, &out)
}

fn all(context: &Context, x: Tensor, dims: Vec<i64>, _keep: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::All, &x, &dims, None, &out)
}

/// The forms of legacy programs, which say by a flag that all axes are meant.
macro_rules! raw {
    ($($function:ident $of:ident $dims:ty;)+) => { $(
        fn $function(context: &Context, x: Tensor, dims: $dims, keep: bool, all: bool, out: Output) -> Result<()> {
            $of(context, x, if all { <$dims>::default() } else { dims }, keep, out)
        }
    )+ };
}
raw! {
    mean_raw mean IntArray;
    max_raw max IntArray;
    min_raw min IntArray;
    amax_raw amax Vec<i64>;
    amin_raw amin Vec<i64>;
    any_raw any Vec<i64>;
    all_raw all Vec<i64>;
}

fn sum_raw(
    context: &Context,
    x: Tensor,
    dims: IntArray,
    keep: bool,
    all: bool,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    sum(context, x, if all { IntArray::default() } else { dims }, data_type, keep, out)
}

fn squared_l2_norm(context: &Context, x: Tensor, out: Output) -> Result<()> {
    reduce(context, Reduction::SumOfSquares, &x, &[], None, &out)
}

fn frobenius_norm(context: &Context, x: Tensor, dims: IntArray, _keep: bool, all: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Norm, &x, axes_of(&dims, all), None, &out)
}
