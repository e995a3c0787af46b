//! The gradients of softmax and of its logarithm, from the results of the forward pass.

use super::{expect_floats, sizes_around, with_axis_last};
use crate::entry::{Case, Entry, Input, Values};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, call, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::Unary;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::reference::{Array, sum};
use crate::rows::{Piece, RowBlock, Rows, tile_width};
use crate::view::View;
use openmps_host::native::softmax as native;
use openmps_tile::{Builder, Combine, DType, Kernel, Scalar, Type, Value, dtype};

/// `y (dy - sum(y dy))` along an axis, where y is a softmax and dy its gradient; `dy - e^y sum(dy)`, where y is the logarithm of one.
///
/// Inputs: y and dy, of one shape and float type, as is the output.
#[derive(Clone, Debug)]
pub struct SoftmaxGradient {
    /// The axis of the forward pass; negative ones count from the end.
    pub axis: i64,
    /// Whether the forward pass computed the logarithm.
    pub logarithm: bool,
}

impl Operator for SoftmaxGradient {
    fn name(&self) -> &'static str {
        if self.logarithm { "log_softmax_gradient" } else { "softmax_gradient" }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        let (y, dy) = (&inputs[0], &inputs[1]);
        expect_floats(self.name(), y, self.axis)?;
        crate::layout::expect_dtype(self.name(), "dy", dy.dtype, &[y.dtype])?;
        expect_shape(self.name(), "dy", &dy.shape, &y.shape)?;
        Ok(vec![y.clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        crate::layout::check(self, inputs, outputs)?;
        let (operator, out) = (self.name(), &outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let axis = if out.rank() == 0 { vec![] } else { vec![axis_of(operator, self.axis, out.rank())?] };
        let (outer, inner) = sizes_around(out, &axis);
        if inner != 1 && (outer != 1 || queue.is_host()) {
            let last = SoftmaxGradient { axis: -1, logarithm: self.logarithm };
            return with_axis_last(&last, queue, inputs, out, axis[0]);
        }
        let [y, dy] = [0, 1].map(|i| Rows::of(operator, queue, &inputs[i], &axis));
        let (y, dy) = (y?, dy?);
        let Rows { count, length, .. } = y;
        let dense = inner == 1 && [&y, &dy].iter().all(|rows| rows.stride == 1 || length == 1);
        if queue.is_host() && dense && out.dtype == DType::F32 {
            let strides = [y.row_stride, dy.row_stride];
            let sizes = native::SoftmaxGradient { count, length, strides, logarithm: self.logarithm };
            return call(queue, operator, || {
                // SAFETY: rows of the views, which the frontend keeps alive; the output is dense.
                unsafe { native::softmax_gradient(&sizes, [y.address, dy.address], out.address) };
                Ok(())
            });
        }
        let width = tile_width(length);
        let key = Key::Other(operator, vec![out.dtype], vec![width.unwrap_or(0)]);
        let pipeline = program::get(operator, &key, || match width {
            Some(width) => kernel(operator, out.dtype, width, self.logarithm),
            None => long_kernel(operator, out.dtype, self.logarithm),
        })?;
        let to = if inner == 1 { [length as isize, 1] } else { [1, inner as isize] };
        let addresses = [y.address, dy.address, out.address, count, length].map(|number| number as u64);
        let strides = [[y.row_stride, y.stride], [dy.row_stride, dy.stride], to].concat();
        let arguments: Vec<u64> =
            addresses.into_iter().chain(strides.into_iter().map(|stride| stride as u64)).collect();
        let rows = width.map_or(1, RowBlock::rows_for);
        // SAFETY: rows and strides are those of the views, which the frontend keeps alive.
        unsafe { program::launch(queue, operator, &pipeline, [count.div_ceil(rows), 1, 1], &arguments) }
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (y, dy, g) = (b.inputs[0], b.inputs[1], b.dy()?);
        let axis = if b.shape(y).is_empty() { vec![] } else { vec![b.axis(self, self.axis, y)?] };
        if self.logarithm {
            return b.each([
                &|b| {
                    let (power, sum) = (b.unary(Unary::Exp, y)?, b.sum(dy, &axis, true)?);
                    let (weighted, sum) = (b.multiply(power, g)?, b.affine(sum, -1.0, 0.0)?);
                    b.multiply(weighted, sum)
                },
                &|b| {
                    let power = b.unary(Unary::Exp, y)?;
                    let weighted = b.multiply(power, g)?;
                    let sum = b.sum(weighted, &axis, true)?;
                    b.subtract(g, sum)
                },
            ]);
        }
        b.each([
            &|b| {
                let (through_y, through_sum) = (b.multiply(y, dy)?, b.multiply(y, g)?);
                let (of_dy, of_g) = (b.sum(through_y, &axis, true)?, b.sum(through_sum, &axis, true)?);
                let (centred, shared) = (b.subtract(dy, of_dy)?, b.multiply(dy, of_g)?);
                let own = b.multiply(g, centred)?;
                b.subtract(own, shared)
            },
            &|b| b.one(self.clone(), &[y, g]),
        ])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (y, dy) = (&inputs[0], &inputs[1]);
        let axis = if y.shape.is_empty() { 0 } else { self.axis.rem_euclid(y.shape.len() as i64) as usize };
        let size = |dims: &[usize]| dims.iter().product::<usize>();
        let (outer, inner) = (size(&y.shape[..axis]), size(y.shape.get(axis + 1..).unwrap_or_default()));
        let length = y.shape.get(axis).copied().unwrap_or(1);
        let mut data = dy.data.clone();
        for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
            let places = || (0..length).map(|k| (o * length + k) * inner + i);
            let sum = sum(places().map(|at| if self.logarithm { dy.data[at] } else { y.data[at] * dy.data[at] }));
            for at in places() {
                let (y, dy) = (y.data[at], dy.data[at]);
                data[at] = if self.logarithm { dy - y.exp() * sum } else { y * (dy - sum) };
            }
        }
        vec![Array::new(&y.shape, data, y.dtype)]
    }
}

/// What both kernels are given.
struct Parameters {
    y: Value,
    dy: Value,
    out: Value,
    count: Value,
    length: Value,
    /// Of y, dy and the output: from one row to the next, from one element to the next.
    strides: [[Value; 2]; 3],
}

impl Parameters {
    fn new(b: &mut Builder, dtype: DType) -> Parameters {
        let [y, dy, out] = ["y", "dy", "out"].map(|name| b.parameter(name, Type::pointer(dtype.into())));
        let mut number = |name: &str| b.parameter(name, Type::scalar(Scalar::I64));
        let (count, length) = (number("rows"), number("length"));
        let strides = ["y", "dy", "out"].map(|of| ["row", "column"].map(|by| number(&format!("{of}_{by}"))));
        Parameters { y, dy, out, count, length, strides }
    }

