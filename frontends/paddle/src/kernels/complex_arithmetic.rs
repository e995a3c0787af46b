//! Arithmetic of complex numbers, as formulas over their real and imaginary parts: what layers in Fourier space train with.

use super::complex::{allocate_pairs, pairs, real_and_imaginary};
use super::compose::Compose;
use super::linear_algebra::product;
use super::matmul::with_axis;
use super::reduction_gradient::{axes, kept};
use crate::dtype::DataType;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Scalar, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary, run};
use openmps_graph::operators::expand::Expand;
use openmps_graph::operators::pad::{Mode, Pad, PadGradient};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::roll::Roll;
use openmps_graph::operators::rope::Rope;
use openmps_graph::{DType, Operator, Shape, View};
use openmps_tile::Number;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add_complex("add", add).strided();
    table.add_complex("subtract", subtract).strided();
    table.add_complex("multiply", multiply).strided();
    table.add_complex("divide", divide).strided();
    table.add_complex("add_grad", add_grad).strided();
    table.add_complex("subtract_grad", subtract_grad).strided();
    table.add_complex("multiply_grad", multiply_grad).strided();
    table.add_complex("divide_grad", divide_grad).strided();
    table.add_complex("scale", scale).strided();
    table.add_complex("cast", cast).strided().output_as_inferred(0);
    table.add_complex("sum", sum).strided().output_as_inferred(0);
    table.add_complex("sum_grad", sum_grad);
    table.add_complex("matmul", matmul).strided();
    table.add_complex("matmul_grad", matmul_grad).strided();
    table.add_complex("pad", pad).strided();
    table.add_complex("pad_grad", pad_grad).strided();
    table.add_complex("roll", roll).strided();
    table.add_complex("roll_grad", roll_grad).strided();
}

/// The parts of a product, of the parts of both factors.
const PRODUCT: [Elementwise; 2] =
    [Elementwise::Binary(Binary::ProductsDifference), Elementwise::Binary(Binary::ProductsSum)];

/// Stores the products of dense numbers with a dense row of them, repeated, or with as many, or with their conjugates; false where it does not, as the
/// factors are repeated in another way or have gaps, or the result would overwrite them.
///
/// A product with a complex number turns a pair by an angle, with cosine and sine of any length.
fn turned(context: &Context, x: &View, by: &View, conjugate: bool, to: &View) -> Result<bool> {
    /// So long that a row is worth its beginning, so short that threads share them.
    const LENGTH: usize = 1024;
    let leading_ones = by.shape.iter().take_while(|&&size| size == 1).count();
    let is_repeated = x.shape.ends_with(&by.shape[leading_ones..]) && by.rank() <= x.rank();
    let (numbers, own) = (x.len() / 2, by.len() / 2);
    let is_apart = ![x.address, by.address].contains(&to.address);
    if !is_repeated || own < 2 || x.shape != to.shape || ![x, by, to].into_iter().all(View::is_dense) || !is_apart {
        return Ok(false);
    }
    let length = if own == numbers && numbers.is_multiple_of(LENGTH) { LENGTH } else { own };
    let rows = numbers / length;
    let step = if own == numbers { 2 * length as isize } else { 0 };
    let [x, to] = [x, to].map(|view| View::dense(view.address, view.dtype, &[1, 1, rows, 2 * length]));
    let [real, imaginary] =
        real_and_imaginary(&View::strided(by.address, by.dtype, &[rows, length, 2], &[step, 2, 1])?);
    let product = Rope { interleaved: true, inverse: conjugate };
    product.run(context.queue(), &[x?, real, imaginary], &[to?])?;
    Ok(true)
}

/// Complex numbers by their parts.
#[derive(Clone)]
pub(super) struct Complex {
    pub real: View,
    pub imaginary: View,
}

impl Complex {
    pub fn of(x: &Tensor) -> Result<Complex> {
        Ok(Complex::of_pairs(&pairs(x)?))
    }

    fn of_pairs(pairs: &View) -> Complex {
        let [real, imaginary] = real_and_imaginary(pairs);
        Complex { real, imaginary }
    }

