//! The gradients of softmax and of its logarithm, from the results of the forward pass.

use super::{Parameters, expect_floats, rows, rows_of_reference};
use crate::entry::{Case, Entry, Input, Values};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{call, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::Unary;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::{Array, sum};
use crate::rows::RowBlock;
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
        expect_dtype(self.name(), "dy", dy.dtype, &[y.dtype])?;
        expect_shape(self.name(), "dy", &dy.shape, &y.shape)?;
        Ok(vec![y.clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        crate::layout::check(self, inputs, outputs)?;
        let (operator, out) = (self.name(), &outputs[0]);
        let last = SoftmaxGradient { axis: -1, logarithm: self.logarithm };
        let Some(rows) = rows(&last, self.axis, queue, inputs, out)? else { return Ok(()) };
        if rows.are_native(queue, out.dtype) {
            let (y, dy) = (&rows.inputs[0], &rows.inputs[1]);
            let strides = [y.row_stride, dy.row_stride];
            let sizes =
                native::SoftmaxGradient { count: y.count, length: y.length, strides, logarithm: self.logarithm };
            return call(queue, operator, || {
                // SAFETY: rows of the views, which the frontend keeps alive; the output is dense.
                unsafe { native::softmax_gradient(&sizes, [y.address, dy.address], out.address) };
                Ok(())
            });
        }
        rows.launch(operator, queue, out, |width| match width {
            Some(width) => kernel(operator, out.dtype, width, self.logarithm),
            None => long_kernel(operator, out.dtype, self.logarithm),
        })
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
        let mut data = dy.data.clone();
        for row in rows_of_reference(y, self.axis) {
            let summand = |&at: &usize| if self.logarithm { dy.data[at] } else { y.data[at] * dy.data[at] };
            let sum = sum(row.iter().map(summand));
            for at in row {
                let (y, dy) = (y.data[at], dy.data[at]);
                data[at] = if self.logarithm { dy - y.exp() * sum } else { y * (dy - sum) };
            }
        }
        vec![Array::new(&y.shape, data, y.dtype)]
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
    let p = Parameters::new(&mut b, ["y", "dy"], dtype);
    let rows = RowBlock::new(&mut b, RowBlock::rows_for(width), width, p.count);
    let zero = b.integer(0, Scalar::I64);
    let piece = rows.piece(&mut b, zero, p.length);
    let loaded = p.load(&mut b, &rows, &piece);
    let summed = summand(&mut b, loaded, logarithm);
    let summed = piece.or(&mut b, summed, 0.0);
    let sum = b.reduce(Combine::Sum, summed, 1);
    let sum = rows.along(&mut b, sum);
    let result = result(&mut b, loaded, sum, logarithm);
    p.store(&mut b, &rows, &piece, result);
    b.finish()
}

/// Long rows, a program each: the sum, then the results, piece by piece.
fn long_kernel(name: &str, dtype: DType, logarithm: bool) -> Kernel {
    const PIECE: usize = 4096;
    let mut b = Builder::new(name);
    let p = Parameters::new(&mut b, ["y", "dy"], dtype);
    let rows = RowBlock::new(&mut b, 1, PIECE, p.count);
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(PIECE as i64, Scalar::I64));
    let bounds = [zero, p.length, step];
    let initial = b.constant(0.0, &Type::tile(dtype.compute().into(), &[1, PIECE]));
    let sums = b.for_loop(bounds, &[initial], |b, at, carried| {
        let piece = rows.piece(b, at, p.length);
        let loaded = p.load(b, &rows, &piece);
        let summed = summand(b, loaded, logarithm);
        let summed = piece.or(b, summed, 0.0);
        vec![b.add(carried[0], summed)]
    })[0];
    let sum = b.reduce(Combine::Sum, sums, 1);
    let sum = rows.along(&mut b, sum);
    b.for_loop(bounds, &[], |b, at, _| {
        let piece = rows.piece(b, at, p.length);
        let loaded = p.load(b, &rows, &piece);
        let result = result(b, loaded, sum, logarithm);
        p.store(b, &rows, &piece, result);
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
