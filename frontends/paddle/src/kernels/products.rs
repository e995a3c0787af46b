//! Products: of vectors in space, of batches that are added to, of chains and powers of matrices, bilinear forms.

use super::compose::Compose;
use super::linear_algebra::product;
use super::recorded::Recorded;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::gradient::{Node, Recorder};
use openmps_graph::layout::axis_of;
use openmps_graph::operators::elementwise::{Binary, Elementwise, run};
use openmps_graph::operators::linear_algebra::{Algorithm, LinearAlgebra};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::sequence::Eye;
use openmps_graph::operators::words::Transposed::No;
use openmps_graph::operators::words::Words;
use openmps_graph::{Meta, View};
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

/// The matrices of a chain, and their product; a vector at its beginning is a row, at its end a column.
fn chain(recorded: &mut Recorded, x: &[Tensor]) -> Result<(Vec<Node>, Node)> {
    let last = x.len().saturating_sub(1);
    let (mut inputs, mut matrices) = (Vec::with_capacity(x.len()), Vec::with_capacity(x.len()));
    for (at, tensor) in x.iter().enumerate() {
        let input = recorded.input(tensor)?;
        matrices.push(match recorded.shape(input)[..] {
            [size] if at == 0 => recorded.reshape(input, &[1, size])?,
            [size] if at == last => recorded.reshape(input, &[size, 1])?,
            [_, _] => input,
            ref shape => return Err(refuse("rank of x", shape.len(), "2, or 1 at the ends")),
        });
        inputs.push(input);
    }
    let sizes: Vec<[usize; 2]> = matrices.iter().map(|&matrix| recorded.shape(matrix)).map(|s| [s[0], s[1]]).collect();
    let order =
        Order::of(&sizes.iter().map(|size| size[0]).chain(sizes.last().map(|size| size[1])).collect::<Vec<_>>());
    let product = order.product(recorded, &matrices, 0, last)?;
    Ok((inputs, product))
}

fn multi_dot(context: &Context, x: Vec<Tensor>, out: Output) -> Result<()> {
    let Some(first) = x.first() else { return Ok(()) };
    let mut recorded = Recorded::new(context, first.dtype()?);
    let (_, product) = chain(&mut recorded, &x)?;
    recorded.store([Some(out)], [Some(product)])
}

fn multi_dot_grad(context: &Context, x: Vec<Tensor>, upstream: Tensor, dx: Vec<Option<Output>>) -> Result<()> {
    let Some(first) = x.first() else { return Ok(()) };
    let mut recorded = Recorded::new(context, first.dtype()?);
    let (inputs, product) = chain(&mut recorded, &x)?;
    recorded.store_gradients((product, &upstream), &inputs, dx)
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

    fn product(&self, recorded: &mut Recorded, matrices: &[Node], begin: usize, end: usize) -> Result<Node> {
        if begin == end {
            return Ok(matrices[begin]);
        }
        let cut = self.cuts[begin * self.count + end];
        let left = self.product(recorded, matrices, begin, cut)?;
        let right = self.product(recorded, matrices, cut + 1, end)?;
        Ok(recorded.matmul((left, No), (right, No))?)
    }
}

/// A power of stacked matrices, by squares.
fn power(recorded: &mut Recorded, x: Node, exponent: i32) -> Result<Node> {
    let mut base = if exponent < 0 { recorded.one(LinearAlgebra(Algorithm::Inverse), &[x])? } else { x };
    let (mut rest, mut result) = (exponent.unsigned_abs(), None);
    while rest > 0 {
        if rest % 2 == 1 {
            result = Some(match result {
                None => base,
                Some(before) => recorded.matmul((before, No), (base, No))?,
            });
        }
        rest /= 2;
        if rest > 0 {
            base = recorded.matmul((base, No), (base, No))?;
        }
    }
    if let Some(result) = result {
        return Ok(result);
    }
    let Meta { dtype, shape } = recorded.meta(x);
    let size = shape[shape.len() - 1];
    let unit = recorded.one(Eye { rows: size, columns: size, dtype }, &[])?;
    Ok(recorded.expand(unit, &shape)?)
}

