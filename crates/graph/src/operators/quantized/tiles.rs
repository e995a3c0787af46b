//! Weights in blocks as kernels of tiles, for GPUs: each program unpacks the tile that it multiplies, in registers.

use super::{BlockFormat, Product, QuantizedLinear};
use crate::error::Result;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{self, Side};
use crate::view::View;
use openmps_tile::{Binary, Builder, Cast, Compare, DType, Kernel, Scalar, Type, Value};

/// Rows and columns of a program's block of results, and the depth of a step.
const ROWS: usize = 16;
const COLUMNS: usize = 32;
const DEPTH: usize = 32;

/// What a kernel depends on.
struct Form {
    format: BlockFormat,
    product: Product,
    dtype: DType,
    /// Dimensions before the last.
    leading: usize,
}

/// `x weight^T` or `x weight`, summed over `inner`.
pub(super) fn linear(
    queue: &Queue,
    operator: &QuantizedLinear,
    inner: usize,
    [x, weight, out]: [&View; 3],
) -> Result<()> {
    let leading = x.rank() - 1;
    let form = Form { format: operator.format, product: operator.product, dtype: x.dtype, leading };
    let numbers = vec![form.format as usize, form.product as usize, leading];
    let key = Key::Other("quantized_linear", vec![x.dtype], numbers);
    let pipeline = program::get("quantized_linear", &key, || linear_kernel(&form))?;
    let outputs = out.shape[leading];
    let count = out.len() / outputs;
    let mut arguments = [x, weight, out].map(|view| view.address as u64).to_vec();
    arguments.extend([count, inner, outputs].map(|size| size as u64));
    arguments.extend(weight.strides.iter().map(|&stride| stride as u64));
    arguments.extend(x.shape[..leading].iter().map(|&size| size as u64));
    arguments.extend(x.strides.iter().chain(&out.strides).map(|&stride| stride as u64));
    let grid = [outputs.div_ceil(COLUMNS), count.div_ceil(ROWS), 1];
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, "quantized_linear", &pipeline, grid, &arguments) }
}

fn linear_kernel(form: &Form) -> Kernel {
    let mut b = Builder::new("quantized_linear");
    let x = b.parameter("x", Type::pointer(form.dtype.into()));
    let weight = b.parameter("weight", Type::pointer(DType::U8.into()));
    let out = b.parameter("out", Type::pointer(form.dtype.into()));
    let [count, inner, outputs] = tiles::numbers(&mut b, ["count", "inner", "outputs"]);
    let [by_row, by_byte] = tiles::numbers(&mut b, ["row_stride", "byte_stride"]);
    let names = |name: &str, count: usize| (0..count).map(|d| format!("{name}{d}")).collect::<Vec<_>>();
    let parameters = |b: &mut Builder, name: &str, count: usize| -> Vec<Value> {
        names(name, count).into_iter().map(|name| b.parameter(name, Type::scalar(Scalar::I64))).collect()
    };
    let sizes = parameters(&mut b, "size", form.leading);
    let of_x = parameters(&mut b, "x_stride", form.leading + 1);
    let of_out = parameters(&mut b, "out_stride", form.leading + 1);
    let blocks = Blocks { format: form.format, bytes: weight, strides: [by_row, by_byte] };

    let row = tiles::of_program(&mut b, 1, ROWS, count);
    let column = tiles::of_program(&mut b, 0, COLUMNS, outputs);
    let places = if form.leading == 0 { Vec::new() } else { tiles::dimensions(&mut b, row.0, &sizes, Scalar::I64) };
    let by_place = |b: &mut Builder, strides: &[Value]| {
        let none = b.constant_like(0.0, row.0);
        places.iter().zip(strides).fold(none, |sum, (&place, &stride)| {
            let step = tiles::scaled(b, place, stride);
            b.add(sum, step)
        })
    };
    let (x_rows, out_rows) = (by_place(&mut b, &of_x), by_place(&mut b, &of_out));
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(DEPTH as i64, Scalar::I64));
    let none = b.constant(0.0, &Type::tile(Scalar::F32, &[ROWS, COLUMNS]));
    let sum = b.for_loop([zero, inner, step], &[none], |b, at, carried| {
        let along = tiles::block(b, at, DEPTH, inner);
        let offsets = tiles::scaled(b, along.0, of_x[form.leading]);
        let (pointers, mask) = (tiles::crossed(b, x, x_rows, offsets), tiles::both(b, row.1, along.1));
        let x = tiles::load_wide(b, pointers, mask, form.dtype);
        // Of the weight: which side is its rows and which its elements.
        let (rows, elements) = match form.product {
            Product::Forward => ((column, 1), (along, 0)),
            Product::Backward => ((along, 0), (column, 1)),
        };
        let w = blocks.load(b, rows, elements, [DEPTH, COLUMNS]);
        vec![b.dot(x, w, carried[0])]
    })[0];
    let result = convert(&mut b, sum, DType::F32, form.dtype);
    let offsets = tiles::scaled(&mut b, column.0, of_out[form.leading]);
    let (pointers, mask) = (tiles::crossed(&mut b, out, out_rows, offsets), tiles::both(&mut b, row.1, column.1));
    b.store(pointers, result, Some(mask));
    b.finish()
}

