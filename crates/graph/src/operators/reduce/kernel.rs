//! The kernels of a reduction: one for each order in which rows are walked.

use super::Reduction;
use crate::operators::elementwise::Chain;
use crate::rows::{Piece, RowBlock, Rows, convert, tile_width};
use crate::tiles;
use openmps_tile::{Binary, Builder, Combine, Compare, DType, Kernel, Scalar, Type, Value};

/// Element types of one pass over the rows.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    /// In memory, or of a chain's results.
    pub input: DType,
    /// In which elements are combined.
    pub compute: DType,
    /// The result's type; the sum itself may be wider.
    pub output: DType,
}

/// In which order a kernel goes through rows.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// Several whole rows a tile of this width.
    Short(usize),
    /// One row a program, in pieces of so many elements.
    Long(usize),
}

impl Order {
    /// What suits these rows.
    pub fn along(reduction: Reduction, source: Source, pass: Pass, rows: &Rows, is_host: bool) -> Order {
        let long = || Order::Long(piece(reduction, source, pass, rows, is_host));
        tile_width(rows.length).map_or_else(long, Order::Short)
    }
}

/// Elements of a long row that a program walks at once.
fn piece(reduction: Reduction, source: Source, pass: Pass, rows: &Rows, is_host: bool) -> usize {
    let as_they_lie = rows.stride == 1 && pass.input == pass.compute && reduction.takes_elements_as_they_are();
    match source {
        // A chain keeps several tiles.
        Source::Chain(..) => 2048,
        // A tile is in registers.
        Source::Tensor if !is_host => 8192,
        // A tile is memory, read where it is: the step from one to the next is what costs.
        Source::Tensor if as_they_lie => rows.length.next_power_of_two().min(1 << 16),
        // What is made of elements has to stay in the first-level cache.
        Source::Tensor => (16 << 10) / loaded(reduction, pass).size().max(pass.compute.size()),
    }
}

/// What is reduced.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// The elements of one tensor.
    Tensor,
    /// A chain's results, of inputs with these element types.
    Chain(&'a Chain, &'a [DType]),
}

/// The tensors that rows are loaded from, in a kernel.
struct Inputs<'a> {
    source: Source<'a>,
    pointers: Vec<Value>,
    dtypes: Vec<DType>,
    /// From one row to the next, and from one element to the next.
    strides: Vec<[Value; 2]>,
    scalars: Vec<Value>,
    /// The type of what is reduced, in memory and when it is loaded.
    types: (DType, DType),
}

impl Inputs<'_> {
    /// What is reduced, of loaded tiles.
    fn apply(&self, b: &mut Builder, loaded: &[Value]) -> Value {
        let x = match self.source {
            Source::Tensor => loaded[0],
            Source::Chain(chain, dtypes) => chain.apply(b, loaded, dtypes, &self.scalars),
        };
        convert(b, x, self.types.0, self.types.1)
    }

    /// The elements of a piece, 0 or what a chain makes of it elsewhere.
    fn piece_of(&self, b: &mut Builder, block: &RowBlock, piece: &Piece) -> Value {
        let each = self.pointers.iter().zip(&self.strides).zip(&self.dtypes);
        let loaded: Vec<Value> =
            each.map(|((&pointer, &strides), &dtype)| block.load(b, pointer, strides, piece, (dtype, dtype))).collect();
        self.apply(b, &loaded)
    }
}