    /// The result of a formula for each part.
    pub fn made(&self, mut formula: impl FnMut(&View) -> Result<View>) -> Result<Complex> {
        Ok(Complex { real: formula(&self.real)?, imaginary: formula(&self.imaginary)? })
    }

    pub fn conjugate(&self, c: &Compose) -> Result<Complex> {
        Ok(Complex { real: self.real.clone(), imaginary: c.scale(&self.imaginary, -1.0, 0.0)? })
    }

    pub fn minus(&self, c: &Compose, other: &Complex) -> Result<Complex> {
        let (real, imaginary) = (c.subtract(&self.real, &other.real)?, c.subtract(&self.imaginary, &other.imaginary)?);
        Ok(Complex { real, imaginary })
    }

    /// The product, by what the product of two real tensors is.
    pub fn product(
        &self,
        c: &Compose,
        other: &Complex,
        multiply: impl Fn(&View, &View) -> Result<View>,
    ) -> Result<Complex> {
        let (x, y) = (self, other);
        let real = c.subtract(&multiply(&x.real, &y.real)?, &multiply(&x.imaginary, &y.imaginary)?)?;
        let imaginary = c.add(&multiply(&x.real, &y.imaginary)?, &multiply(&x.imaginary, &y.real)?)?;
        Ok(Complex { real, imaginary })
    }

    /// The product, element by element.
    pub fn times(&self, c: &Compose, other: &Complex) -> Result<Complex> {
        let four = [&self.real, &self.imaginary, &other.real, &other.imaginary];
        let [real, imaginary] = PRODUCT.map(|part| c.map(part, &four, &[]));
        Ok(Complex { real: real?, imaginary: imaginary? })
    }

    /// The quotient; the divisor is made smaller by its larger part, so that no square overflows (Smith, 1962).
    pub fn over(&self, c: &Compose, other: &Complex) -> Result<Complex> {
        let map = |operator, inputs: &[&View]| c.map(Elementwise::Binary(operator), inputs, &[]);
        let sizes = other.made(|part| c.map(Elementwise::Unary(Unary::Abs), &[part], &[]))?;
        let largest = map(Binary::Maximum, &[&sizes.real, &sizes.imaginary])?;
        // What is infinite is as large as the largest part; a finite number over it is zero.
        let smaller = other.made(|part| {
            let sign = c.map(Elementwise::Unary(Unary::Sign), &[part], &[])?;
            map(Binary::Where, &[&is_infinite(c, part)?, &sign, &map(Binary::Divide, &[part, &largest])?])
        })?;
        let square =
            c.add(&c.multiply(&smaller.real, &smaller.real)?, &c.multiply(&smaller.imaginary, &smaller.imaginary)?)?;
        let whole = c.multiply(&square, &largest)?;
        self.times(c, &smaller.conjugate(c)?)?.made(|part| map(Binary::Divide, &[part, &whole]))
    }

    /// The sum over what was repeated, in an output that may be unwanted.
    pub fn store(&self, context: &Context, c: &Compose, out: Option<&Output>) -> Result<()> {
        let Some(out) = out else { return Ok(()) };
        self.store_to(c, &allocate_pairs(context, out, self.real.dtype)?)
    }

    fn store_to(&self, c: &Compose, to: &View) -> Result<()> {
        for (part, to) in [&self.real, &self.imaginary].into_iter().zip(real_and_imaginary(to)) {
            let dims: Shape = to.shape.clone();
            let value = match part {
                part if part.shape == dims => part.clone(),
                // Reduced axes are dropped.
                part if part.len() == to.len() => c.shaped(part, &dims)?,
                part => c.summed_to(part, &dims)?,
            };
            c.launch(&Copy, &[value], &[to])?;
        }
        Ok(())
    }
}

