//! A tensor seen as rows to reduce: which axes are kept and which go, and the few numbers a row kernel needs.

use crate::error::{Error, Result};
use crate::layout::axis_of;
use crate::movement;
use crate::queue::Queue;
use crate::tiles;
use crate::view::View;
use openmps_runtime::Buffer;
use openmps_tile::{Builder, DType, Scalar, Value};

/// The longest row that stays in registers; longer ones are walked in pieces.
pub const LONGEST: usize = 8192;

/// The least width of a tile of rows.
const NARROWEST: usize = 16;

/// Elements of a tile of several short rows.
const TILE: usize = 2048;

/// Rows in device memory: row `i` starts at `address + i * row_stride`, its elements are `stride` apart.
#[derive(Debug)]
pub struct Rows {
    /// The first row's first element.
    pub address: usize,
    /// How many rows.
    pub count: usize,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements of a row.
    pub length: usize,
    /// Elements from one element of a row to the next.
    pub stride: isize,
    /// Bytes of an element.
    size: usize,
    /// Holds the copy when the tensor's strides did not fit.
    _copy: Option<Buffer>,
}

/// The axes that go, each once and in order; none given means all. A tensor without axes may be asked for its only one.
pub fn reduced_axes(operator: &'static str, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    if axes.is_empty() || rank == 0 && axes.iter().all(|axis| (-1..=0).contains(axis)) {
        return Ok((0..rank).collect());
    }
    let mut reduced: Vec<usize> = axes.iter().map(|&axis| axis_of(operator, axis, rank)).collect::<Result<_>>()?;
    reduced.sort_unstable();
    let distinct = reduced.len();
    reduced.dedup();
    if reduced.len() != distinct {
        let (got, expected) = (format!("{axes:?}"), "each axis once".to_owned());
        return Err(Error::Attribute { operator, attribute: "axis", got, expected });
    }
    Ok(reduced)
}

impl Rows {
    /// The rows along the `reduced` axes; copied to dense memory when kept or reduced axes do not step evenly.
    pub fn of(operator: &'static str, queue: &Queue, x: &View, reduced: &[usize]) -> Result<Rows> {
        if let Some(rows) = Rows::even(x, reduced) {
            return Ok(rows);
        }
        let kept = kept_axes(x, reduced);
        let (count, length) = (size(x, &kept), size(x, reduced));
        let order: Vec<usize> = kept.iter().chain(reduced).copied().collect();
        let from = x.permuted(&order);
        let device = |source| Error::Device { operator, source };
        let copy = queue.allocate((x.len() * x.dtype.size()).max(1)).map_err(device)?;
        let to = View::dense(copy.address(), x.dtype, &from.shape)?;
        movement::run(queue, operator, |mover| mover.copy(&from, &to))?;
        let (address, row_stride) = (copy.address(), length as isize);
        Ok(Rows { address, count, row_stride, length, stride: 1, size: x.dtype.size(), _copy: Some(copy) })
    }

    /// The rows as they lie, where kept and reduced axes step evenly.
    pub fn even(x: &View, reduced: &[usize]) -> Option<Rows> {
        let kept = kept_axes(x, reduced);
        let (row_stride, stride) = (even_stride(x, &kept)?, even_stride(x, reduced)?);
        let (count, length) = (size(x, &kept), size(x, reduced));
        Some(Rows { address: x.address, count, row_stride, length, stride, size: x.dtype.size(), _copy: None })
    }

    /// Dense rows one after the other.
    pub fn dense(address: usize, count: usize, length: usize, dtype: DType) -> Rows {
        Rows { address, count, row_stride: length as isize, length, stride: 1, size: dtype.size(), _copy: None }
    }

    /// One of the rows, cut into `parts` rows of `length`.
    pub fn part(&self, row: usize, parts: usize, length: usize) -> Rows {
        let address = self.address.wrapping_add_signed(self.row_stride * row as isize * self.size as isize);
        let row_stride = self.stride * length as isize;
        Rows { address, count: parts, row_stride, length, stride: self.stride, size: self.size, _copy: None }
    }
}

fn kept_axes(x: &View, reduced: &[usize]) -> Vec<usize> {
    (0..x.rank()).filter(|axis| !reduced.contains(axis)).collect()
}

pub(crate) fn size(x: &View, axes: &[usize]) -> usize {
    axes.iter().map(|&axis| x.shape[axis]).product()
}

/// The one stride with which a walk over these axes steps, if there is one.
pub(crate) fn even_stride(x: &View, axes: &[usize]) -> Option<isize> {
    let mut walked: Option<(usize, isize)> = None;
    for &axis in axes.iter().rev().filter(|&&axis| x.shape[axis] != 1) {
        let (size, stride) = (x.shape[axis], x.strides[axis]);
        walked = match walked {
            None => Some((size, stride)),
            Some((inner, step)) if stride == step * inner as isize => Some((size * inner, step)),
            Some(_) => return None,
        };
    }
    Some(walked.map_or(1, |(_, stride)| stride))
}

