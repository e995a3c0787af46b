//! Products: of vectors in space, of batches that are added to, of chains and powers of matrices, bilinear forms.

use super::compose::Compose;
use super::linear_algebra::product;
use super::movement::many;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::layout::axis_of;
use openmps_graph::operators::elementwise::{Binary, Elementwise, run};
use openmps_graph::operators::linear_algebra::{Algorithm, LinearAlgebra};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::sequence::Eye;
use openmps_tile::DType;
use openmps_tile::dtype::{FLOATS, NUMBERS};

const SINGLE: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("cross", NUMBERS, cross).strided();
    table.add("cross_grad", FLOATS, cross_grad).strided();
    table.add("baddbmm", FLOATS, baddbmm);
    table.add("baddbmm_grad", FLOATS, baddbmm_grad);
    table.add("multi_dot", FLOATS, multi_dot);
    table.add("multi_dot_grad", FLOATS, multi_dot_grad);
    table.add("matrix_power", SINGLE, matrix_power);
    table.add("matrix_power_grad", SINGLE, matrix_power_grad);
    table.add("kron", NUMBERS, kron);
    table.add("kron_grad", FLOATS, kron_grad);
    table.add("bilinear", SINGLE, bilinear);
    table.add("bilinear_grad", SINGLE, bilinear_grad);
}

/// The axis of vectors of three numbers: the one that is given, or the first; 9 stands for none.
fn vector_axis(x: &View, axis: i32) -> Result<usize> {
    let axis = match axis {
        9 => x.shape.iter().position(|&size| size == 3),
        axis => Some(axis_of("cross", axis.into(), x.rank())?).filter(|&axis| x.shape[axis] == 3),
    };
    axis.ok_or_else(|| refuse("axis", &x.shape, "an axis of size 3"))
}

/// The product of vectors along an axis: each number is the difference of two products of the other two.
fn cross_of(context: &Context, x: &View, y: &View, axis: usize, to: &View) -> Result<()> {
    let c = Compose::new(context);
    let part = |view: &View, number: usize| view.narrowed(axis, number % 3, 1, 1);
    for i in 0..3 {
        let plus = c.multiply(&part(x, i + 1), &part(y, i + 2))?;
        let minus = c.multiply(&part(x, i + 2), &part(y, i + 1))?;
        run(Elementwise::Binary(Binary::Subtract), context.queue(), &[&plus, &minus], &[], &part(to, i))?;
    }
    Ok(())
}

fn cross(context: &Context, x: Tensor, y: Tensor, axis: i32, out: Output) -> Result<()> {
    let (x, y) = (x.view()?, y.view()?);
    let axis = vector_axis(&x, axis)?;
    cross_of(context, &x, &y, axis, &context.allocate(&out, x.dtype)?)
}

fn cross_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    axis: i32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (x, y, upstream) = (x.view()?, y.view()?, upstream.view()?);
    let axis = vector_axis(&x, axis)?;
    if let Some(dx) = dx {
        cross_of(context, &y, &upstream, axis, &context.allocate(&dx, x.dtype)?)?;
    }
    match dy {
        Some(dy) => cross_of(context, &upstream, &x, axis, &context.allocate(&dy, x.dtype)?),
        None => Ok(()),
    }
}

/// `beta * input + alpha * x y`. What is multiplied by zero does not count, NaN neither, as in BLAS.
fn baddbmm(context: &Context, input: Tensor, x: Tensor, y: Tensor, beta: f32, alpha: f32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (input, x, y) = (c.input(&input)?, c.input(&x)?, c.input(&y)?);
    let added = if beta == 0.0 { c.constant(x.dtype, &[1], 0.0)? } else { c.scale(&input, beta.into(), 0.0)? };
    let value = if alpha == 0.0 {
        let dims = [x.shape[0], x.shape[1], y.shape[2]];
        c.constant(x.dtype, &dims, 0.0)?
    } else {
        c.scale(&product(&c, (&x, false), (&y, false))?, alpha.into(), 0.0)?
    };
    c.store(&out, dtype, Elementwise::Binary(Binary::Add), &[&added, &value], &[])
}