/// Parameters: a pointer for each input and the output; rows, their length and what a mean is divided by; strides of each input; a chain's
/// numbers.
pub(super) fn kernel(reduction: Reduction, source: Source, pass: Pass, order: Order, of_parts: bool) -> Kernel {
    let mut b = Builder::new(reduction.name());
    let dtypes = match source {
        Source::Tensor => vec![pass.input],
        Source::Chain(_, dtypes) => dtypes.to_vec(),
    };
    let pointer = |(i, &dtype): (usize, &DType)| b.parameter(format!("x{i}"), Type::pointer(dtype.into()));
    let pointers: Vec<Value> = dtypes.iter().enumerate().map(pointer).collect();
    let out = b.parameter("out", Type::pointer(pass.output.into()));
    let number = Type::scalar(Scalar::I64);
    let [rows, length, count] = ["rows", "length", "count"].map(|name| b.parameter(name, number.clone()));
    let stride = |i: usize| ["row_stride", "stride"].map(|name| b.parameter(format!("{name}{i}"), number.clone()));
    let strides: Vec<[Value; 2]> = (0..pointers.len()).map(stride).collect();
    let scalars = match source {
        Source::Tensor => Vec::new(),
        Source::Chain(chain, dtypes) => {
            let numbers = chain.scalar_types(dtypes);
            numbers.into_iter().map(|(name, ty)| b.parameter(name, Type::scalar(ty))).collect()
        }
    };
    let types = (pass.input, loaded(reduction, pass));
    let inputs = Inputs { source, pointers, dtypes, strides, scalars, types };
    let combine = reduction.combine();
    let identity = reduction.identity(pass.compute);
    let zero = b.integer(0, Scalar::I64);
    match order {
        Order::Short(width) => {
            let block = RowBlock::new(&mut b, RowBlock::rows_for(width), width, rows);
            let piece = block.piece(&mut b, zero, length);
            let x = inputs.piece_of(&mut b, &block, &piece);
            let x = prepare(&mut b, reduction, x, of_parts);
            let x = piece.or(&mut b, x, identity);
            let reduced = b.reduce(combine, x, 1);
            let result = finish(&mut b, reduction, reduced, count);
            store(&mut b, &block, out, result, reduction, pass);
        }
        Order::Long(width) => {
            let block = RowBlock::new(&mut b, 1, width, rows);
            let step = b.integer(width as i64, Scalar::I64);
            let initial = b.constant(identity, &Type::tile(accumulator(reduction, pass), &[1]));
            // Each piece is reduced as it is read: a running tile would be read and written for every element.
            let reduced = b.for_loop([zero, length, step], &[initial], |b, at, carried| {
                let piece = block.piece(b, at, length);
                let x = inputs.piece_of(b, &block, &piece);
                let x = prepare(b, reduction, x, of_parts);
                let x = piece.or(b, x, identity);
                let reduced = b.reduce(combine, x, 1);
                vec![combined(b, combine, carried[0], reduced)]
            })[0];
            let result = finish(&mut b, reduction, reduced, count);
            store(&mut b, &block, out, result, reduction, pass);
        }
    }
    b.finish()
}

/// Many rows side by side: of each slice of them a program takes `width`, `height` elements of each at a time.
///
/// Parameters: the tensor and the output; rows of a slice, their length and what a mean is divided by; the tensor's strides from slice to slice, from row
/// to row and from one element of a row to the next; the output's from slice to slice and from row to row.
pub(super) fn side_by_side(reduction: Reduction, pass: Pass, [height, width]: [usize; 2]) -> Kernel {
    let mut b = Builder::new(reduction.name());
    let [x, out] =
        [("x", pass.input), ("out", pass.output)].map(|(name, ty)| b.parameter(name, Type::pointer(ty.into())));
    let number = Type::scalar(Scalar::I64);
    let [rows, length, count, of_slice, of_row, stride, to_slice, to_row] =
        ["rows", "length", "count", "slice", "row", "stride", "out_slice", "out_row"]
            .map(|name| b.parameter(name, number.clone()));
    let (index, mask) = tiles::of_program(&mut b, 0, width, rows);
    let slice = b.program_id(1);
    let [x, out] = [(x, of_slice), (out, to_slice)].map(|(pointer, by_slice)| {
        let offset = b.multiply(slice, by_slice);
        b.add_pointer(pointer, offset)
    });
    let by_row = tiles::scaled(&mut b, index, of_row);
    let identity = reduction.identity(pass.compute);
    let initial = b.constant(identity, &Type::tile(accumulator(reduction, pass), &[width]));
    let [zero, step] = [0, height as i64].map(|number| b.integer(number, Scalar::I64));
    let reduced = b.for_loop([zero, length, step], &[initial], |b, at, carried| {
        let read = |b: &mut Builder, pointers: Value, inside: Value| {
            let x = tiles::load(b, pointers, inside);
            let x = convert(b, x, pass.input, loaded(reduction, pass));
            prepare(b, reduction, x, false)
        };
        let x = if height == 1 {
            let first = b.multiply(at, stride);
            let x = b.add_pointer(x, first);
            let pointers = b.add_pointer(x, by_row);
            read(b, pointers, mask)
        } else {
            let (element, exists) = tiles::block(b, at, height, length);
            let by_element = tiles::scaled(b, element, stride);
            let (pointers, inside) = (tiles::crossed(b, x, by_element, by_row), tiles::both(b, exists, mask));
            let x = read(b, pointers, inside);
            let other = b.constant_like(identity, x);
            let x = b.select(inside, x, other);
            b.reduce(reduction.combine(), x, 0)
        };
        vec![combined(b, reduction.combine(), carried[0], x)]
    })[0];
    let result = finish(&mut b, reduction, reduced, count);
    let result = to_output(&mut b, result, reduction, pass);
    let offset = tiles::scaled(&mut b, index, to_row);
    let pointers = b.add_pointer(out, offset);
    b.store(pointers, result, Some(mask));
    b.finish()
}

