//! Elementwise kernels that are more than their operator: quotients, scale, cast, sums of many. The others are made in `formula.rs`.

use super::complex_arithmetic::{self, cast_real};
use super::compose::Compose;
use crate::error::{Error, Result};
use crate::handler::Handler;
use crate::table::Table;
use crate::{Context, DataType, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary, run};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::dtype::{FLOATS, NUMBERS};
use openmps_tile::{DType, Number};

/// Computes `operator`, whose output has the type that follows from the inputs', into a new tensor.
pub(super) fn compute(
    context: &Context,
    operator: Elementwise,
    inputs: &[&View],
    numbers: &[Number],
    out: &Output,
) -> Result<()> {
    let dtypes: arrayvec::ArrayVec<DType, 4> = inputs.iter().map(|view| view.dtype).collect();
    let dtype = match operator.row().output_dtype(&dtypes) {
        Some(dtype) => dtype,
        None => out.dtype()?,
    };
    compute_as(context, operator, inputs, numbers, (out, dtype))
}

/// As [`compute`], into a result of this type.
fn compute_as(
    context: &Context,
    operator: Elementwise,
    inputs: &[&View],
    numbers: &[Number],
    (out, dtype): (&Output, DType),
) -> Result<()> {
    let view = context.allocate(out, dtype)?;
    // In place into another element type (`cast_`, `less_than_`) the result has the memory of an input, whose elements lie elsewhere in it.
    let lies_elsewhere = |input: &&View| {
        input.address == view.address && (input.dtype.size() != dtype.size() || input.strides != view.strides)
    };
    if !inputs.iter().any(lies_elsewhere) {
        run(operator, context.queue(), inputs, numbers, &view)?;
        return Ok(());
    }
    let value = Compose::new(context).temporary(dtype, &view.shape)?;
    run(operator, context.queue(), inputs, numbers, &value)?;
    run(Elementwise::Unary(Unary::Cast), context.queue(), &[&value], &[], &view)?;
    Ok(())
}

/// Adds a kernel that reads strides and whose output's type follows from its operator's row.
pub(super) fn insert<Arguments, H: Handler<Arguments>>(
    table: &mut Table,
    name: &'static str,
    operator: Elementwise,
    handler: H,
) {
    let row = table.add(name, operator.row().dtypes, handler).strided();
    if operator.row().output_dtype(&[DType::I32; 3]) != Some(DType::I32) {
        row.output_as_inferred(0);
    }
}

/// Quotients: no integer is divided by zero.
mod quotient {
    use super::{Binary, Context, Elementwise, Output, Result, Table, Tensor, compute, insert, refuse_zero};

    macro_rules! quotients {
        ($($function:ident $name:literal $member:ident)*) => {
            $(fn $function(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
                let (x, y) = (x.view()?, y.view()?);
                refuse_zero(context, &x, &y)?;
                compute(context, Elementwise::Binary(Binary::$member), &[&x, &y], &[], &out)
            })*

            pub(super) fn register(table: &mut Table) {
                $(insert(table, $name, Elementwise::Binary(Binary::$member), $function);)*
            }
        };
    }
    quotients! {
        divide "divide" Divide
        floor_divide "floor_divide" FloorDivide
        remainder "remainder" Remainder
    }
}

/// Refuses integers that would be divided by zero: of floats the quotient is infinite or NaN, of integers there is none.
pub(super) fn refuse_zero(context: &Context, x: &View, y: &View) -> Result<()> {
    if y.dtype.is_float() || x.is_empty() || y.is_empty() {
        return Ok(());
    }
    let none_is_zero = Compose::new(context).reduce(Reduction::All, y, &[])?;
    if context.bytes(&none_is_zero)? == [0] {
        let expected = "no zero: integers have no quotient by zero".to_owned();
        return Err(Error::Attribute { attribute: "divisor", got: "a tensor with 0".to_owned(), expected });
    }
    Ok(())
}

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("add_n", NUMBERS, add_n);
    table.add("atan2", FLOATS, atan2).strided();
    table.add("atan2", &[DType::I32, DType::I64], atan2_of_integers).strided().output(0, DType::F64);
    quotient::register(table);
    table.add("scale", openmps_tile::dtype::ALL, scale).strided();
    table.add("div_scale", openmps_tile::dtype::FLOATS, div_scale).strided();
    table.add("masked_fill", openmps_tile::dtype::ALL, masked_fill).strided();
    table.add("cast", openmps_tile::dtype::ALL, cast).strided().output_as_inferred(0);
}

