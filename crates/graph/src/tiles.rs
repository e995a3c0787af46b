//! What kernels of tiles share: the indices that a program handles, pointers moved by index and stride, matrices in memory.

use openmps_tile::{Builder, Compare, Scalar, Value};

/// Indices of a tile's side, and which of them lie inside of the tensor.
pub(crate) type Side = (Value, Value);

/// `count` indices from `first` on, and which of them lie below `size`.
pub(crate) fn block(b: &mut Builder, first: Value, count: usize, size: Value) -> Side {
    let (first, range) = (b.splat(first, &[count]), b.range(count));
    let index = b.add(first, range);
    let size = b.splat(size, &[count]);
    let inside = b.compare(Compare::Less, index, size);
    (index, inside)
}

/// The indices of this program on an axis of the grid whose programs handle `count` each.
pub(crate) fn of_program(b: &mut Builder, axis: u8, count: usize, size: Value) -> Side {
    let (id, length) = (b.program_id(axis), b.integer(count as i64, Scalar::I64));
    let first = b.multiply(id, length);
    block(b, first, count, size)
}

/// This program's place in each of several dimensions that share an axis of the grid, outermost first.
pub(crate) fn unravelled(b: &mut Builder, axis: u8, sizes: &[Value]) -> Vec<Value> {
    if sizes.is_empty() {
        return Vec::new();
    }
    let mut rest = b.program_id(axis);
    let mut places = Vec::new();
    for &size in sizes[1..].iter().rev() {
        places.push(b.remainder(rest, size));
        rest = b.divide(rest, size);
    }
    places.push(rest);
    places.reverse();
    places
}

/// A pointer moved by `place * stride` for each pair.
pub(crate) fn moved(b: &mut Builder, pointer: Value, steps: impl IntoIterator<Item = (Value, Value)>) -> Value {
    steps.into_iter().fold(pointer, |pointer, (place, stride)| {
        let offset = b.multiply(place, stride);
        b.add_pointer(pointer, offset)
    })
}

/// A matrix in memory: its first element, and its strides from row to row and from column to column.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub pointer: Value,
    pub strides: [Value; 2],
}

impl Matrix {
    /// Pointers to rows x columns, and which of them lie inside, from the indices of both and which of these do.
    pub fn places(&self, b: &mut Builder, rows: Side, columns: Side) -> (Value, Value) {
        let sides = [rows, columns];
        let dims: Vec<usize> = sides.iter().map(|side| b.type_of(side.0).dims[0]).collect();
        let spread = |b: &mut Builder, x: Value, axis: usize| {
            let expanded = b.expand_dims(x, 1 - axis);
            b.broadcast(expanded, &dims)
        };
        let [by_row, by_column] = [0, 1].map(|axis| {
            let stride = b.splat_like(self.strides[axis], sides[axis].0);
            let offset = b.multiply(sides[axis].0, stride);
            spread(b, offset, axis)
        });
        let (row, column) = (spread(b, rows.1, 0), spread(b, columns.1, 1));
        let (offset, mask) = (b.add(by_row, by_column), b.and(row, column));
        (b.add_pointer(self.pointer, offset), mask)
    }

    /// The elements, 0 outside.
    pub fn load(&self, b: &mut Builder, rows: Side, columns: Side) -> Value {
        let (pointers, mask) = self.places(b, rows, columns);
        let ty = b.type_of(mask).with_scalar(b.scalar_of(self.pointer));
        let zeros = b.constant(0.0, &ty);
        b.load(pointers, Some(mask), Some(zeros))
    }
}
