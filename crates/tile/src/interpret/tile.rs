//! Tiles of elements, and the operations that move elements without computing.

use crate::types::Dims;
use std::rc::Rc;

/// The bits of an element; none when it is undefined.
pub(super) type Bits = Option<u64>;

/// The elements of a value in row-major order; one for a scalar. Shared, for values are never changed.
pub(super) type Tile = Rc<[Bits]>;

/// A function of one element over a tile; undefined elements stay so.
pub(super) fn map(x: &Tile, f: impl Fn(u64) -> u64) -> Tile {
    x.iter().map(|x| x.map(&f)).collect()
}

/// A function of two elements over tiles of the same dimensions; undefined where either is.
pub(super) fn zip(x: &Tile, y: &Tile, f: impl Fn(u64, u64) -> u64) -> Tile {
    x.iter().zip(y.iter()).map(|(x, y)| Some(f((*x)?, (*y)?))).collect()
}

/// Truth values of which one that is `deciding` decides whatever the other is, even when that is undefined; else the opposite.
pub(super) fn truths(x: &Tile, y: &Tile, deciding: u64) -> Tile {
    let combined = |(x, y): (&Bits, &Bits)| match (*x, *y) {
        (Some(bits), _) | (_, Some(bits)) if bits == deciding => Some(deciding),
        (x, y) => x.and(y).map(|_| 1 - deciding),
    };
    x.iter().zip(y.iter()).map(combined).collect()
}

/// Elements of `x` where the condition is true, else of `y`; undefined where the condition is.
pub(super) fn select(condition: &Tile, x: &Tile, y: &Tile) -> Tile {
    let choose = |(i, condition): (usize, &Bits)| if (*condition)? != 0 { x[i] } else { y[i] };
    condition.iter().enumerate().map(choose).collect()
}

/// Repeats dimensions of size 1.
pub(super) fn broadcast(x: &Tile, from: &Dims, to: &Dims) -> Tile {
    let mut strides = [0; crate::types::MAX_TILE_RANK];
    let mut stride = 1;
    for axis in (0..from.len()).rev() {
        strides[axis] = if from[axis] == 1 { 0 } else { stride };
        stride *= from[axis];
    }
    let source = |mut index: usize| {
        let mut offset = 0;
        for axis in (0..to.len()).rev() {
            offset += index % to[axis] * strides[axis];
            index /= to[axis];
        }
        offset
    };
    (0..to.iter().product()).map(|index| x[source(index)]).collect()
}

/// Combines along an axis in the order of its elements; undefined where any is.
pub(super) fn reduce(x: &Tile, dims: &Dims, axis: usize, f: impl Fn(u64, u64) -> u64) -> Tile {
    let inner: usize = dims[axis + 1..].iter().product();
    let run = |index: usize| {
        let first = index / inner * dims[axis] * inner + index % inner;
        (0..dims[axis]).map(|i| x[first + i * inner]).reduce(|x, y| Some(f(x?, y?))).flatten()
    };
    (0..x.len() / dims[axis]).map(run).collect()
}

/// A function of three elements; undefined where any is.
pub(super) fn zip3(x: &Tile, y: &Tile, z: &Tile, f: impl Fn(u64, u64, u64) -> u64) -> Tile {
    (0..x.len()).map(|i| Some(f(x[i]?, y[i]?, z[i]?))).collect()
}

/// Dimensions in another order.
pub(super) fn permute(x: &Tile, dims: &Dims, order: &Dims) -> Tile {
    let mut steps = [0; crate::types::MAX_TILE_RANK];
    for (place, &axis) in order.iter().enumerate() {
        steps[place] = dims[axis + 1..].iter().product();
    }
    let source = |mut index: usize| {
        let mut offset = 0;
        for (&axis, step) in order.iter().zip(steps).rev() {
            offset += index % dims[axis] * step;
            index /= dims[axis];
        }
        offset
    };
    (0..x.len()).map(|index| x[source(index)]).collect()
}

/// The elements at even (0) or odd (1) places.
pub(super) fn every_second(x: &Tile, from: usize) -> Tile {
    x.iter().skip(from).step_by(2).copied().collect()
}

/// The products of batches of rows x `depth` and `depth` x columns tiles, added to `sum` one term after the other.
pub(super) fn dot(
    x: &Tile,
    y: &Tile,
    sum: &Tile,
    [rows, depth, columns]: [usize; 3],
    add: impl Fn(u64, u64, u64) -> u64,
) -> Tile {
    let element = |(i, &sum): (usize, &Bits)| {
        let (row, column) = (i / columns, i % columns);
        let batch = row / rows;
        let term = |k: usize| Some((x[row * depth + k]?, y[(batch * depth + k) * columns + column]?));
        (0..depth).try_fold(sum?, |sum, k| term(k).map(|(x, y)| add(sum, x, y)))
    };
    sum.iter().enumerate().map(element).collect()
}
