//! Softmax and its logarithm along an axis: MPSMatrixSoftMax's work, on any axis and stride.

mod gradient;

pub use gradient::{GRADIENT, LOGARITHM_GRADIENT, SoftmaxGradient};

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, call};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::reference::{Array, sum};
use crate::rows::{LONGEST, RowBlock, Rows, tile_width};
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
        let x = &inputs[0];
        expect_floats(self.name(), x, self.axis)?;
        Ok(vec![x.clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        crate::layout::check(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], &outputs[0]);
        if x.is_empty() {
            return Ok(());
        }
        let axis = if x.rank() == 0 { vec![] } else { vec![axis_of(self.name(), self.axis, x.rank())?] };
        let operator = self.name();
        let (outer, inner) = sizes_around(out, &axis);
        // Of the dense output a row is one element of `outer` and one of `inner`; one even stride needs one of them to be 1. The host device's
        // kernel takes rows whose elements follow each other: three pictures of 300 x 300 took 17 ms by strides, Paddle's CPU 2.6.
        if inner != 1 && (outer != 1 || queue.is_host()) {
            let last = Softmax { axis: -1, logarithm: self.logarithm };
            return with_axis_last(&last, queue, inputs, out, axis[0]);
        }
        let from = Rows::of(operator, queue, x, &axis)?;
        let to_strides = if inner == 1 { [from.length as isize, 1] } else { [1, inner as isize] };
        let vendor_call = || {
            let rows = |address: usize, step: isize| {
                matrices((address, x.dtype), [1, from.count, from.length], [0, step, from.stride])
            };
            let (input, false) = rows(from.address, from.row_stride)? else { return None };
            let (out, false) = rows(out.address, from.length as isize)? else { return None };
            (inner == 1).then_some(VendorCall::Softmax { input, out, logarithm: self.logarithm })
        };
        if try_vendor(queue, operator, vendor_call)? {
            return Ok(());
        }
        let dense = inner == 1 && (from.stride == 1 || from.length == 1);
        if queue.is_host() && dense && x.dtype == DType::F32 && from.length <= LONGEST {
            let Rows { count, length, row_stride: stride, .. } = from;
            let sizes = native::Softmax { count, length, stride, logarithm: self.logarithm };
            return call(queue, operator, || {
                // SAFETY: rows of the view, which the frontend keeps alive; the output is dense.
                unsafe { native::softmax(&sizes, from.address, out.address) };
                Ok(())
            });
        }
        let width = tile_width(from.length);
        let key = Key::Other(operator, vec![x.dtype], vec![width.unwrap_or(0)]);
        let pipeline = program::get(operator, &key, || match width {
            Some(width) => kernel(operator, x.dtype, width, self.logarithm),
            None => long_kernel(operator, x.dtype, self.logarithm),
        })?;
        let rows = width.map_or(1, RowBlock::rows_for);
        let arguments = [
            from.address as u64,
            out.address as u64,
            from.count as u64,
            from.length as u64,
            from.row_stride as u64,
            from.stride as u64,
            to_strides[0] as u64,
            to_strides[1] as u64,
        ];
        // SAFETY: rows and strides are those of the views, which the frontend keeps alive.
        unsafe { program::launch(queue, operator, &pipeline, [from.count.div_ceil(rows), 1, 1], &arguments) }
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
        if x.shape.is_empty() {
            return vec![Array::new(&[], vec![if self.logarithm { 0.0 } else { 1.0 }], x.dtype)];
        }
        let axis = self.axis.rem_euclid(x.shape.len() as i64) as usize;
        let (outer, inner) = (x.shape[..axis].iter().product::<usize>(), x.shape[axis + 1..].iter().product::<usize>());
        let length = x.shape[axis];
        let mut data = x.data.clone();
        for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
            let place = |k: usize| (o * length + k) * inner + i;
            let largest = (0..length).map(|k| x.data[place(k)]).fold(f64::NEG_INFINITY, f64::max);
            let sum = sum((0..length).map(|k| (x.data[place(k)] - largest).exp()));
            for k in 0..length {
                let shifted = x.data[place(k)] - largest;
                data[place(k)] = if self.logarithm { shifted - sum.ln() } else { shifted.exp() / sum };
            }
        }
        vec![Array::new(&x.shape, data, x.dtype)]
    }
}