/// An operator of real numbers for both parts: pairs broadcast as what they are pairs of.
fn by_parts(context: &Context, operator: Binary, x: &Tensor, y: &Tensor, out: &Output) -> Result<()> {
    let (x, y) = (pairs(x)?, pairs(y)?);
    let to = allocate_pairs(context, out, x.dtype)?;
    Ok(run(Elementwise::Binary(operator), context.queue(), &[&x, &y], &[], &to)?)
}

fn add(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    by_parts(context, Binary::Add, &x, &y, &out)
}

fn subtract(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    by_parts(context, Binary::Subtract, &x, &y, &out)
}

fn multiply(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let (x, y) = (pairs(&x)?, pairs(&y)?);
    let to = allocate_pairs(context, &out, x.dtype)?;
    let (c, [of_x, of_y]) = (Compose::new(context), [&x, &y].map(Complex::of_pairs));
    if [x.address, y.address].contains(&to.address) {
        // Each part is of both parts of the factors, one of which is where the first result would go.
        return of_x.times(&c, &of_y)?.store_to(&c, &to);
    }
    if turned(context, &x, &y, false, &to)? || turned(context, &y, &x, false, &to)? {
        return Ok(());
    }
    let four = [&of_x.real, &of_x.imaginary, &of_y.real, &of_y.imaginary];
    for (part, to) in PRODUCT.into_iter().zip(real_and_imaginary(&to)) {
        run(part, context.queue(), &four, &[], &to)?;
    }
    Ok(())
}

fn divide(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let c = Compose::new(context);
    Complex::of(&x)?.over(&c, &Complex::of(&y)?)?.store(context, &c, Some(&out))
}

fn add_grad(
    context: &Context,
    _x: Tensor,
    _y: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, upstream) = (Compose::new(context), Complex::of(&upstream)?);
    // Paddle may give dx the memory of the upstream gradient: it is written last.
    upstream.store(context, &c, dy.as_ref())?;
    upstream.store(context, &c, dx.as_ref())
}

fn subtract_grad(
    context: &Context,
    _x: Tensor,
    _y: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, upstream) = (Compose::new(context), Complex::of(&upstream)?);
    upstream.made(|part| c.scale(part, -1.0, 0.0))?.store(context, &c, dy.as_ref())?;
    upstream.store(context, &c, dx.as_ref())
}

fn multiply_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, upstream) = (Compose::new(context), pairs(&upstream)?);
    let (x, y) = (pairs(&x)?, pairs(&y)?);
    // Paddle may give dx the memory of the upstream gradient: it is written last.
    for (other, out) in [(x, dy), (y, dx)] {
        let Some(out) = out else { continue };
        let to = allocate_pairs(context, &out, upstream.dtype)?;
        if !turned(context, &upstream, &other, true, &to)? {
            let conjugate = Complex::of_pairs(&other).conjugate(&c)?;
            Complex::of_pairs(&upstream).times(&c, &conjugate)?.store_to(&c, &to)?;
        }
    }
    Ok(())
}

/// By x it is the upstream gradient over the conjugate of y, by y minus that times the conjugate of the quotient.
fn divide_grad(
    context: &Context,
    _x: Tensor,
    y: Tensor,
    out: Tensor,
    upstream: Tensor,
    _axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, upstream) = (Compose::new(context), Complex::of(&upstream)?);
    let of_x = upstream.over(&c, &Complex::of(&y)?.conjugate(&c)?)?;
    let of_y = of_x.times(&c, &Complex::of(&out)?.conjugate(&c)?)?;
    of_y.made(|part| c.scale(part, -1.0, 0.0))?.store(context, &c, dy.as_ref())?;
    of_x.store(context, &c, dx.as_ref())
}

/// By a real number, which is added to the real parts.
fn scale(context: &Context, x: Tensor, factor: Scalar, bias: Scalar, bias_last: bool, out: Output) -> Result<()> {
    let (c, factor) = (Compose::new(context), factor.f64());
    let bias = if bias_last { bias.f64() } else { bias.f64() * factor };
    if bias == 0.0 {
        let (x, numbers) = (pairs(&x)?, [factor, 0.0].map(Number::Float));
        let to = allocate_pairs(context, &out, x.dtype)?;
        return Ok(run(Elementwise::Unary(Unary::Scale), context.queue(), &[&x], &numbers, &to)?);
    }
    let x = Complex::of(&x)?;
    let scaled = Complex { real: c.scale(&x.real, factor, bias)?, imaginary: c.scale(&x.imaginary, factor, 0.0)? };
    scaled.store(context, &c, Some(&out))
}

