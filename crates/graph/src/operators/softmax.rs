//! Softmax and its logarithm along an axis: MPSMatrixSoftMax's work, on any axis and stride.

mod gradient;

pub use gradient::{GRADIENT, LOGARITHM_GRADIENT, SoftmaxGradient};

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, call, expect_float, expect_inputs};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::reference::{Array, sum};
use crate::rows::{LONGEST, Piece, RowBlock, Rows, tile_width};
use crate::vendor::{matrices, try_vendor};
use crate::view::View;
use openmps_host::native::softmax as native;
use openmps_runtime::Buffer;
use openmps_runtime::vendor::VendorCall;
use openmps_tile::{Builder, Combine, DType, Kernel, Scalar, Type, Value, dtype};

/// `e^x / sum(e^x)` along an axis, or its logarithm.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// The axis; negative ones count from the end.
    pub axis: i64,
    /// Whether the logarithm is computed.
    pub logarithm: bool,
}

impl Operator for Softmax {
    fn name(&self) -> &'static str {
        if self.logarithm { "log_softmax" } else { "softmax" }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let x = &inputs[0];
        expect_floats(self.name(), x, self.axis)?;
        Ok(vec![x.clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        crate::layout::check(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], &outputs[0]);
        let operator = self.name();
        let last = Softmax { axis: -1, logarithm: self.logarithm };
        let Some(rows) = rows(&last, self.axis, queue, inputs, out)? else { return Ok(()) };
        let from = &rows.inputs[0];
        let vendor_call = || {
            let matrix = |address: usize, step: isize| {
                matrices((address, x.dtype), [1, from.count, from.length], [0, step, from.stride])
            };
            let (input, false) = matrix(from.address, from.row_stride)? else { return None };
            let (out, false) = matrix(out.address, from.length as isize)? else { return None };
            (rows.inner == 1).then_some(VendorCall::Softmax { input, out, logarithm: self.logarithm })
        };
        if try_vendor(queue, operator, vendor_call)? {
            return Ok(());
        }
        if rows.are_native(queue, x.dtype) && from.length <= LONGEST {
            let Rows { count, length, row_stride: stride, .. } = *from;
            let sizes = native::Softmax { count, length, stride, logarithm: self.logarithm };
            return call(queue, operator, || {
                // SAFETY: rows of the view, which the frontend keeps alive; the output is dense.
                unsafe { native::softmax(&sizes, from.address, out.address) };
                Ok(())
            });
        }
        rows.launch(operator, queue, out, |width| match width {
            Some(width) => kernel(operator, x.dtype, width, self.logarithm),
            None => long_kernel(operator, x.dtype, self.logarithm),
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (y, dy) = (b.outputs[0], b.dy()?);
        if b.shape(y).is_empty() {
            return Ok(vec![Some(b.zeros_like(y)?)]);
        }
        Ok(vec![Some(b.one(SoftmaxGradient { axis: self.axis, logarithm: self.logarithm }, &[y, dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let mut data = x.data.clone();
        for row in rows_of_reference(x, self.axis) {
            let largest = row.iter().map(|&at| x.data[at]).fold(f64::NEG_INFINITY, f64::max);
            let sum = sum(row.iter().map(|&at| (x.data[at] - largest).exp()));
            for at in row {
                let shifted = x.data[at] - largest;
                data[at] = if self.logarithm { shifted - sum.ln() } else { shifted.exp() / sum };
            }
        }
        vec![Array::new(&x.shape, data, x.dtype)]
    }
}

/// Where the elements of each row along an axis are; a tensor without axes is a row of its own.
fn rows_of_reference(x: &Array, axis: i64) -> Vec<Vec<usize>> {
    let axis = if x.shape.is_empty() { 0 } else { axis.rem_euclid(x.shape.len() as i64) as usize };
    let size = |dims: &[usize]| dims.iter().product::<usize>();
    let (outer, inner) = (size(&x.shape[..axis]), size(x.shape.get(axis + 1..).unwrap_or_default()));
    let length = x.shape.get(axis).copied().unwrap_or(1);
    let row = |o: usize, i: usize| (0..length).map(|k| (o * length + k) * inner + i).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| row(o, i))).collect()
}

/// Refuses what has no such axis, or no fractions.
fn expect_floats(operator: &'static str, x: &Meta, axis: i64) -> Result<()> {
    expect_float(operator, "x", x.dtype)?;
    if !x.shape.is_empty() {
        axis_of(operator, axis, x.shape.len())?;
    }
    Ok(())
}

/// An operator along the last axis, of copies whose last axis is the one that counts.
fn with_axis_last(operator: &dyn Operator, queue: &Queue, inputs: &[View], out: &View, axis: usize) -> Result<()> {
    let name = operator.name();
    let order: Vec<usize> = (0..out.rank()).filter(|&other| other != axis).chain([axis]).collect();
    let allocate = |_| queue.allocate(out.len() * out.dtype.size());
    let buffers = inputs.iter().chain([out]).map(allocate).collect::<std::result::Result<Vec<Buffer>, _>>();
    let buffers = buffers.map_err(|source| Error::Device { operator: name, source })?;
    let shape = out.permuted(&order).shape;
    let dense = |memory: &Buffer| View::dense(memory.address(), out.dtype, &shape);
    let rows = buffers.iter().map(dense).collect::<Result<Vec<View>>>()?;
    movement::run(queue, name, |mover| {
        inputs.iter().zip(&rows).try_for_each(|(x, rows)| mover.copy(&x.permuted(&order), rows))
    })?;
    let (of_inputs, of_out) = rows.split_at(inputs.len());
    operator.run(queue, of_inputs, of_out)?;
    movement::run(queue, name, |mover| mover.copy(&of_out[0], &out.permuted(&order)))
}

/// The inputs of a call as rows along the axis.
struct RowsOf {
    inputs: Vec<Rows>,
    /// Elements of the output from one of a row to the next.
    inner: usize,
}

/// The rows of a call; none where it is done: for tensors of nothing, and where `last`, the operator along the last axis, has been run on turned copies.
///
/// Of the dense output a row is one element of those before the axis and one of those behind it; one even stride needs one of them to be 1. The host
/// device's kernel takes rows whose elements follow each other: three pictures of 300 x 300 took 17 ms by strides, Paddle's CPU 2.6.
fn rows(last: &dyn Operator, axis: i64, queue: &Queue, inputs: &[View], out: &View) -> Result<Option<RowsOf>> {
    let operator = last.name();
    if out.is_empty() {
        return Ok(None);
    }
    let axis = if out.rank() == 0 { None } else { Some(axis_of(operator, axis, out.rank())?) };
    let size = |dims: &[usize]| dims.iter().product::<usize>();
    let (outer, inner) = axis.map_or((1, 1), |axis| (size(&out.shape[..axis]), size(&out.shape[axis + 1..])));
    if let Some(axis) = axis.filter(|_| inner != 1 && (outer != 1 || queue.is_host())) {
        with_axis_last(last, queue, inputs, out, axis)?;
        return Ok(None);
    }
    let rows = |x: &View| Rows::of(operator, queue, x, axis.as_slice());
    Ok(Some(RowsOf { inputs: inputs.iter().map(rows).collect::<Result<_>>()?, inner }))
}

impl RowsOf {
    /// Whether the host's own kernels take them.
    fn are_native(&self, queue: &Queue, dtype: DType) -> bool {
        let dense = |rows: &Rows| rows.stride == 1 || rows.length == 1;
        queue.is_host() && dtype == DType::F32 && self.inner == 1 && self.inputs.iter().all(dense)
    }

    /// Launches the kernel that `build` makes for rows of a width, or for long ones; its parameters are [`Parameters`].
    fn launch(
        &self,
        operator: &'static str,
        queue: &Queue,
        out: &View,
        build: impl FnOnce(Option<usize>) -> Kernel,
    ) -> Result<()> {
        let Rows { count, length, .. } = self.inputs[0];
        let width = tile_width(length);
        let key = Key::Other(operator, vec![out.dtype], vec![width.unwrap_or(0)]);
        let pipeline = program::get(operator, &key, || build(width))?;
        let mut arguments: Vec<u64> = self.inputs.iter().map(|rows| rows.address as u64).collect();
        arguments.extend([out.address, count, length].map(|number| number as u64));
        let to = if self.inner == 1 { [length as isize, 1] } else { [1, self.inner as isize] };
        let strides = self.inputs.iter().map(|rows| [rows.row_stride, rows.stride]).chain([to]);
        arguments.extend(strides.flatten().map(|stride| stride as u64));
        let rows = width.map_or(1, RowBlock::rows_for);
        // SAFETY: rows and strides are those of the views, which the frontend keeps alive.
        unsafe { program::launch(queue, operator, &pipeline, [count.div_ceil(rows), 1, 1], &arguments) }
    }
}

/// What kernels of these inputs are given: the tensors, rows and their length, then of each tensor how far it is from one row to the next and from one
/// element to the next.
struct Parameters<const INPUTS: usize> {
    inputs: [Value; INPUTS],
    out: Value,
    count: Value,
    length: Value,
    from: [[Value; 2]; INPUTS],
    to: [Value; 2],
    dtype: DType,
}

impl<const INPUTS: usize> Parameters<INPUTS> {
    fn new(b: &mut Builder, names: [&str; INPUTS], dtype: DType) -> Parameters<INPUTS> {
        let pointer = Type::pointer(dtype.into());
        let inputs = names.map(|name| b.parameter(name, pointer.clone()));
        let out = b.parameter("out", pointer);
        let mut number = |name: &str| b.parameter(name, Type::scalar(Scalar::I64));
        let (count, length) = (number("rows"), number("length"));
        let mut strides = |of: &str| ["row", "column"].map(|by| number(&format!("{of}_{by}")));
        let (from, to) = (names.map(&mut strides), strides("out"));
        Parameters { inputs, out, count, length, from, to, dtype }
    }

    /// A piece of every input in the type that is computed in.
    fn load(&self, b: &mut Builder, rows: &RowBlock, piece: &Piece) -> [Value; INPUTS] {
        let types = (self.dtype, self.dtype.compute());
        std::array::from_fn(|i| rows.load(b, self.inputs[i], self.from[i], piece, types))
    }

    fn store(&self, b: &mut Builder, rows: &RowBlock, piece: &Piece, result: Value) {
        rows.store(b, self.out, self.to, piece, result, (self.dtype.compute(), self.dtype));
    }
}

/// Short rows: a tile holds several of them whole.
fn kernel(name: &str, dtype: DType, width: usize, logarithm: bool) -> Kernel {
    let mut b = Builder::new(name);
    let p = Parameters::new(&mut b, ["x"], dtype);
    let rows = RowBlock::new(&mut b, RowBlock::rows_for(width), width, p.count);
    let zero = b.integer(0, Scalar::I64);
    let piece = rows.piece(&mut b, zero, p.length);
    let [x] = p.load(&mut b, &rows, &piece);
    let inside = piece.or(&mut b, x, f64::NEG_INFINITY);
    let largest = b.reduce(Combine::Maximum, inside, 1);
    let largest = rows.along(&mut b, largest);
    let shifted = b.subtract(x, largest);
    let exponential = b.exp(shifted);
    let inside = piece.or(&mut b, exponential, 0.0);
    let sum = b.reduce(Combine::Sum, inside, 1);
    let result = if logarithm {
        let log = b.log(sum);
        let log = rows.along(&mut b, log);
        b.subtract(shifted, log)
    } else {
        // One division a row; the product differs from the quotient by half a unit in the last place.
        let one = b.constant_like(1.0, sum);
        let inverse = b.divide(one, sum);
        let inverse = rows.along(&mut b, inverse);
        b.multiply(exponential, inverse)
    };
    p.store(&mut b, &rows, &piece, result);
    b.finish()
}

/// Long rows, a program each: the largest, the sum, then the results, piece by piece.
fn long_kernel(name: &str, dtype: DType, logarithm: bool) -> Kernel {
    const PIECE: usize = 4096;
    let mut b = Builder::new(name);
    let p = Parameters::new(&mut b, ["x"], dtype);
    let rows = RowBlock::new(&mut b, 1, PIECE, p.count);
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(PIECE as i64, Scalar::I64));
    let bounds = [zero, p.length, step];
    let tile = Type::tile(dtype.compute().into(), &[1, PIECE]);

    let initial = b.constant(f64::NEG_INFINITY, &tile);
    let largest = b.for_loop(bounds, &[initial], |b, at, carried| {
        let piece = rows.piece(b, at, p.length);
        let [x] = p.load(b, &rows, &piece);
        let x = piece.or(b, x, f64::NEG_INFINITY);
        vec![b.maximum(carried[0], x)]
    })[0];
    let largest = b.reduce(Combine::Maximum, largest, 1);
    let largest = rows.along(&mut b, largest);
    let initial = b.constant(0.0, &tile);
    let sum = b.for_loop(bounds, &[initial], |b, at, carried| {
        let piece = rows.piece(b, at, p.length);
        let [x] = p.load(b, &rows, &piece);
        let shifted = b.subtract(x, largest);
        let exponential = b.exp(shifted);
        let exponential = piece.or(b, exponential, 0.0);
        vec![b.add(carried[0], exponential)]
    })[0];
    let sum = b.reduce(Combine::Sum, sum, 1);
    let scale = if logarithm {
        b.log(sum)
    } else {
        let one = b.constant_like(1.0, sum);
        b.divide(one, sum)
    };
    let scale = rows.along(&mut b, scale);
    b.for_loop(bounds, &[], |b, at, _| {
        let piece = rows.piece(b, at, p.length);
        let [x] = p.load(b, &rows, &piece);
        let shifted = b.subtract(x, largest);
        let result = if logarithm {
            b.subtract(shifted, scale)
        } else {
            let exponential = b.exp(shifted);
            b.multiply(exponential, scale)
        };
        p.store(b, &rows, &piece, result);
        vec![]
    });
    b.finish()
}

fn cases(logarithm: bool) -> Vec<Case> {
    let of = |axis: i64, dims: &[usize]| Case::new(Softmax { axis, logarithm }, vec![Input::new(dims)]);
    let mut cases: Vec<Case> = [1, 2, 7, 40, 1000, 1024, 4097, 8193, 20000].map(|n| of(-1, &[3, n])).into();
    cases.extend([
        of(0, &[5, 6]),
        of(1, &[2, 3, 4]),
        of(0, &[7]),
        of(-1, &[0, 4]),
        of(-1, &[]),
        of(-2, &[1, 2, 9, 33]),
        of(1, &[700, 2, 2]),
        of(0, &[3, 90]),
    ]);
    let wide = Input::of(&[4, 50], Values::Given(vec![-1e30, 80.0, 100.0, -90.0, 0.0]));
    cases.push(Case::new(Softmax { axis: -1, logarithm }, vec![wide]));
    cases
}

/// Softmax in the list of operators.
pub static ENTRY: Entry = Entry {
    name: "softmax",
    summary: "e to the power of x over the sum of these along an axis (MPSMatrixSoftMax).",
    dtypes: dtype::FLOATS,
    cases: || cases(false),
    tolerance: 16.0,
};

/// Log-softmax in the list of operators.
pub static LOGARITHM: Entry = Entry {
    name: "log_softmax",
    summary: "The logarithm of softmax (MPSMatrixLogSoftMax).",
    dtypes: dtype::FLOATS,
    cases: || cases(true),
    tolerance: 16.0,
};