fn baddbmm_grad(
    context: &Context,
    input: Tensor,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    alpha: f32,
    beta: f32,
    dinput: Option<Output>,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, y, upstream) = (c.input(&x)?, c.input(&y)?, c.input(&upstream)?);
    let share = c.scale(&upstream, alpha.into(), 0.0)?;
    if let Some(dx) = dx {
        c.store_value(&dx, dtype, &product(&c, (&share, false), (&y, true))?)?;
    }
    if let Some(dy) = dy {
        c.store_value(&dy, dtype, &product(&c, (&x, true), (&share, false))?)?;
    }
    let Some(dinput) = dinput else { return Ok(()) };
    let share = c.scale(&upstream, beta.into(), 0.0)?;
    let dims = input.shape();
    c.store_value(&dinput, dtype, &if dims == share.shape { share } else { c.summed_to(&share, &dims)? })
}

/// The matrices of a chain; a vector at its beginning is a row, at its end a column.
fn chain(c: &Compose, x: &[Tensor]) -> Result<Vec<View>> {
    let last = x.len().saturating_sub(1);
    let matrix = |(at, tensor): (usize, &Tensor)| {
        let view = c.input(tensor)?;
        match view.shape[..] {
            [size] if at == 0 => c.shaped(&view, &[1, size]),
            [size] if at == last => c.shaped(&view, &[size, 1]),
            [_, _] => Ok(view),
            _ => Err(refuse("rank of x", view.rank(), "2, or 1 at the ends")),
        }
    };
    x.iter().enumerate().map(matrix).collect()
}

/// Products of a matrix with all before it.
fn products(c: &Compose, matrices: &[View]) -> Result<Vec<View>> {
    let mut result: Vec<View> = Vec::with_capacity(matrices.len());
    for matrix in matrices {
        let next = match result.last() {
            None => matrix.clone(),
            Some(before) => product(c, (before, false), (matrix, false))?,
        };
        result.push(next);
    }
    Ok(result)
}

fn multi_dot(context: &Context, x: Vec<Tensor>, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let Some(first) = x.first() else { return Ok(()) };
    let matrices = chain(&c, &x)?;
    let sizes: Vec<usize> = matrices.iter().map(|matrix| matrix.shape[0]).collect();
    let last = matrices.last().map(|matrix| matrix.shape[1]);
    let order = Order::of(&sizes.into_iter().chain(last).collect::<Vec<_>>());
    c.store_value(&out, first.dtype()?, &order.product(&c, &matrices, 0, matrices.len() - 1)?)
}

/// The order of a chain's products that needs the fewest multiplications (Godbole, 1973); the first of equals.
struct Order {
    count: usize,
    /// For the part from a matrix to another: behind which one it is cut.
    cuts: Vec<usize>,
}

impl Order {
    /// Of matrices of `sizes[i]` by `sizes[i + 1]`.
    fn of(sizes: &[usize]) -> Order {
        let count = sizes.len() - 1;
        let (mut costs, mut cuts) = (vec![0.0; count * count], vec![0; count * count]);
        for length in 1..count {
            for begin in 0..count - length {
                let end = begin + length;
                let outer = sizes[begin] as f64 * sizes[end + 1] as f64;
                let cost = |cut: usize, costs: &[f64]| {
                    costs[begin * count + cut] + costs[(cut + 1) * count + end] + outer * sizes[cut + 1] as f64
                };
                let (mut best, mut least) = (begin, cost(begin, &costs));
                for cut in begin + 1..end {
                    if cost(cut, &costs) < least {
                        (best, least) = (cut, cost(cut, &costs));
                    }
                }
                (costs[begin * count + end], cuts[begin * count + end]) = (least, best);
            }
        }
        Order { count, cuts }
    }

    fn product(&self, c: &Compose, matrices: &[View], begin: usize, end: usize) -> Result<View> {
        if begin == end {
            return Ok(matrices[begin].clone());
        }
        let cut = self.cuts[begin * self.count + end];
        let [left, right] = [self.product(c, matrices, begin, cut)?, self.product(c, matrices, cut + 1, end)?];
        product(c, (&left, false), (&right, false))
    }
}

/// The gradient of each matrix stands between the transposed products of those before and those after it.
fn multi_dot_grad(context: &Context, x: Vec<Tensor>, upstream: Tensor, dx: Vec<Option<Output>>) -> Result<()> {
    let c = Compose::new(context);
    let matrices = chain(&c, &x)?;
    let (Some(first), Some(last)) = (matrices.first(), matrices.last()) else { return Ok(()) };
    let before = products(&c, &matrices)?;
    let mut gradient = c.shaped(&c.input(&upstream)?, &[first.shape[0], last.shape[1]])?;
    for at in (0..matrices.len()).rev() {
        if let Some(Some(output)) = dx.get(at) {
            let value = match at.checked_sub(1) {
                Some(earlier) => product(&c, (&before[earlier], true), (&gradient, false))?,
                None => gradient.clone(),
            };
            c.store_value(output, x[at].dtype()?, &value)?;
        }
        gradient = product(&c, (&gradient, false), (&matrices[at], true))?;
    }
    Ok(())
}

