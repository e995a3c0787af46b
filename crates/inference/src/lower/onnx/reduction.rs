//! Reductions, softmax, sums along an axis, and choices along one.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value, axis_of, size_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::arg_reduce::ArgReduce;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::flip::Flip;
use openmps::operators::operators::reduce::{Reduce, Reduction};
use openmps::operators::operators::scan::{Kind, Scan};
use openmps::operators::operators::sequence::OneHot;
use openmps::operators::operators::softmax::Softmax;
use openmps::operators::operators::sort::TopK;
use std::slice::from_ref;

pub(super) const TABLE: Table = &[
    ("ReduceSum", |lowering, operation| reduce(lowering, operation, Reduction::Sum)),
    ("ReduceMean", |lowering, operation| reduce(lowering, operation, Reduction::Mean)),
    ("ReduceMax", |lowering, operation| reduce(lowering, operation, Reduction::Maximum)),
    ("ReduceMin", |lowering, operation| reduce(lowering, operation, Reduction::Minimum)),
    ("ReduceProd", |lowering, operation| reduce(lowering, operation, Reduction::Product)),
    ("ReduceL1", |lowering, operation| reduce(lowering, operation, Reduction::SumOfAbsolutes)),
    ("ReduceL2", |lowering, operation| reduce(lowering, operation, Reduction::Norm)),
    ("ReduceSumSquare", |lowering, operation| reduce(lowering, operation, Reduction::SumOfSquares)),
    ("ReduceLogSum", log_sum),
    ("ReduceLogSumExp", log_sum_exp),
    ("Softmax", |lowering, operation| softmax(lowering, operation, false)),
    ("LogSoftmax", |lowering, operation| softmax(lowering, operation, true)),
    ("Hardmax", hardmax),
    ("ArgMax", |lowering, operation| extreme(lowering, operation, true)),
    ("ArgMin", |lowering, operation| extreme(lowering, operation, false)),
    ("TopK", top_k),
    ("CumSum", |lowering, operation| running(lowering, operation, Kind::Sum)),
    ("CumProd", |lowering, operation| running(lowering, operation, Kind::Product)),
];

/// Over which axes; none where nothing is reduced.
pub(super) struct Over {
    pub axes: Vec<i64>,
    pub keep_dims: bool,
}

/// The axes are an input or an attribute; where there are none, all are meant, or none of them.
fn over(lowering: &mut Lowering, operation: &Operation) -> Result<Option<Over>> {
    let axes = lowering.integers(operation, 1, "axes")?.unwrap_or_default();
    if axes.is_empty() && operation.flag("noop_with_empty_axes", false)? {
        return Ok(None);
    }
    Ok(Some(Over { axes, keep_dims: operation.flag("keepdims", true)? }))
}

impl Lowering<'_> {
    pub(super) fn reduced(&mut self, reduction: Reduction, x: &Value, over: &Over) -> Result<Value> {
        let output = Some(self.data_type(x)?);
        let rank = self.shape(x)?.len();
        // A number has no axes: it is the only one of its row.
        let x = if rank == 0 { self.reshape(x, &[1])? } else { x.clone() };
        let keep_dims = over.keep_dims && rank > 0;
        // Of integers the other reductions are sums of products.
        match reduction {
            Reduction::SumOfSquares | Reduction::SumOfAbsolutes | Reduction::Norm | Reduction::Mean
                if !self.data_type(&x)?.is_float() =>
            {
                self.reduced_integers(reduction, &x, over)
            }
            Reduction::Sum | Reduction::Product => {
                self.one(Reduce { reduction, axes: over.axes.clone(), keep_dims, output }, from_ref(&x))
            }
            _ => self.reduce(reduction, &x, &over.axes, keep_dims),
        }
    }

    fn reduced_integers(&mut self, reduction: Reduction, x: &Value, over: &Over) -> Result<Value> {
        let dtype = self.data_type(x)?;
        match reduction {
            Reduction::SumOfSquares => {
                let square = self.unary(Unary::Square, x)?;
                self.reduced(Reduction::Sum, &square, over)
            }
            Reduction::SumOfAbsolutes if dtype.bounds().0 < 0.0 => {
                let size = self.unary(Unary::Abs, x)?;
                self.reduced(Reduction::Sum, &size, over)
            }
            Reduction::SumOfAbsolutes => self.reduced(Reduction::Sum, x, over),
            _ => {
                let wide = self.cast(x, DataType::F64)?;
                let result = self.reduced(reduction, &wide, over)?;
                self.cast(&result, dtype)
            }
        }
    }
}

fn reduce(lowering: &mut Lowering, operation: &Operation, reduction: Reduction) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let result = match (over(lowering, operation)?, reduction) {
        (Some(over), _) => lowering.reduced(reduction, &x, &over)?,
        (None, Reduction::SumOfSquares) => lowering.unary(Unary::Square, &x)?,
        (None, Reduction::SumOfAbsolutes | Reduction::Norm) => lowering.unary(Unary::Abs, &x)?,
        (None, _) => x,
    };
    Ok(vec![result])
}

fn log_sum(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let sum = reduce(lowering, operation, Reduction::Sum)?.remove(0);
    Ok(vec![lowering.unary(Unary::Log, &sum)?])
}