/// To complex numbers of another width, or to the real parts.
pub(super) fn cast(context: &Context, x: Tensor, data_type: DataType, out: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), Complex::of(&x)?);
    if data_type.is_complex() {
        let part = if data_type.size() == 16 { DType::F64 } else { DType::F32 };
        return x.made(|view| c.cast(view, part))?.store(context, &c, Some(&out));
    }
    let dtype = data_type.dtype()?;
    if dtype == DType::Bool {
        let [real, imaginary] = [c.cast(&x.real, dtype)?, c.cast(&x.imaginary, dtype)?];
        let is_any = c.map(Elementwise::Binary(Binary::LogicalOr), &[&real, &imaginary], &[])?;
        return c.store_value(&out, dtype, &is_any);
    }
    c.store_value(&out, dtype, &x.real)
}

/// Real numbers as complex ones.
pub(super) fn cast_real(context: &Context, x: &View, data_type: DataType, out: &Output) -> Result<()> {
    let c = Compose::new(context);
    let part = if data_type.size() == 16 { DType::F64 } else { DType::F32 };
    let real = c.cast(x, part)?;
    let imaginary = c.constant(part, &real.shape, 0.0)?;
    Complex { real, imaginary }.store(context, &c, Some(out))
}

fn sum(context: &Context, x: Tensor, dims: IntArray, _: DataType, _keep: bool, out: Output) -> Result<()> {
    let c = Compose::new(context);
    Complex::of(&x)?.made(|part| c.reduce(Reduction::Sum, part, &dims))?.store(context, &c, Some(&out))
}

fn sum_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    let (c, shape) = (Compose::new(context), x.shape());
    let repeated = Expand { dims: shape.iter().map(|&size| size as i64).collect() };
    let spread = |part: &View| {
        let dense = c.temporary(part.dtype, &part.shape)?;
        c.launch(&Copy, std::slice::from_ref(part), std::slice::from_ref(&dense))?;
        c.apply(&repeated, &[kept(&c, &dense, &shape, &axes(shape.len(), &dims, all))?])
    };
    Complex::of(&upstream)?.made(spread)?.store(context, &c, Some(&dx))
}

fn matmul(context: &Context, x: Tensor, y: Tensor, left: bool, right: bool, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let of = |x: &View, y: &View| product(&c, (x, left), (y, right));
    Complex::of(&x)?.product(&c, &Complex::of(&y)?, of)?.store(context, &c, Some(&out))
}

/// As of real matrices, with the other factor's conjugate.
fn matmul_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    left: bool,
    right: bool,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let c = Compose::new(context);
    let (mut x, mut y, mut upstream) = (Complex::of(&x)?, Complex::of(&y)?, Complex::of(&upstream)?);
    let (mut left, mut right) = (left, right);
    // Vectors as matrices: a row on the left, a column on the right.
    let are_vectors = [&x, &y].map(|x| x.real.rank() == 1);
    if y.real.rank() == 1 {
        (y, right) = (y.made(|part| with_axis(part, 1))?, false);
        upstream = upstream.made(|part| with_axis(part, part.rank()))?;
    }
    if x.real.rank() == 1 {
        (x, left) = (x.made(|part| with_axis(part, 0))?, false);
        upstream = upstream.made(|part| with_axis(part, part.rank() - 1))?;
    }
    let (x, y) = (x.conjugate(&c)?, y.conjugate(&c)?);
    let of = |first: &Complex, flip_first, second: &Complex, flip_second| {
        first.product(&c, second, |x, y| product(&c, (x, flip_first), (y, flip_second)))
    };
    let of_x = if left { of(&y, right, &upstream, true) } else { of(&upstream, false, &y, !right) }?;
    let of_y = if right { of(&upstream, true, &x, left) } else { of(&x, !left, &upstream, false) }?;
    let without = |x: &Complex, from_end: usize| x.made(|part| Ok(part.without_axis(part.rank() - from_end)));
    let of_x = if are_vectors[0] { without(&of_x, 2)? } else { of_x };
    let of_y = if are_vectors[1] { without(&of_y, 1)? } else { of_y };
    of_x.store(context, &c, dx.as_ref())?;
    of_y.store(context, &c, dy.as_ref())
}