/// How wide a tile is that holds whole rows of this length; none where rows are too long for one.
///
/// A power of two, so that rows of all lengths share few kernels: a GPU's compiler takes a tenth of a second for each.
pub fn tile_width(length: usize) -> Option<usize> {
    (length <= LONGEST).then(|| length.next_power_of_two().max(NARROWEST))
}

/// The block of rows that one program of a row kernel handles.
pub struct RowBlock {
    /// Rows of the tile.
    pub rows: usize,
    /// Columns of the tile.
    pub width: usize,
    row_index: Value,
    row_mask: Value,
}

/// Columns of a block's rows.
pub struct Piece {
    column: Value,
    /// Which of the tile's columns are among them.
    exists: Value,
    /// Which places of the tile are in these columns, of rows that there are.
    pub inside: Value,
}

impl Piece {
    /// `x` inside of the piece and `other` elsewhere: a reduction is of its identity there, and the host device then reduces the piece alone.
    pub fn or(&self, b: &mut Builder, x: Value, other: f64) -> Value {
        let other = b.constant_like(other, x);
        b.select(self.inside, x, other)
    }
}

impl RowBlock {
    /// How many rows share a tile of this width.
    pub fn rows_for(width: usize) -> usize {
        (TILE / width.max(1)).clamp(1, 1024)
    }

    /// The block of this program, of `count` rows in all.
    pub fn new(b: &mut Builder, rows: usize, width: usize, count: Value) -> RowBlock {
        let (row_index, row_mask) = tiles::of_program(b, 0, rows, count);
        RowBlock { rows, width, row_index, row_mask }
    }

    fn dims(&self) -> [usize; 2] {
        [self.rows, self.width]
    }

    /// A value of each row, repeated along it.
    pub fn along(&self, b: &mut Builder, per_row: Value) -> Value {
        let column = b.expand_dims(per_row, 1);
        b.broadcast(column, &self.dims())
    }

    /// A value of each column, repeated in every row.
    pub fn down(&self, b: &mut Builder, per_column: Value) -> Value {
        let row = b.expand_dims(per_column, 0);
        b.broadcast(row, &self.dims())
    }

    /// The tile's columns from column `from` on that lie before `end`.
    pub fn piece(&self, b: &mut Builder, from: Value, end: Value) -> Piece {
        let (column, exists) = tiles::block(b, from, self.width, end);
        Piece { column, exists, inside: tiles::both(b, self.row_mask, exists) }
    }

    fn pointers(&self, b: &mut Builder, base: Value, strides: [Value; 2], piece: &Piece) -> Value {
        let by_row = tiles::scaled(b, self.row_index, strides[0]);
        let by_column = tiles::scaled(b, piece.column, strides[1]);
        tiles::crossed(b, base, by_row, by_column)
    }

    /// Loads a piece of the rows; what lies outside of it is 0.
    pub fn load(
        &self,
        b: &mut Builder,
        base: Value,
        strides: [Value; 2],
        piece: &Piece,
        (dtype, to): (DType, DType),
    ) -> Value {
        let pointers = self.pointers(b, base, strides, piece);
        let x = tiles::load(b, pointers, piece.inside);
        convert(b, x, dtype, to)
    }

    /// Loads one value a column from a vector; 0 outside of the piece.
    pub fn load_per_column(&self, b: &mut Builder, base: Value, stride: Value, piece: &Piece) -> Value {
        let offset = tiles::scaled(b, piece.column, stride);
        let pointers = b.add_pointer(base, offset);
        tiles::load(b, pointers, piece.exists)
    }

    /// Stores a piece of the rows.
    pub fn store(
        &self,
        b: &mut Builder,
        base: Value,
        strides: [Value; 2],
        piece: &Piece,
        x: Value,
        (from, to): (DType, DType),
    ) {
        let pointers = self.pointers(b, base, strides, piece);
        let x = convert(b, x, from, to);
        b.store(pointers, x, Some(piece.inside));
    }

    /// Stores one value a row into a dense vector.
    pub fn store_per_row(&self, b: &mut Builder, base: Value, x: Value, (from, to): (DType, DType)) {
        let pointers = b.add_pointer(base, self.row_index);
        let x = convert(b, x, from, to);
        b.store(pointers, x, Some(self.row_mask));
    }
}

/// A conversion between element types as they lie in memory and as they are computed.
pub fn convert(b: &mut Builder, x: Value, from: DType, to: DType) -> Value {
    use openmps_tile::Cast;
    let (source, target) = (Scalar::from(from), Scalar::from(to));
    let unsigned = matches!(from, DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let cast = match (from.is_float(), to.is_float()) {
        (true, true) => Cast::Float,
        (true, false) => Cast::FloatToSigned,
        (false, true) if unsigned => Cast::UnsignedToFloat,
        (false, true) => Cast::SignedToFloat,
        (false, false) if unsigned && target.size() > source.size() => Cast::Unsigned,
        (false, false) => Cast::Signed,
    };
    b.cast(cast, x, target)
}