/// The largest number and the logarithm of the sum of what the others are beside it.
fn log_sum_exp(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let Some(Over { axes, keep_dims }) = over(lowering, operation)? else { return Ok(vec![x]) };
    let kept = Over { axes: axes.clone(), keep_dims: true };
    let largest = lowering.reduced(Reduction::Maximum, &x, &kept)?;
    // Of rows of infinities the difference would be none.
    let most = largest_finite(lowering.data_type(&x)?);
    let [least, most] = [lowering.number_like(&x, -most)?, lowering.number_like(&x, most)?];
    let finite = lowering.binary(Binary::Fmax, &largest, &least)?;
    let finite = lowering.binary(Binary::Fmin, &finite, &most)?;
    let difference = lowering.binary(Binary::Subtract, &x, &finite)?;
    let powers = lowering.unary(Unary::Exp, &difference)?;
    let over = Over { axes, keep_dims };
    let sum = lowering.reduced(Reduction::Sum, &powers, &over)?;
    let logarithm = lowering.unary(Unary::Log, &sum)?;
    let shape = lowering.shape(&logarithm)?;
    let finite = lowering.reshape(&finite, &shape)?;
    Ok(vec![lowering.binary(Binary::Add, &logarithm, &finite)?])
}

/// The largest number of a type of floats that is not infinite.
fn largest_finite(dtype: DataType) -> f64 {
    match dtype {
        DataType::F16 => openmps::f16::MAX.to_f64(),
        DataType::BF16 => openmps::bf16::MAX.to_f64(),
        DataType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    }
}

/// Before set 13 the dimensions from `axis` on are one row.
fn softmax(lowering: &mut Lowering, operation: &Operation, logarithm: bool) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    if lowering.opset() >= 13 {
        return Ok(vec![lowering.one(Softmax { axis: operation.integer("axis", -1)?, logarithm }, &[x])?]);
    }
    let (rows, shape) = rows(lowering, operation, &x)?;
    let y = lowering.one(Softmax { axis: -1, logarithm }, &[rows])?;
    Ok(vec![lowering.reshape(&y, &shape)?])
}

/// A matrix whose rows are the dimensions from `axis` on, and the shape before.
fn rows(lowering: &mut Lowering, operation: &Operation, x: &Value) -> Result<(Value, Vec<usize>)> {
    let (shape, axis) = (lowering.shape(x)?, lowering.axis(operation, x, 1)?);
    let rows = lowering.reshape(x, &[shape[..axis].iter().product(), shape[axis..].iter().product()])?;
    Ok((rows, shape))
}

/// A one at the first of the largest elements, zeros elsewhere.
fn hardmax(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let dtype = lowering.data_type(&x)?;
    let (line, shape) = match lowering.opset() {
        13.. => (x.clone(), lowering.shape(&x)?),
        _ => rows(lowering, operation, &x)?,
    };
    let axis = if lowering.opset() >= 13 { lowering.axis(operation, &x, -1)? } else { 1 };
    let rank = lowering.shape(&line)?.len() as i64;
    let place = ArgReduce { largest: true, axis: Some(axis as i64), keep_dims: false, dtype: DataType::I64 };
    let place = lowering.one(place, from_ref(&line))?;
    let classes = lowering.shape(&line)?.get(axis).copied().unwrap_or(1);
    let ones = lowering.one(OneHot { classes, dtype }, &[place])?;
    let mut order: Vec<i64> = (0..rank - 1).collect();
    order.insert(axis, rank - 1);
    let ones = lowering.transpose(&ones, &order)?;
    Ok(vec![lowering.reshape(&ones, &shape)?])
}

fn extreme(lowering: &mut Lowering, operation: &Operation, largest: bool) -> Result<Vec<Value>> {
    let mut x = lowering.input(operation, 0)?;
    let axis = lowering.axis(operation, &x, 0)?;
    let size = lowering.shape(&x)?.get(axis).copied().unwrap_or(1);
    let last = operation.flag("select_last_index", false)?;
    if last {
        x = lowering.one(Flip { axes: vec![axis as i64] }, &[x])?;
    }
    let of = ArgReduce {
        largest,
        axis: Some(axis as i64),
        keep_dims: operation.flag("keepdims", true)?,
        dtype: DataType::I64,
    };
    let place = lowering.one(of, &[x])?;
    Ok(vec![if last { lowering.scaled(&place, -1.0, size as f64 - 1.0)? } else { place }])
}

fn top_k(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let k = match lowering.number_at(operation, 1)? {
        Some(k) => k as i64,
        None => operation.integer("k", 1)?,
    };
    let (k, axis) = (size_of(operation, k)?, operation.integer("axis", -1)?);
    lowering.apply(TopK { k, axis, largest: operation.flag("largest", true)? }, &[x])
}

fn running(lowering: &mut Lowering, operation: &Operation, kind: Kind) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axis = lowering.number_at(operation, 1)?.ok_or_else(|| wrong(operation, "no axis"))?;
    let axis = axis_of(operation, axis as i64, lowering.shape(&x)?.len())?;
    let scan = Scan {
        kind,
        axis: Some(axis as i64),
        exclusive: operation.flag("exclusive", false)?,
        reverse: operation.flag("reverse", false)?,
    };
    Ok(vec![lowering.one(scan, &[x])?])
}
