//! Reductions along axes.

use crate::error::Result;
use crate::table::Table;
use crate::{Context, DataType, IntArray, Output, Tensor};
use openmps_graph::Operator;
use openmps_graph::operators::reduce::{Reduce, Reduction};
use openmps_tile::DType;
use openmps_tile::dtype::{ALL, FLOATS};

const SUMMED: &[DType] = &[DType::Bool, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
const COMPARED: &[DType] =
    &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("sum", SUMMED, sum).strided().output_as_inferred(0);
    table.add("prod", SUMMED, prod).strided().output_as_inferred(0);
    table.add("mean", FLOATS, mean).strided();
    table.add("mean_all", FLOATS, mean_all).strided();
    table.add("max", COMPARED, max).strided();
    table.add("min", COMPARED, min).strided();
    table.add("amax", COMPARED, amax).strided();
    table.add("amin", COMPARED, amin).strided();
    table.add("any", ALL, any).strided().output(0, DType::Bool);
    table.add("all", ALL, all).strided().output(0, DType::Bool);
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
    let dtype = data_type.or(promoted(x.dtype()?))?;
    reduce(context, Reduction::Sum, &x, &dims, Some(dtype), &out)
}

fn promoted(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::I64 }
}

fn prod(context: &Context, x: Tensor, dims: IntArray, _keep: bool, all: bool, out: Output) -> Result<()> {
    let dtype = promoted(x.dtype()?);
    reduce(context, Reduction::Product, &x, axes_of(&dims, all), Some(dtype), &out)
}

fn mean(context: &Context, x: Tensor, dims: IntArray, _keep: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Mean, &x, &dims, None, &out)
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

fn squared_l2_norm(context: &Context, x: Tensor, out: Output) -> Result<()> {
    reduce(context, Reduction::SumOfSquares, &x, &[], None, &out)
}

fn frobenius_norm(context: &Context, x: Tensor, dims: IntArray, _keep: bool, all: bool, out: Output) -> Result<()> {
    reduce(context, Reduction::Norm, &x, axes_of(&dims, all), None, &out)
}