/// Powers 0 to `count` of stacked matrices.
fn powers(c: &Compose, x: &View, count: usize) -> Result<Vec<View>> {
    let size = x.shape[x.rank() - 1];
    let unit = c.apply(&Eye { rows: size, columns: size, dtype: x.dtype }, &[])?;
    let first = c.temporary(x.dtype, &x.shape)?;
    c.launch(
        &openmps_graph::operators::copy::Copy,
        &[unit.broadcast_to(&x.shape).unwrap_or(unit)],
        std::slice::from_ref(&first),
    )?;
    let mut result = vec![first];
    for _ in 0..count {
        let next = product(c, (&result[result.len() - 1], false), (x, false))?;
        result.push(next);
    }
    Ok(result)
}

fn matrix_power(context: &Context, x: Tensor, exponent: i32, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let mut base = x.view()?;
    let dtype = base.dtype;
    if exponent < 0 {
        base = c.apply(&LinearAlgebra(Algorithm::Inverse), &[base])?;
    }
    // By squares.
    let (mut rest, mut result) = (exponent.unsigned_abs(), None::<View>);
    while rest > 0 {
        if rest % 2 == 1 {
            result = Some(match result {
                None => base.clone(),
                Some(before) => product(&c, (&before, false), (&base, false))?,
            });
        }
        rest /= 2;
        if rest > 0 {
            base = product(&c, (&base, false), (&base, false))?;
        }
    }
    let value = match result {
        Some(value) => value,
        None => powers(&c, &base, 0)?.remove(0),
    };
    c.store_value(&out, dtype, &value)
}

/// The sum over every place in `X X ... X` of the upstream gradient between the transposed factors around it.
fn matrix_power_grad(
    context: &Context,
    x: Tensor,
    _out: Tensor,
    upstream: Tensor,
    exponent: i32,
    dx: Output,
) -> Result<()> {
    let (c, x, upstream) = (Compose::new(context), x.view()?, upstream.view()?);
    let count = exponent.unsigned_abs() as usize;
    if count == 0 {
        return c.fill(&context.allocate(&dx, x.dtype)?, 0.0);
    }
    let base =
        if exponent < 0 { c.apply(&LinearAlgebra(Algorithm::Inverse), std::slice::from_ref(&x))? } else { x.clone() };
    let powers = powers(&c, &base, count - 1)?;
    let mut sum = None::<View>;
    for at in 0..count {
        let right = product(&c, (&upstream, false), (&powers[count - 1 - at], true))?;
        let term = product(&c, (&powers[at], true), (&right, false))?;
        sum = Some(match sum {
            None => term,
            Some(sum) => c.add(&sum, &term)?,
        });
    }
    let Some(mut sum) = sum else { return Ok(()) };
    if exponent < 0 {
        let right = product(&c, (&sum, false), (&base, true))?;
        sum = c.scale(&product(&c, (&base, true), (&right, false))?, -1.0, 0.0)?;
    }
    c.store_value(&dx, x.dtype, &sum)
}

/// The upstream gradient as (x, y, x, y, ..), multiplied with the other operand and summed over its dimensions.
/// Whose dimension it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factor {
    X,
    Y,
}

/// The dimensions of a Kronecker product before those of one size are brought together: x's and y's take turns. Those of size 1 are left out, and
/// neighbours of one factor are one dimension, so that there are few.
struct Turns(Vec<(usize, Factor)>);

impl Turns {
    fn new(x: &View, y: &View) -> Turns {
        let rank = x.rank().max(y.rank());
        let size = |view: &View, axis: usize| (axis + view.rank()).checked_sub(rank).map_or(1, |own| view.shape[own]);
        let mut turns: Vec<(usize, Factor)> = Vec::new();
        for (size, factor) in (0..rank).flat_map(|axis| [(size(x, axis), Factor::X), (size(y, axis), Factor::Y)]) {
            match turns.last_mut() {
                _ if size == 1 => {}
                Some((before, last)) if *last == factor => *before *= size,
                _ => turns.push((size, factor)),
            }
        }
        Turns(turns)
    }

