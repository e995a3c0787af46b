//! What kernels of tiles share: the indices that a program handles, pointers moved by index and stride, matrices in memory.

use crate::rows::convert;
use crate::view::View;
use openmps_tile::{Builder, Cast, Compare, DType, Scalar, Type, Value};

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

/// The indices of several dimensions, outermost first, of elements that are counted through them. `narrow` is the type in which is
/// divided: i32 where the count is below 2^31, since a GPU takes several times as long for a division of 64 bits.
pub(crate) fn dimensions(b: &mut Builder, index: Value, sizes: &[Value], narrow: Scalar) -> Vec<Value> {
    let mut rest = b.cast(Cast::Signed, index, narrow);
    let mut places = Vec::new();
    for &size in sizes.get(1..).unwrap_or(&[]).iter().rev() {
        let size = b.cast(Cast::Signed, size, narrow);
        let size = b.splat_like(size, rest);
        let outer = b.divide(rest, size);
        let before = b.multiply(outer, size);
        places.push(b.subtract(rest, before));
        rest = outer;
    }
    places.push(rest);
    places.reverse();
    places.into_iter().map(|place| b.cast(Cast::Signed, place, Scalar::I64)).collect()
}

/// The type in which indices up to this count are divided.
pub(crate) fn index_type(count: usize) -> Scalar {
    if i32::try_from(count).is_ok() { Scalar::I32 } else { Scalar::I64 }
}

/// A number in a kernel's key for such a type.
pub(crate) fn is_wide(scalar: Scalar) -> usize {
    usize::from(scalar == Scalar::I64)
}

/// `index * stride`: a scalar stride, a tile of indices or a scalar.
pub(crate) fn scaled(b: &mut Builder, index: Value, stride: Value) -> Value {
    let stride = b.splat_like(stride, index);
    b.multiply(index, stride)
}

/// The sum of `index * stride` of each pair: tiles of indices, scalar strides.
pub(crate) fn offset(b: &mut Builder, first: (Value, Value), steps: impl IntoIterator<Item = (Value, Value)>) -> Value {
    let first = scaled(b, first.0, first.1);
    steps.into_iter().fold(first, |sum, (index, stride)| {
        let step = scaled(b, index, stride);
        b.add(sum, step)
    })
}

/// Whether an index, or what an index would be if it were not negative, lies below a size.
pub(crate) fn within(b: &mut Builder, index: Value, size: Value) -> Value {
    let size = b.splat_like(size, index);
    b.compare(Compare::LessUnsigned, index, size)
}

/// The part of a mask over rows x columns, or over one tile of rows, where `row + column` lies below a size, and not below 0.
pub(crate) fn reads_image(b: &mut Builder, mask: Value, row: Value, column: Value, size: Value) -> Value {
    let place = if b.type_of(column).is_scalar() {
        let column = b.splat_like(column, row);
        b.add(row, column)
    } else {
        sums(b, row, column)
    };
    let exists = within(b, place, size);
    b.and(mask, exists)
}

/// A value of each row (axis 0) or column (axis 1), repeated along the other side.
pub(crate) fn broadcast_along(b: &mut Builder, x: Value, axis: usize, dims: [usize; 2]) -> Value {
    let expanded = b.expand_dims(x, 1 - axis);
    b.broadcast(expanded, &dims)
}

/// Pointers to rows x columns, moved by an offset of each row and one of each column.
pub(crate) fn crossed(b: &mut Builder, pointer: Value, by_row: Value, by_column: Value) -> Value {
    let offset = sums(b, by_row, by_column);
    b.add_pointer(pointer, offset)
}

/// The sum of a value of each row and one of each column, everywhere.
pub(crate) fn sums(b: &mut Builder, by_row: Value, by_column: Value) -> Value {
    let dims = [by_row, by_column].map(|side| b.type_of(side).dims[0]);
    let (by_row, by_column) = (broadcast_along(b, by_row, 0, dims), broadcast_along(b, by_column, 1, dims));
    b.add(by_row, by_column)
}

/// Which of rows x columns lie inside, from which rows and which columns do.
pub(crate) fn both(b: &mut Builder, row: Value, column: Value) -> Value {
    let dims = [row, column].map(|side| b.type_of(side).dims[0]);
    let (row, column) = (broadcast_along(b, row, 0, dims), broadcast_along(b, column, 1, dims));
    b.and(row, column)
}

/// Elements as they lie in memory, 0 outside of the mask.
pub(crate) fn load(b: &mut Builder, pointers: Value, mask: Value) -> Value {
    let ty = b.type_of(mask).with_scalar(b.scalar_of(pointers));
    let zeros = b.constant(0.0, &ty);
    b.load(pointers, Some(mask), Some(zeros))
}

/// Elements as they are computed with, 0 outside of the mask.
pub(crate) fn load_wide(b: &mut Builder, pointers: Value, mask: Value, dtype: DType) -> Value {
    let loaded = load(b, pointers, mask);
    convert(b, loaded, dtype, dtype.compute())
}