/// The weight as float32: `bytes` and `out` have one shape but for their last dimensions, and `out` is dense.
pub(super) fn dequantize(queue: &Queue, format: BlockFormat, bytes: &View, out: &View) -> Result<()> {
    let leading = out.rank() - 1;
    let key = Key::Other("dequantize", Vec::new(), vec![format as usize, leading]);
    let pipeline = program::get("dequantize", &key, || dequantize_kernel(format, leading))?;
    let columns = out.shape[leading];
    let count = out.len() / columns;
    let mut arguments = vec![bytes.address as u64, out.address as u64, count as u64, columns as u64];
    arguments.extend(out.shape[..leading].iter().map(|&size| size as u64));
    arguments.extend(bytes.strides.iter().chain(&out.strides).map(|&stride| stride as u64));
    let grid = [columns.div_ceil(COLUMNS), count.div_ceil(ROWS), 1];
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, "dequantize", &pipeline, grid, &arguments) }
}

fn dequantize_kernel(format: BlockFormat, leading: usize) -> Kernel {
    let mut b = Builder::new("dequantize");
    let bytes = b.parameter("bytes", Type::pointer(DType::U8.into()));
    let out = b.parameter("out", Type::pointer(Scalar::F32));
    let [count, columns] = tiles::numbers(&mut b, ["count", "columns"]);
    let parameters = |b: &mut Builder, name: &str, count: usize| -> Vec<Value> {
        (0..count).map(|d| b.parameter(format!("{name}{d}"), Type::scalar(Scalar::I64))).collect()
    };
    let sizes = parameters(&mut b, "size", leading);
    let of_bytes = parameters(&mut b, "byte_stride", leading + 1);
    let of_out = parameters(&mut b, "out_stride", leading + 1);
    let row = tiles::of_program(&mut b, 1, ROWS, count);
    let column = tiles::of_program(&mut b, 0, COLUMNS, columns);
    let places = if leading == 0 { Vec::new() } else { tiles::dimensions(&mut b, row.0, &sizes, Scalar::I64) };
    let by_place = |b: &mut Builder, strides: &[Value]| {
        let none = b.constant_like(0.0, row.0);
        places.iter().zip(strides).fold(none, |sum, (&place, &stride)| {
            let step = tiles::scaled(b, place, stride);
            b.add(sum, step)
        })
    };
    let (byte_rows, out_rows) = (by_place(&mut b, &of_bytes), by_place(&mut b, &of_out));
    let one = b.integer(1, Scalar::I64);
    let blocks = Blocks { format, bytes, strides: [one, of_bytes[leading]] };
    let result = blocks.load(&mut b, ((byte_rows, row.1), 0), (column, 1), [ROWS, COLUMNS]);
    let offsets = tiles::scaled(&mut b, column.0, of_out[leading]);
    let (pointers, mask) = (tiles::crossed(&mut b, out, out_rows, offsets), tiles::both(&mut b, row.1, column.1));
    b.store(pointers, result, Some(mask));
    b.finish()
}

/// Rows of blocks in memory: the first byte, and the strides from row to row and from byte to byte.
struct Blocks {
    format: BlockFormat,
    bytes: Value,
    strides: [Value; 2],
}