/// The number as a kernel computing for `dtype` takes it: exact for integers.
pub(super) fn number(scalar: &Scalar, dtype: DType) -> Number {
    if dtype.is_float() { Number::Float(scalar.f64()) } else { Number::Integer(scalar.i64()) }
}

fn scale(context: &Context, x: Tensor, scale: Scalar, bias: Scalar, bias_after_scale: bool, out: Output) -> Result<()> {
    let x = x.view()?;
    if x.dtype == DType::Bool {
        let c = Compose::new(context);
        let bias = if bias_after_scale { bias.f64() } else { bias.f64() * scale.f64() };
        let scaled = c.scale(&c.cast(&x, DType::F32)?, scale.f64(), bias)?;
        return c.store_value(&out, DType::Bool, &scaled);
    }
    if !bias_after_scale && x.dtype.is_float() {
        // Multiplied out, sums near zero would lose their digits.
        let c = Compose::new(context);
        let sum = c.scale(&c.cast(&x, x.dtype.compute())?, 1.0, bias.f64())?;
        return c.store(&out, x.dtype, Elementwise::Unary(Unary::Scale), &[&sum], &[scale.f64(), 0.0]);
    }
    let (scale, bias) = (number(&scale, x.dtype), number(&bias, x.dtype));
    let bias = match (bias_after_scale, bias, scale) {
        (true, bias, _) => bias,
        (false, Number::Integer(bias), Number::Integer(scale)) => Number::Integer(bias.wrapping_mul(scale)),
        (false, bias, scale) => Number::Float(float(bias) * float(scale)),
    };
    compute(context, Elementwise::Unary(Unary::Scale), &[&x], &[scale, bias], &out)
}

fn div_scale(context: &Context, x: Tensor, divisor: Scalar, out: Output) -> Result<()> {
    let factors = [Number::Float(1.0 / divisor.f64()), Number::Float(0.0)];
    compute(context, Elementwise::Unary(Unary::Scale), &[&x.view()?], &factors, &out)
}

fn masked_fill(context: &Context, x: Tensor, mask: Tensor, value: Tensor, out: Output) -> Result<()> {
    let operands = [&mask.view()?, &value.view()?, &x.view()?];
    compute(context, Elementwise::Binary(Binary::Where), &operands, &[], &out)
}

fn float(number: Number) -> f64 {
    match number {
        Number::Integer(value) => value as f64,
        Number::Float(value) => value,
    }
}

fn cast(context: &Context, x: Tensor, data_type: DataType, out: Output) -> Result<()> {
    // A static program takes the kernel of the type that it declares, and is fed what it is fed.
    if x.data_type().is_complex() {
        return complex_arithmetic::cast(context, x, data_type, out);
    }
    if data_type.is_complex() {
        return cast_real(context, &x.view()?, data_type, &out);
    }
    compute_as(context, Elementwise::Unary(Unary::Cast), &[&x.view()?], &[], (&out, data_type.dtype()?))
}

const ATAN2: Elementwise = Elementwise::Binary(Binary::Atan2);

fn atan2(context: &Context, y: Tensor, x: Tensor, out: Output) -> Result<()> {
    compute(context, ATAN2, &[&y.view()?, &x.view()?], &[], &out)
}

/// The angle between integers is a float64 in Paddle.
fn atan2_of_integers(context: &Context, y: Tensor, x: Tensor, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let [y, x] = [c.cast(&y.view()?, DType::F64)?, c.cast(&x.view()?, DType::F64)?];
    compute(context, ATAN2, &[&y, &x], &[], &out)
}

/// The sum of tensors of one shape. Sums on the way are not rounded to a half type.
fn add_n(context: &Context, x: Vec<Tensor>, out: Output) -> Result<()> {
    const ADD: Elementwise = Elementwise::Binary(Binary::Add);
    let c = Compose::new(context);
    let Some(first) = x.first() else { return Ok(()) };
    let dtype = first.dtype()?;
    // Tensors without elements do not count.
    let counted = x.iter().filter(|x| !x.shape().contains(&0));
    let views = counted.map(|x| c.input(x)).collect::<Result<Vec<_>>>()?;
    let (sum, last) = match &views[..] {
        [] => return c.place(&out, dtype).map(|_| ()),
        [only] => return c.store_value(&out, dtype, only),
        [first, middle @ .., last] => {
            (middle.iter().try_fold(first.clone(), |sum, view| c.map(ADD, &[&sum, view], &[]))?, last)
        }
    };
    // Paddle may give the output the memory of the first input, which is read up to here.
    c.store(&out, dtype, ADD, &[&sum, last], &[])
}