    /// A piece of y and dy in the type that is computed in.
    fn load(&self, b: &mut Builder, rows: &RowBlock, piece: &Piece, dtype: DType) -> [Value; 2] {
        let types = (dtype, dtype.compute());
        [(self.y, self.strides[0]), (self.dy, self.strides[1])]
            .map(|(base, strides)| rows.load(b, base, strides, piece, types))
    }

    fn store(&self, b: &mut Builder, rows: &RowBlock, piece: &Piece, result: Value, dtype: DType) {
        rows.store(b, self.out, self.strides[2], piece, result, (dtype.compute(), dtype));
    }
}

/// What is summed over a row.
fn summand(b: &mut Builder, [y, dy]: [Value; 2], logarithm: bool) -> Value {
    if logarithm { dy } else { b.multiply(y, dy) }
}

fn result(b: &mut Builder, [y, dy]: [Value; 2], sum: Value, logarithm: bool) -> Value {
    if logarithm {
        let power = b.exp(y);
        let share = b.multiply(power, sum);
        return b.subtract(dy, share);
    }
    let rest = b.subtract(dy, sum);
    b.multiply(y, rest)
}

/// Short rows: a tile holds several of them whole.
fn kernel(name: &str, dtype: DType, width: usize, logarithm: bool) -> Kernel {
    let mut b = Builder::new(name);
    let p = Parameters::new(&mut b, dtype);
    let rows = RowBlock::new(&mut b, RowBlock::rows_for(width), width, p.count);
    let zero = b.integer(0, Scalar::I64);
    let piece = rows.piece(&mut b, zero, p.length);
    let loaded = p.load(&mut b, &rows, &piece, dtype);
    let summed = summand(&mut b, loaded, logarithm);
    let summed = piece.or(&mut b, summed, 0.0);
    let sum = b.reduce(Combine::Sum, summed, 1);
    let sum = rows.along(&mut b, sum);
    let result = result(&mut b, loaded, sum, logarithm);
    p.store(&mut b, &rows, &piece, result, dtype);
    b.finish()
}

/// Long rows, a program each: the sum, then the results, piece by piece.
fn long_kernel(name: &str, dtype: DType, logarithm: bool) -> Kernel {
    const PIECE: usize = 4096;
    let mut b = Builder::new(name);
    let p = Parameters::new(&mut b, dtype);
    let rows = RowBlock::new(&mut b, 1, PIECE, p.count);
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(PIECE as i64, Scalar::I64));
    let bounds = [zero, p.length, step];
    let initial = b.constant(0.0, &Type::tile(dtype.compute().into(), &[1, PIECE]));
    let sums = b.for_loop(bounds, &[initial], |b, at, carried| {
        let piece = rows.piece(b, at, p.length);
        let loaded = p.load(b, &rows, &piece, dtype);
        let summed = summand(b, loaded, logarithm);
        let summed = piece.or(b, summed, 0.0);
        vec![b.add(carried[0], summed)]
    })[0];
    let sum = b.reduce(Combine::Sum, sums, 1);
    let sum = rows.along(&mut b, sum);
    b.for_loop(bounds, &[], |b, at, _| {
        let piece = rows.piece(b, at, p.length);
        let loaded = p.load(b, &rows, &piece, dtype);
        let result = result(b, loaded, sum, logarithm);
        p.store(b, &rows, &piece, result, dtype);
        vec![]
    });
    b.finish()
}

