//! Rotary position embedding of queries, keys and values in one call, with its gradient, as language models in Paddle ask for it.

use super::compose::Compose;
use super::values::dims;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::gather::Gather;
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("fused_rotary_position_embedding", FLOATS, fused_rope);
    table.add("fused_rotary_position_embedding_grad", FLOATS, fused_rope_grad);
}

/// How elements are turned.
struct Turn<'c> {
    c: Compose<'c>,
    /// Sines and cosines of each element: [batch or 1, positions, 1, size].
    angles: [View; 2],
    /// Pairs are neighbours, else elements of two halves.
    neighbours: bool,
    /// Positions come before the batch.
    time_major: bool,
}

/// Which axes a tensor of batch, positions, heads and elements has swapped.
fn batch_first(x: &View, time_major: bool) -> View {
    if time_major { x.permuted(&[1, 0, 2, 3]) } else { x.clone() }
}

impl<'c> Turn<'c> {
    fn new(
        context: &'c Context,
        like: &Tensor,
        [sine, cosine, positions]: [Option<Tensor>; 3],
        (neighbours, time_major, base): (bool, bool, f32),
    ) -> Result<Turn<'c>> {
        let c = Compose::new(context);
        let [first, second, _, size] = dims("q", like)?;
        let (batch, length) = if time_major { (second, first) } else { (first, second) };
        if size % 2 != 0 {
            return Err(refuse("q", like.shape(), "an even number of elements of a head"));
        }
        let compute = like.dtype()?.compute();
        let mut angles = match (sine, cosine) {
            (Some(sine), Some(cosine)) => {
                let table = |angle: &Tensor| -> Result<View> {
                    let view = angle.view()?;
                    if !view.len().is_multiple_of(size.max(1)) || view.len() < length * size {
                        return Err(refuse("sin, cos", angle.shape(), &format!("{size} elements for each position")));
                    }
                    c.cast(&c.shaped(&view, &[view.len() / size.max(1), size])?, compute)
                };
                [table(&sine)?, table(&cosine)?]
            }
            _ => own_angles(&c, [length, size], base, compute)?,
        };
        for angle in &mut angles {
            *angle = match &positions {
                Some(positions) => {
                    let rows = c.shaped(&positions.view()?, &[batch * length])?;
                    c.shaped(&c.apply(&Gather { axis: 0 }, &[angle.clone(), rows])?, &[batch, length, 1, size])?
                }
                None => c.shaped(&angle.narrowed(0, 0, 1, length), &[1, length, 1, size])?,
            };
        }
        Ok(Turn { c, angles, neighbours, time_major })
    }

    /// The elements of all pairs, the first ones and the second ones.
    fn sides(&self, x: &View) -> [View; 2] {
        let half = x.shape[3] / 2;
        match self.neighbours {
            true => [x.narrowed(3, 0, 2, half), x.narrowed(3, 1, 2, half)],
            false => [x.narrowed(3, 0, 1, half), x.narrowed(3, half, 1, half)],
        }
    }

    /// `(x cos - y sin, y cos + x sin)` for each pair, or the gradient of that.
    fn store(&self, x: &Tensor, out: &Output, is_gradient: bool) -> Result<()> {
        let c = &self.c;
        let (x, dtype) = (batch_first(&x.view()?, self.time_major), x.dtype()?);
        let x = c.cast(&x, dtype.compute())?;
        let ([x, y], [sine, cosine]) = (self.sides(&x), [0, 1].map(|angle| self.sides(&self.angles[angle])));
        // Of a pair each has a sine of its own: in the gradient they change places.
        let sine = if is_gradient { [&sine[1], &sine[0]] } else { [&sine[0], &sine[1]] };
        let (of_y, of_x) = (c.multiply(&y, sine[0])?, c.multiply(&x, sine[1])?);
        let (x, y) = (c.multiply(&x, &cosine[0])?, c.multiply(&y, &cosine[1])?);
        let found = match is_gradient {
            false => [c.subtract(&x, &of_y)?, c.add(&y, &of_x)?],
            true => [c.add(&x, &of_y)?, c.subtract(&y, &of_x)?],
        };
        let to = batch_first(&c.place(out, dtype)?, self.time_major);
        for (value, to) in found.iter().zip(self.sides(&to)) {
            c.launch(&Copy, &[c.cast(value, dtype)?], &[to])?;
        }
        Ok(())
    }
}

/// Sines and cosines of positions over powers of the base, in Paddle's order: two neighbours have one angle, whichever elements are a pair.
fn own_angles(c: &Compose, [length, size]: [usize; 2], base: f32, dtype: DType) -> Result<[View; 2]> {
    let angle = |at: usize| {
        let slowness = f64::from(base).powf((at % size / 2 * 2) as f64 / size as f64);
        (at / size) as f64 / slowness
    };
    let made = |function: fn(f64) -> f64| {
        let bytes: Vec<u8> = (0..length * size).flat_map(|at| function(angle(at)).to_ne_bytes()).collect();
        c.cast(&c.upload(DType::F64, &[length, size], &bytes)?, dtype)
    };
    Ok([made(f64::sin)?, made(f64::cos)?])
}

fn fused_rope(
    context: &Context,
    query: Tensor,
    key: Option<Tensor>,
    value: Option<Tensor>,
    sine: Option<Tensor>,
    cosine: Option<Tensor>,
    positions: Option<Tensor>,
    neighbours: bool,
    time_major: bool,
    base: f32,
    out_query: Output,
    out_key: Option<Output>,
    out_value: Option<Output>,
) -> Result<()> {
    let turn = Turn::new(context, &query, [sine, cosine, positions], (neighbours, time_major, base))?;
    let others = [(key, out_key), (value, out_value)];
    for (x, out) in [(Some(query), Some(out_query))].into_iter().chain(others) {
        if let (Some(x), Some(out)) = (x, out) {
            turn.store(&x, &out, false)?;
        }
    }
    Ok(())
}

fn fused_rope_grad(
    context: &Context,
    sine: Option<Tensor>,
    cosine: Option<Tensor>,
    positions: Option<Tensor>,
    of_query: Tensor,
    of_key: Option<Tensor>,
    of_value: Option<Tensor>,
    neighbours: bool,
    time_major: bool,
    base: f32,
    query: Option<Output>,
    key: Option<Output>,
    value: Option<Output>,
) -> Result<()> {
    let turn = Turn::new(context, &of_query, [sine, cosine, positions], (neighbours, time_major, base))?;
    for (x, out) in [(Some(of_query), query), (of_key, key), (of_value, value)] {
        if let (Some(x), Some(out)) = (x, out) {
            turn.store(&x, &out, true)?;
        }
    }
    Ok(())
}