/// Runs an operator that moves elements along axes before the last one of the pairs.
fn moved(context: &Context, operator: &dyn Operator, x: &Tensor, out: &Output) -> Result<()> {
    let x = pairs(x)?;
    Ok(operator.run(context.queue(), std::slice::from_ref(&x), &[allocate_pairs(context, out, x.dtype)?])?)
}

/// A number before and behind, along the axes of one part or, with one axis more, of pairs, which stay themselves.
fn constant_pad(paddings: &[i32], value: f64, own: Option<(i64, i64)>) -> Pad {
    let paddings = paddings.chunks_exact(2).map(|pair| (pair[0].into(), pair[1].into())).chain(own).collect();
    Pad { paddings, mode: Mode::Constant, value: Number::Float(value) }
}

fn zero_pad(paddings: &[i32]) -> Pad {
    constant_pad(paddings, 0.0, Some((0, 0)))
}

fn pad(context: &Context, x: Tensor, paddings: Vec<i32>, value: Scalar, out: Output) -> Result<()> {
    let (real, imaginary) = value.complex();
    if real == 0.0 && imaginary == 0.0 {
        return moved(context, &zero_pad(&paddings), &x, &out);
    }
    let (c, x) = (Compose::new(context), Complex::of(&x)?);
    let padded = |part: View, value| c.apply(&constant_pad(&paddings, value, None), &[part]);
    let padded = Complex { real: padded(x.real, real)?, imaginary: padded(x.imaginary, imaginary)? };
    padded.store(context, &c, Some(&out))
}

fn pad_grad(context: &Context, upstream: Tensor, paddings: Vec<i32>, _value: Scalar, dx: Output) -> Result<()> {
    moved(context, &PadGradient { pad: zero_pad(&paddings) }, &upstream, &dx)
}

fn rolled(context: &Context, x: &Tensor, shifts: Vec<i64>, axes: &[i64], out: &Output) -> Result<()> {
    let rank = x.shape().len() as i64;
    if axes.is_empty() {
        let (c, x) = (Compose::new(context), pairs(x)?);
        let (to, flat) = (allocate_pairs(context, out, x.dtype)?, [x.len() / 2, 2]);
        let to = View::dense(to.address, to.dtype, &flat)?;
        return c.launch(&Roll { shifts, axes: vec![0] }, &[c.shaped(&x, &flat)?], &[to]);
    }
    if let Some(axis) = axes.iter().find(|axis| !(-rank..rank).contains(axis)) {
        return Err(refuse("axis", axis, &format!("an axis of {rank} dimensions")));
    }
    moved(context, &Roll { shifts, axes: axes.iter().map(|axis| axis.rem_euclid(rank)).collect() }, x, out)
}

fn roll(context: &Context, x: Tensor, shifts: IntArray, axes: Vec<i64>, out: Output) -> Result<()> {
    rolled(context, &x, shifts.to_vec(), &axes, &out)
}

fn roll_grad(
    context: &Context,
    _x: Tensor,
    upstream: Tensor,
    shifts: IntArray,
    axes: Vec<i64>,
    dx: Output,
) -> Result<()> {
    rolled(context, &upstream, shifts.iter().map(|shift| -shift).collect(), &axes, &dx)
}

pub(super) fn is_infinite(c: &Compose, x: &View) -> Result<View> {
    c.map(Elementwise::Unary(Unary::IsInf), &[x], &[])
}