fn cases(logarithm: bool) -> Vec<Case> {
    let of = |axis: i64, dims: &[usize]| {
        // Probabilities are small and positive, their logarithms small and negative.
        let given: Vec<f64> = [0.5, 0.125, 0.25, 0.0625].map(|y: f64| if logarithm { y.ln() } else { y }).into();
        let y = Input::of(dims, Values::Given(given));
        Case::new(SoftmaxGradient { axis, logarithm }, vec![y, Input::new(dims)])
    };
    let mut cases: Vec<Case> = [1, 2, 7, 40, 1000, 8193].map(|n| of(-1, &[3, n])).into();
    cases.extend([of(0, &[5, 6]), of(1, &[2, 3, 4]), of(0, &[7]), of(-1, &[0, 4]), of(-1, &[]), of(1, &[700, 2, 2])]);
    cases
}

/// The gradient of softmax in the list of operators.
pub static GRADIENT: Entry = Entry {
    name: "softmax_gradient",
    summary: "The gradient of softmax from its result (MPSMatrixSoftMaxGradient).",
    dtypes: dtype::FLOATS,
    cases: || cases(false),
    tolerance: 16.0,
};

/// The gradient of log-softmax in the list of operators.
pub static LOGARITHM_GRADIENT: Entry = Entry {
    name: "log_softmax_gradient",
    summary: "The gradient of log-softmax from its result (MPSMatrixLogSoftMaxGradient).",
    dtypes: dtype::FLOATS,
    cases: || cases(true),
    tolerance: 16.0,
};