/// The type in which elements are loaded: their own where they become booleans.
fn loaded(reduction: Reduction, pass: Pass) -> DType {
    if reduction.is_truth() { pass.input.compute() } else { pass.compute }
}

fn accumulator(reduction: Reduction, pass: Pass) -> Scalar {
    if reduction.is_truth() { Scalar::I1 } else { pass.compute.into() }
}

/// What is combined, of a loaded element.
fn prepare(b: &mut Builder, reduction: Reduction, x: Value, of_parts: bool) -> Value {
    match reduction {
        Reduction::Any | Reduction::All => {
            let zero = b.constant_like(0.0, x);
            b.compare(Compare::NotEqual, x, zero)
        }
        Reduction::SumOfSquares | Reduction::Norm if !of_parts => b.multiply(x, x),
        Reduction::SumOfAbsolutes if !of_parts => b.absolute(x),
        _ => x,
    }
}

fn combined(b: &mut Builder, combine: Combine, x: Value, y: Value) -> Value {
    match combine {
        Combine::Sum => b.add(x, y),
        Combine::Product => b.multiply(x, y),
        Combine::Maximum => b.maximum(x, y),
        Combine::Minimum => b.minimum(x, y),
        Combine::MinimumNumber => b.binary(Binary::MinimumNumber, x, y),
        Combine::MaximumNumber => b.binary(Binary::MaximumNumber, x, y),
        Combine::And => b.and(x, y),
        Combine::Or => b.or(x, y),
        Combine::Xor => b.binary(Binary::Xor, x, y),
    }
}

fn finish(b: &mut Builder, reduction: Reduction, x: Value, count: Value) -> Value {
    match reduction {
        Reduction::Mean => {
            let scalar = b.scalar_of(x);
            let count = if scalar.is_float() {
                b.cast(openmps_tile::Cast::SignedToFloat, count, scalar)
            } else {
                b.cast(openmps_tile::Cast::Signed, count, scalar)
            };
            let count = b.splat_like(count, x);
            b.divide(x, count)
        }
        Reduction::Norm => b.sqrt(x),
        _ => x,
    }
}

fn to_output(b: &mut Builder, x: Value, reduction: Reduction, pass: Pass) -> Value {
    if reduction.is_truth() {
        b.cast(openmps_tile::Cast::Unsigned, x, Scalar::I8)
    } else {
        convert(b, x, pass.compute, pass.output)
    }
}

fn store(b: &mut Builder, block: &RowBlock, out: Value, x: Value, reduction: Reduction, pass: Pass) {
    let x = to_output(b, x, reduction, pass);
    block.store_per_row(b, out, x, (pass.output, pass.output));
}