    /// All sizes.
    fn dims(&self) -> Vec<usize> {
        self.0.iter().map(|&(size, _)| size).collect()
    }

    /// The sizes of a factor, which is repeated along the others.
    fn of(&self, factor: Factor) -> Vec<usize> {
        self.0.iter().map(|&(size, owner)| if owner == factor { size } else { 1 }).collect()
    }

    fn axes(&self, factor: Factor) -> Vec<i64> {
        (0..self.0.len()).filter(|&axis| self.0[axis].1 == factor).map(|axis| axis as i64).collect()
    }
}

/// Every element of x times the whole of y.
fn kron(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let (c, x, y) = (Compose::new(context), x.view()?, y.view()?);
    let turns = Turns::new(&x, &y);
    let (x, y) = (c.shaped(&x, &turns.of(Factor::X))?, c.shaped(&y, &turns.of(Factor::Y))?);
    c.store_value(&out, x.dtype, &c.multiply(&x, &y)?)
}

fn kron_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, y, upstream) = (c.input(&x)?, c.input(&y)?, c.input(&upstream)?);
    let turns = Turns::new(&x, &y);
    let upstream = c.shaped(&upstream, &turns.dims())?;
    for (out, other, factor) in [(&dx, &y, Factor::Y), (&dy, &x, Factor::X)] {
        let Some(out) = out else { continue };
        let weighed = c.multiply(&upstream, &c.shaped(other, &turns.of(factor))?)?;
        let axes = turns.axes(factor);
        let sum = if axes.is_empty() { weighed } else { c.reduce(Reduction::Sum, &weighed, &axes)? };
        c.store_value(out, dtype, &sum)?;
    }
    Ok(())
}

/// `x' W y` for each of the weight's matrices, of which there is one for each output.
fn bilinear(context: &Context, x: Tensor, y: Tensor, weight: Tensor, bias: Option<Tensor>, out: Output) -> Result<()> {
    let (c, x, y, weight) = (Compose::new(context), x.view()?, y.view()?, weight.view()?);
    let rows = c.shaped(&x, &[1, x.shape[0], x.shape[1]])?;
    let sides = product(&c, (&rows, false), (&weight, false))?;
    let sum = c.reduce(Reduction::Sum, &c.multiply(&sides, &y)?, &[-1])?;
    let sum = sum.without_axis(2).permuted(&[1, 0]);
    match bias {
        Some(bias) => {
            let bias = c.shaped(&bias.view()?, &[1, weight.shape[0]])?;
            c.store(&out, x.dtype, Elementwise::Binary(Binary::Add), &[&sum, &bias], &[])
        }
        None => {
            let to = c.place(&out, x.dtype)?;
            c.launch(&openmps_graph::operators::copy::Copy, &[sum], &[to])
        }
    }
}

fn bilinear_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
    dweight: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let (c, x, y, weight, upstream) = (Compose::new(context), x.view()?, y.view()?, weight.view()?, upstream.view()?);
    let (batch, outputs) = (x.shape[0], weight.shape[0]);
    let shares = View::strided(upstream.address, upstream.dtype, &[outputs, batch, 1], &[1, outputs as isize, 1])?;
    let single = |view: &View| c.shaped(view, &[1, view.shape[0], view.shape[1]]);
    let side = |other: &View, transposed: bool, out: &Output| {
        let sides = product(&c, (&single(other)?, false), (&weight, transposed))?;
        c.store_value(out, x.dtype, &c.reduce(Reduction::Sum, &c.multiply(&sides, &shares)?, &[0])?)
    };
    if let Some(dx) = &dx {
        side(&y, true, dx)?;
    }
    if let Some(dy) = &dy {
        side(&x, false, dy)?;
    }
    if let Some(dweight) = &dweight {
        let weighed = c.multiply(&single(&x)?, &shares)?;
        many(
            context,
            &openmps_graph::operators::matmul::Matmul { transpose_left: true, transpose_right: false },
            &[weighed, single(&y)?],
            &[Some(dweight)],
        )?;
    }
    match &dbias {
        Some(dbias) => c.store_value(dbias, x.dtype, &c.reduce(Reduction::Sum, &upstream, &[0])?),
        None => Ok(()),
    }
}
