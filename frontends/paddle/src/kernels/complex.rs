//! Complex numbers as pairs of floats: made, taken apart and conjugated.

use super::compose::Compose;
use crate::dtype::DataType;
use crate::error::Result;
use crate::table::Table;
use crate::tensor::double;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary, broadcast, run};
use openmps_graph::{DType, Operator, View};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add_every("conj", conjugate).strided();
    table.add("complex", &[DType::F32, DType::F64], complex).strided().output_as_inferred(0);
    table.add("complex_grad", &[DType::F32, DType::F64], complex_grad);
}

/// The float type of the parts of complex numbers of this type.
fn part(data_type: DataType) -> DType {
    if data_type.size() == 8 { DType::F32 } else { DType::F64 }
}

/// The numbers' real and imaginary parts, where pairs of floats lie in memory with these strides, counted in pairs.
fn parts(pairs: &View, dtype: DType) -> Result<[View; 2]> {
    let dims = &pairs.shape;
    let strides: Vec<isize> = pairs.strides.iter().map(|stride| 2 * stride).collect();
    let real = View::strided(pairs.address, dtype, dims, &strides)?;
    let imaginary = View::strided(pairs.address + dtype.size(), dtype, dims, &strides)?;
    Ok([real, imaginary])
}

/// A complex tensor as real numbers with a last dimension of 2.
pub(super) fn pairs(x: &Tensor) -> Result<View> {
    of_floats(x.bytes_view()?, x.data_type())
}

/// The real and the imaginary numbers of pairs.
pub(super) fn real_and_imaginary(pairs: &View) -> [View; 2] {
    [0, 1].map(|part| pairs.narrowed(pairs.rank() - 1, part, 1, 1).without_axis(pairs.rank() - 1))
}

/// As [`pairs`], the memory of a result.
pub(super) fn allocate_pairs(context: &Context, out: &Output, parts: DType) -> Result<View> {
    let data_type = DataType(if parts == DType::F64 { 13 } else { 12 });
    of_floats(context.allocate_bytes(out, data_type)?, data_type)
}

fn of_floats(mut bytes: View, data_type: DataType) -> Result<View> {
    if data_type.size() == 8 {
        double(&mut bytes)?;
    }
    Ok(View { dtype: part(data_type), ..bytes })
}

/// A view in steps of whole numbers: of 16 bytes it is shown as two numbers of 8.
fn whole(mut view: View, data_type: DataType) -> View {
    if data_type.size() == 16 {
        view.shape.pop();
        view.strides.pop();
        view.strides.iter_mut().for_each(|stride| *stride /= 2);
    }
    view
}

fn conjugate(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let data_type = x.data_type();
    let (from, to) = (x.bytes_view()?, context.allocate_bytes(&out, data_type)?);
    if !data_type.is_complex() {
        return Ok(Copy.run(context.queue(), &[from], &[to])?);
    }
    let dtype = part(data_type);
    if data_type.size() == 8 {
        // The sign of the imaginary part is the highest bit of both.
        let c = Compose::new(context);
        let sign = c.constant(DType::I64, &[1], i64::MIN as f64)?;
        let [from, to] = [from, to].map(|view| View { dtype: DType::I64, ..view });
        return Ok(run(Elementwise::Binary(Binary::BitwiseXor), context.queue(), &[&from, &sign], &[], &to)?);
    }
    let [real, imaginary] = parts(&whole(from, data_type), dtype)?;
    let [to_real, to_imaginary] = parts(&whole(to, data_type), dtype)?;
    Copy.run(context.queue(), &[real], &[to_real])?;
    Ok(run(Elementwise::Unary(Unary::Negate), context.queue(), &[&imaginary], &[], &to_imaginary)?)
}

/// Of two tensors that broadcast.
fn complex(context: &Context, real: Tensor, imaginary: Tensor, out: Output) -> Result<()> {
    let (real, imaginary) = (real.view()?, imaginary.view()?);
    let dims = broadcast("complex", &real.shape, &imaginary.shape)?;
    let repeated = |view: View| view.broadcast_to(&dims).unwrap_or(view);
    let data_type = DataType(if real.dtype == DType::F32 { 12 } else { 13 });
    let to = context.allocate_bytes(&out, data_type)?;
    let [to_real, to_imaginary] = parts(&whole(to, data_type), real.dtype)?;
    Copy.run(context.queue(), &[repeated(real)], &[to_real])?;
    Ok(Copy.run(context.queue(), &[repeated(imaginary)], &[to_imaginary])?)
}

/// The parts of what comes from above, summed over what was repeated.
fn complex_grad(
    context: &Context,
    real: Tensor,
    imaginary: Tensor,
    upstream: Tensor,
    dreal: Option<Output>,
    dimaginary: Option<Output>,
) -> Result<()> {
    let (c, data_type) = (Compose::new(context), upstream.data_type());
    let from = parts(&whole(upstream.bytes_view()?, data_type), part(data_type))?;
    for ((input, from), out) in [real, imaginary].iter().zip(from).zip([dreal, dimaginary]) {
        let Some(out) = out else { continue };
        let dense = c.temporary(from.dtype, &from.shape)?;
        c.launch(&Copy, &[from], std::slice::from_ref(&dense))?;
        c.store_value(&out, dense.dtype, &c.summed_to(&dense, &input.shape())?)?;
    }
    Ok(())
}