impl Blocks {
    /// The elements of some rows, which lie along one axis of a tile, that lie along its other axis: float32, 0 outside.
    fn load(
        &self,
        b: &mut Builder,
        (rows, of_rows): (Side, usize),
        (elements, of_elements): (Side, usize),
        dims: [usize; 2],
    ) -> Value {
        let mut inside = [rows.1, elements.1];
        inside[of_rows] = rows.1;
        inside[of_elements] = elements.1;
        let mask = tiles::both(b, inside[0], inside[1]);
        let by_row = tiles::scaled(b, rows.0, self.strides[0]);
        let row = tiles::broadcast_along(b, by_row, of_rows, dims);
        let element = b.cast(Cast::Signed, elements.0, Scalar::I32);
        let size = b.integer(self.format.elements() as i64, Scalar::I32);
        let size = b.splat_like(size, element);
        let block = b.divide(element, size);
        let place = b.remainder(element, size);
        let [block, place] = [block, place].map(|index| tiles::broadcast_along(b, index, of_elements, dims));
        let bytes = number(b, self.format.bytes() as i64, block);
        let begin = b.multiply(block, bytes);
        let mut block = Block { b, bytes: self.bytes, stride: self.strides[1], row, begin, mask };
        block.element(self.format, place)
    }
}

fn number(b: &mut Builder, value: i64, like: Value) -> Value {
    let number = b.integer(value, Scalar::I32);
    b.splat_like(number, like)
}

/// For each element of a tile: the block that it lies in. Integers are i32.
struct Block<'a> {
    b: &'a mut Builder,
    bytes: Value,
    stride: Value,
    /// Where the row begins.
    row: Value,
    /// The block's first byte in its row.
    begin: Value,
    mask: Value,
}