/// Sizes before and after the axis.
fn sizes_around(x: &View, axis: &[usize]) -> (usize, usize) {
    match axis {
        [axis] => (x.shape[..*axis].iter().product(), x.shape[axis + 1..].iter().product()),
        _ => (1, 1),
    }
}

/// Refuses what has no such axis, or no fractions.
fn expect_floats(operator: &'static str, x: &Meta, axis: i64) -> Result<()> {
    if !x.dtype.is_float() {
        return Err(Error::DType { operator, what: "x", got: x.dtype, expected: "a float type".into() });
    }
    if !x.shape.is_empty() {
        axis_of(operator, axis, x.shape.len())?;
    }
    Ok(())
}

/// An operator along the last axis, of copies whose last axis is the one that counts.
fn with_axis_last(operator: &dyn Operator, queue: &Queue, inputs: &[View], out: &View, axis: usize) -> Result<()> {
    let name = operator.name();
    let order: Vec<usize> = (0..out.rank()).filter(|&other| other != axis).chain([axis]).collect();
    let allocate =
        || queue.allocate(out.len() * out.dtype.size()).map_err(|source| Error::Device { operator: name, source });
    let buffers = inputs.iter().chain([out]).map(|_| allocate()).collect::<Result<Vec<Buffer>>>()?;
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

struct Parameters {
    x: Value,
    out: Value,
    count: Value,
    length: Value,
    from: [Value; 2],
    to: [Value; 2],
}

fn parameters(b: &mut Builder, dtype: DType) -> Parameters {
    let pointer = Type::pointer(dtype.into());
    let (x, out) = (b.parameter("x", pointer.clone()), b.parameter("out", pointer));
    let [count, length, from_row, from_column, to_row, to_column] =
        ["rows", "length", "from_row", "from_column", "to_row", "to_column"]
            .map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    Parameters { x, out, count, length, from: [from_row, from_column], to: [to_row, to_column] }
}

/// Short rows: a tile holds several of them whole.
fn kernel(name: &str, dtype: DType, width: usize, logarithm: bool) -> Kernel {
    let mut b = Builder::new(name);
    let p = parameters(&mut b, dtype);
    let compute = dtype.compute();
    let rows = RowBlock::new(&mut b, RowBlock::rows_for(width), width, p.count);
    let zero = b.integer(0, Scalar::I64);
    let piece = rows.piece(&mut b, zero, p.length);
    let x = rows.load(&mut b, p.x, p.from, &piece, (dtype, compute));
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
    rows.store(&mut b, p.out, p.to, &piece, result, (compute, dtype));
    b.finish()
}

/// Long rows, a program each: the largest, the sum, then the results, piece by piece.
fn long_kernel(name: &str, dtype: DType, logarithm: bool) -> Kernel {
    const PIECE: usize = 4096;
    let mut b = Builder::new(name);
    let p = parameters(&mut b, dtype);
    let compute = dtype.compute();
    let rows = RowBlock::new(&mut b, 1, PIECE, p.count);
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(PIECE as i64, Scalar::I64));
    let bounds = [zero, p.length, step];
    let tile = Type::tile(compute.into(), &[1, PIECE]);

    let initial = b.constant(f64::NEG_INFINITY, &tile);
    let largest = b.for_loop(bounds, &[initial], |b, at, carried| {
        let piece = rows.piece(b, at, p.length);
        let x = rows.load(b, p.x, p.from, &piece, (dtype, compute));
        let x = piece.or(b, x, f64::NEG_INFINITY);
        vec![b.maximum(carried[0], x)]
    })[0];
    let largest = b.reduce(Combine::Maximum, largest, 1);
    let largest = rows.along(&mut b, largest);
    let initial = b.constant(0.0, &tile);
    let sum = b.for_loop(bounds, &[initial], |b, at, carried| {
        let piece = rows.piece(b, at, p.length);
        let x = rows.load(b, p.x, p.from, &piece, (dtype, compute));
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
        let x = rows.load(b, p.x, p.from, &piece, (dtype, compute));
        let shifted = b.subtract(x, largest);
        let result = if logarithm {
            b.subtract(shifted, scale)
        } else {
            let exponential = b.exp(shifted);
            b.multiply(exponential, scale)
        };
        rows.store(b, p.out, p.to, &piece, result, (compute, dtype));
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