/// Images in memory: the first element, and the strides of batch, channel, row and column.
#[derive(Clone, Copy)]
pub(crate) struct Images {
    pub pointer: Value,
    pub strides: [Value; 4],
}

impl Images {
    /// Parameters of the kernel, filled by [`Images::arguments`].
    pub fn parameter(b: &mut Builder, name: &str, dtype: DType) -> Images {
        let pointer = b.parameter(name, Type::pointer(dtype.into()));
        let strides = [0, 1, 2, 3].map(|d| b.parameter(format!("{name}_stride{d}"), Type::scalar(Scalar::I64)));
        Images { pointer, strides }
    }

    /// The arguments of a view in NCHW order, or of any other with four dimensions.
    pub fn arguments(view: &View) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(view.address as u64).chain(view.strides.iter().map(|&stride| stride as u64))
    }

    /// Pointers to the elements at these tiles of indices.
    pub fn at(&self, b: &mut Builder, [batch, channel, row, column]: [Value; 4]) -> Value {
        let [of_batch, of_channel, of_row, of_column] = self.strides;
        let rest = [(channel, of_channel), (row, of_row), (column, of_column)];
        let offset = offset(b, (batch, of_batch), rest);
        b.add_pointer(self.pointer, offset)
    }
}

/// Numbers of i64 among a kernel's parameters.
pub(crate) fn numbers<const N: usize>(b: &mut Builder, names: [&str; N]) -> [Value; N] {
    names.map(|name| b.parameter(name, Type::scalar(Scalar::I64)))
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
        let (by_row, by_column) = (scaled(b, rows.0, self.strides[0]), scaled(b, columns.0, self.strides[1]));
        (crossed(b, self.pointer, by_row, by_column), both(b, rows.1, columns.1))
    }

    /// The elements, 0 outside.
    pub fn load(&self, b: &mut Builder, rows: Side, columns: Side) -> Value {
        let (pointers, mask) = self.places(b, rows, columns);
        load(b, pointers, mask)
    }

    /// The same, read column by column: neighbouring threads read neighbours of a column.
    pub fn load_by_column(&self, b: &mut Builder, rows: Side, columns: Side) -> Value {
        let [row, column] = self.strides;
        let turned = Matrix { strides: [column, row], ..*self }.load(b, columns, rows);
        b.transpose(turned)
    }

    /// The elements, 0 outside, read in the order in which they lie.
    pub fn load_in(&self, b: &mut Builder, order: Order, rows: Side, columns: Side) -> Value {
        match order {
            Order::ByRow => self.load(b, rows, columns),
            Order::ByColumn => self.load_by_column(b, rows, columns),
        }
    }
}

/// Whether a kernel may read 16 bytes at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Elements,
    /// Neighbours lie beside each other, and every line begins and ends at a multiple of 16 bytes.
    Vectors,
}

impl Access {
    /// For tensors of these addresses, with these strides across lines and these lengths of lines, in elements.
    pub fn of(dtype: DType, addresses: &[usize], across: &[isize], lengths: &[usize]) -> Access {
        let count = Access::Vectors.divisor(dtype) as usize;
        let aligned = addresses.iter().all(|address| address.is_multiple_of(16))
            && across.iter().all(|stride| stride.unsigned_abs().is_multiple_of(count))
            && lengths.iter().all(|length| length.is_multiple_of(count));
        if aligned { Access::Vectors } else { Access::Elements }
    }

    /// What divides strides across lines, and their lengths.
    pub fn divisor(self, dtype: DType) -> u32 {
        match self {
            Access::Elements => 1,
            Access::Vectors => 16 / dtype.size() as u32,
        }
    }

    /// A pointer among a kernel's parameters.
    pub fn pointer(self, b: &mut Builder, name: &str, dtype: DType) -> Value {
        let pointer = b.parameter(name, Type::pointer(dtype.into()));
        if self == Access::Vectors {
            b.divisible(16);
        }
        pointer
    }

    /// A number of elements among them, of which this may be promised.
    pub fn number(self, b: &mut Builder, name: &str, dtype: DType) -> Value {
        let number = b.parameter(name, Type::scalar(Scalar::I64));
        b.divisible(self.divisor(dtype));
        number
    }

    /// The stride along lines among them; 1 where it is known.
    pub fn along(self, b: &mut Builder, name: &str) -> Value {
        let stride = b.parameter(name, Type::scalar(Scalar::I64));
        if self == Access::Vectors { b.integer(1, Scalar::I64) } else { stride }
    }
}

/// How the elements of a matrix lie in memory, which a kernel for them is written for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Those of a row beside each other, or none.
    ByRow,
    /// Those of a column beside each other.
    ByColumn,
}

impl Order {
    /// From the strides between rows and between columns.
    pub fn of([row, column]: [isize; 2]) -> Order {
        if row == 1 && column != 1 { Order::ByColumn } else { Order::ByRow }
    }
}