impl Block<'_> {
    fn add(&mut self, x: Value, y: i64) -> Value {
        let y = number(self.b, y, x);
        self.b.add(x, y)
    }

    fn times(&mut self, x: Value, y: i64) -> Value {
        let y = number(self.b, y, x);
        self.b.multiply(x, y)
    }

    fn over(&mut self, x: Value, y: i64) -> Value {
        let y = number(self.b, y, x);
        self.b.divide(x, y)
    }

    fn modulo(&mut self, x: Value, y: i64) -> Value {
        let y = number(self.b, y, x);
        self.b.remainder(x, y)
    }

    fn and(&mut self, x: Value, bits: i64) -> Value {
        let bits = number(self.b, bits, x);
        self.b.and(x, bits)
    }

    fn shift_right(&mut self, x: Value, bits: Value) -> Value {
        self.b.binary(Binary::ShiftRightUnsigned, x, bits)
    }

    /// The block's byte at an offset, from 0 to 255.
    fn byte(&mut self, offset: Value) -> Value {
        let b = &mut *self.b;
        let at = b.add(self.begin, offset);
        let at = b.cast(Cast::Signed, at, Scalar::I64);
        let at = tiles::scaled(b, at, self.stride);
        let at = b.add(self.row, at);
        let dims = b.type_of(at).dims.to_vec();
        let pointer = b.splat(self.bytes, &dims);
        let pointers = b.add_pointer(pointer, at);
        let byte = tiles::load(b, pointers, self.mask);
        b.cast(Cast::Unsigned, byte, Scalar::I32)
    }

    fn byte_at(&mut self, offset: i64) -> Value {
        let offset = number(self.b, offset, self.begin);
        self.byte(offset)
    }

    /// The float16 at an offset.
    fn half(&mut self, offset: i64) -> Value {
        let (low, high) = (self.byte_at(offset), self.byte_at(offset + 1));
        let high = self.times(high, 256);
        let bits = self.b.add(low, high);
        let bits = self.b.cast(Cast::Signed, bits, Scalar::I16);
        let half = self.b.cast(Cast::Bits, bits, Scalar::F16);
        self.b.cast(Cast::Float, half, Scalar::F32)
    }

    fn float(&mut self, x: Value) -> Value {
        self.b.cast(Cast::SignedToFloat, x, Scalar::F32)
    }

    /// A byte as a signed number.
    fn signed(&mut self, byte: Value) -> Value {
        let sign = number(self.b, 128, byte);
        let flipped = self.b.binary(Binary::Xor, byte, sign);
        self.b.subtract(flipped, sign)
    }

    /// Half a byte: the upper one where `upper` is 1, the lower one where it is 0.
    fn nibble(&mut self, offset: Value, upper: Value) -> Value {
        let byte = self.byte(offset);
        let shift = self.times(upper, 4);
        let shifted = self.shift_right(byte, shift);
        self.and(shifted, 15)
    }

    /// The elements at these places of their blocks.
    fn element(&mut self, format: BlockFormat, place: Value) -> Value {
        match format {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 => self.fours(format, place),
            BlockFormat::Q8_0 => {
                let offset = self.add(place, 2);
                let byte = self.byte(offset);
                let (q, scale) = (self.signed(byte), self.half(0));
                let q = self.float(q);
                self.b.multiply(scale, q)
            }
            BlockFormat::Q4K | BlockFormat::Q5K => self.fours_and_fives(format, place),
            BlockFormat::Q6K => self.sixes(place),
        }
    }

    fn fours(&mut self, format: BlockFormat, place: Value) -> Value {
        let (low, upper) = (self.modulo(place, 16), self.over(place, 16));
        let has_offset = format == BlockFormat::Q4_1;
        let offset = self.add(low, if has_offset { 4 } else { 2 });
        let q = self.nibble(offset, upper);
        let scale = self.half(0);
        if !has_offset {
            let q = self.add(q, -8);
            let q = self.float(q);
            return self.b.multiply(scale, q);
        }
        let (q, offset) = (self.float(q), self.half(2));
        let scaled = self.b.multiply(scale, q);
        self.b.add(scaled, offset)
    }

    fn fours_and_fives(&mut self, format: BlockFormat, place: Value) -> Value {
        let (group, within) = (self.over(place, 32), self.modulo(place, 32));
        let (pair, upper) = (self.over(group, 2), self.modulo(group, 2));
        let from = self.times(pair, 32);
        let from = self.b.add(from, within);
        let from = self.add(from, if format == BlockFormat::Q4K { 16 } else { 48 });
        let mut q = self.nibble(from, upper);
        if format == BlockFormat::Q5K {
            let at = self.add(within, 16);
            let byte = self.byte(at);
            let bit = self.shift_right(byte, group);
            let bit = self.and(bit, 1);
            let fifth = self.times(bit, 16);
            q = self.b.add(q, fifth);
        }
        let (scale, offset) = self.six_bits(group);
        let (q, scale, offset) = (self.float(q), self.float(scale), self.float(offset));
        let (scale_unit, offset_unit) = (self.half(0), self.half(2));
        let scale = self.b.multiply(scale_unit, scale);
        let offset = self.b.multiply(offset_unit, offset);
        let scaled = self.b.multiply(scale, q);
        self.b.subtract(scaled, offset)
    }

    /// The scale and the offset of a group of 32: of the first four as they are, of the others put together from two bytes.
    fn six_bits(&mut self, group: Value) -> (Value, Value) {
        let [before, at, after] = [0, 4, 8].map(|distance| {
            let offset = self.add(group, distance);
            self.byte(offset)
        });
        let plain = [self.and(at, 63), self.and(after, 63)];
        let four = number(self.b, 4, group);
        let upper = |block: &mut Self, byte: Value| {
            let six = number(block.b, 6, byte);
            let bits = block.shift_right(byte, six);
            block.times(bits, 16)
        };
        let (of_scale, of_offset) = (upper(self, before), upper(self, at));
        let (low, shifted) = (self.and(after, 15), self.shift_right(after, four));
        let joined = [self.b.add(low, of_scale), self.b.add(shifted, of_offset)];
        let is_plain = self.b.compare(Compare::Less, group, four);
        let [scale, offset] = [0, 1].map(|i| self.b.select(is_plain, plain[i], joined[i]));
        (scale, offset)
    }

    fn sixes(&mut self, place: Value) -> Value {
        let (side, within) = (self.over(place, 128), self.modulo(place, 32));
        let group = self.over(place, 32);
        let quarter = self.modulo(group, 4);
        let (column, upper) = (self.modulo(quarter, 2), self.over(quarter, 2));
        let (from, column) = (self.times(side, 64), self.times(column, 32));
        let from = self.b.add(from, column);
        let from = self.b.add(from, within);
        let low = self.nibble(from, upper);
        let at = self.times(side, 32);
        let at = self.b.add(at, within);
        let at = self.add(at, 128);
        let byte = self.byte(at);
        let shift = self.times(quarter, 2);
        let bits = self.shift_right(byte, shift);
        let bits = self.and(bits, 3);
        let high = self.times(bits, 16);
        let q = self.b.add(low, high);
        let q = self.add(q, -32);
        let at = self.over(place, 16);
        let at = self.add(at, 192);
        let byte = self.byte(at);
        let (scale, unit) = (self.signed(byte), self.half(208));
        let (q, scale) = (self.float(q), self.float(scale));
        let scale = self.b.multiply(unit, scale);
        self.b.multiply(scale, q)
    }
}