fn matrix_power(context: &Context, x: Tensor, exponent: i32, out: Output) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype()?);
    let x = recorded.input(&x)?;
    let value = power(&mut recorded, x, exponent)?;
    recorded.store([Some(out)], [Some(value)])
}

fn matrix_power_grad(
    context: &Context,
    x: Tensor,
    _out: Tensor,
    upstream: Tensor,
    exponent: i32,
    dx: Output,
) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype()?);
    let x = recorded.input(&x)?;
    let value = power(&mut recorded, x, exponent)?;
    recorded.store_gradients((value, &upstream), &[x], vec![Some(dx)])
}

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
    fn new(x: &[usize], y: &[usize]) -> Turns {
        let rank = x.len().max(y.len());
        let size = |dims: &[usize], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |own| dims[own]);
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

    /// The sizes of a factor, which is repeated along the others.
    fn of(&self, factor: Factor) -> Vec<usize> {
        self.0.iter().map(|&(size, owner)| if owner == factor { size } else { 1 }).collect()
    }
}

/// Every element of x times the whole of y.
fn all_products(recorded: &mut Recorded, x: Node, y: Node) -> Result<Node> {
    let turns = Turns::new(&recorded.shape(x), &recorded.shape(y));
    let (x, y) = (recorded.reshape(x, &turns.of(Factor::X))?, recorded.reshape(y, &turns.of(Factor::Y))?);
    Ok(recorded.multiply(x, y)?)
}

fn kron(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype()?);
    let [x, y] = [recorded.given(&x.view()?), recorded.given(&y.view()?)];
    let value = all_products(&mut recorded, x, y)?;
    recorded.store([Some(out)], [Some(value)])
}

fn kron_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype()?);
    let by = [recorded.input(&x)?, recorded.input(&y)?];
    let value = all_products(&mut recorded, by[0], by[1])?;
    recorded.store_gradients((value, &upstream), &by, vec![dx, dy])
}

/// `x' W y` for each of the weight's matrices, of which there is one for each output.
fn bilinear_form(recorded: &mut Recorded, [x, y, weight]: [Node; 3]) -> Result<Node> {
    let rows = recorded.shape(x);
    let rows = recorded.reshape(x, &[1, rows[0], rows[1]])?;
    let sides = recorded.matmul((rows, No), (weight, No))?;
    let products = recorded.multiply(sides, y)?;
    let sums = recorded.sum(products, &[2], false)?;
    Ok(recorded.transposed(sums)?)
}

fn bilinear(context: &Context, x: Tensor, y: Tensor, weight: Tensor, bias: Option<Tensor>, out: Output) -> Result<()> {
    let mut recorded = Recorded::new(context, x.dtype()?);
    let of = [recorded.input(&x)?, recorded.input(&y)?, recorded.input(&weight)?];
    let mut value = bilinear_form(&mut recorded, of)?;
    if let Some(bias) = bias {
        let bias = recorded.input(&bias)?;
        let bias = recorded.reshape(bias, &[1, weight.shape()[0]])?;
        value = recorded.add(value, bias)?;
    }
    recorded.store([Some(out)], [Some(value)])
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
    let mut recorded = Recorded::new(context, x.dtype()?);
    if let Some(dbias) = dbias {
        let c = &recorded.c;
        c.store_value(&dbias, x.dtype()?, &c.reduce(Reduction::Sum, &c.input(&upstream)?, &[0])?)?;
    }
    let by = [recorded.input(&x)?, recorded.input(&y)?, recorded.input(&weight)?];
    let value = bilinear_form(&mut recorded, by)?;
    recorded.store_gradients((value, &upstream), &by, vec![dx, dy, dweight])
}
