//! Reductions along axes: sum, mean, product, extremes, any, all, logsumexp, norms.

use crate::engines::{Sketch, offer};
use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::operator::{Meta, Operator};
use crate::program::{self, Key};
use crate::reference::{Array, for_each_index};
use crate::rows::{RowBlock, Rows, convert, reduced_axes};
use crate::view::{Shape, View};
use openmps_runtime::Queue;
use openmps_runtime::engine::{Call, Family, graph};
use openmps_tile::{Binary, Builder, Combine, Compare, DType, Kernel, Scalar, Type, Value, dtype};

/// What is done with the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum; integers and truth values sum to int64 unless the output says otherwise.
    Sum,
    /// The sum over the count.
    Mean,
    /// The product.
    Product,
    /// The largest; NaN when any is.
    Maximum,
    /// The smallest; NaN when any is.
    Minimum,
    /// Whether any is not zero.
    Any,
    /// Whether all are not zero.
    All,
    /// The sum of squares.
    SumOfSquares,
    /// The square root of the sum of squares.
    Norm,
    /// The sum of absolute values.
    SumOfAbsolutes,
}

/// A reduction along axes.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// What is done.
    pub reduction: Reduction,
    /// The axes that go; none means all.
    pub axes: Vec<i64>,
    /// Whether they stay as dimensions of size 1.
    pub keep_dims: bool,
    /// The output's type, where it is not the one that follows from the input.
    pub output: Option<DType>,
}

/// Elements below which a row is not cut into parts for several threads.
const WORTH_CUTTING: usize = 1 << 16;

/// Neighbouring rows that are walked side by side when the elements of a row lie apart.
const SIDE_BY_SIDE: usize = 1024;

impl Reduction {
    /// Its name in every layer.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Product => "prod",
            Reduction::Maximum => "max",
            Reduction::Minimum => "min",
            Reduction::Any => "any",
            Reduction::All => "all",
            Reduction::SumOfSquares => "squared_l2_norm",
            Reduction::Norm => "frobenius_norm",
            Reduction::SumOfAbsolutes => "l1_norm",
        }
    }

    fn combine(self) -> Combine {
        match self {
            Reduction::Product => Combine::Product,
            Reduction::Maximum => Combine::Maximum,
            Reduction::Minimum => Combine::Minimum,
            Reduction::Any => Combine::Or,
            Reduction::All => Combine::And,
            _ => Combine::Sum,
        }
    }

    fn is_truth(self) -> bool {
        matches!(self, Reduction::Any | Reduction::All)
    }

    fn identity(self, dtype: DType) -> f64 {
        match self {
            Reduction::Product | Reduction::All => 1.0,
            Reduction::Maximum | Reduction::Minimum => {
                let (low, high) = bounds(dtype);
                if self == Reduction::Maximum { low } else { high }
            }
            _ => 0.0,
        }
    }

    /// How the partial results of a row's parts are brought together.
    fn of_parts(self) -> Reduction {
        match self {
            Reduction::SumOfSquares | Reduction::SumOfAbsolutes => Reduction::Sum,
            other => other,
        }
    }
}

/// The least and the greatest number of a type.
fn bounds(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::Bool => (0.0, 1.0),
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::I64 => (i64::MIN as f64, i64::MAX as f64),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    }
}

impl Reduce {
    /// A reduction whose output type follows from the input.
    pub fn new(reduction: Reduction, axes: &[i64], keep_dims: bool) -> Reduce {
        Reduce { reduction, axes: axes.to_vec(), keep_dims, output: None }
    }

    fn output_dtype(&self, input: DType) -> DType {
        match (self.output, self.reduction) {
            (_, reduction) if reduction.is_truth() => DType::Bool,
            (Some(dtype), _) => dtype,
            (None, Reduction::Sum | Reduction::Product) if !input.is_float() => DType::I64,
            (None, _) => input,
        }
    }

    /// The type in which elements are combined.
    fn compute(&self, input: DType, output: DType) -> DType {
        match self.reduction {
            // Tiles carry no sign; a wider type holds every unsigned byte as it is.
            Reduction::Maximum | Reduction::Minimum if input == DType::U8 => DType::I16,
            Reduction::Maximum | Reduction::Minimum => input.compute(),
            Reduction::Any | Reduction::All => DType::Bool,
            _ if input == DType::F64 => DType::F64,
            _ => output.compute(),
        }
    }
}

impl Reduce {
    fn in_words(&self, x: &View, axes: &[usize], out: &View) -> Option<Call> {
        let reduction = match self.reduction {
            Reduction::Sum => graph::Reduction::Sum,
            Reduction::Mean => graph::Reduction::Mean,
            Reduction::Product => graph::Reduction::Product,
            Reduction::Maximum => graph::Reduction::Maximum,
            Reduction::Minimum => graph::Reduction::Minimum,
            _ => return None,
        };
        let (mut sketch, nodes) = Sketch::new(&[x])?;
        // Half types are combined in float32.
        let wide = sketch.cast(nodes[0], if x.dtype.is_float() { DType::F32 } else { x.dtype })?;
        let y = sketch.add(graph::Operation::Reduce(reduction, axes.to_vec()), &[wide])?;
        let y = sketch.cast(y, x.dtype)?;
        sketch.finish(Family::Reduction, x.len(), y, out)
    }
}

impl Operator for Reduce {
    fn name(&self) -> &'static str {
        self.reduction.name()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let x = &inputs[0];
        let axes = reduced_axes(self.name(), &self.axes, x.shape.len())?;
        let mut shape = Shape::new();
        for (axis, &size) in x.shape.iter().enumerate() {
            match (axes.contains(&axis), self.keep_dims) {
                (true, true) => shape.push(1),
                (true, false) => {}
                (false, _) => shape.push(size),
            }
        }
        Ok(vec![Meta { dtype: self.output_dtype(x.dtype), shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        crate::layout::check(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], &outputs[0]);
        let axes = reduced_axes(self.name(), &self.axes, x.rank())?;
        if offer(queue, self.name(), || self.in_words(x, &axes, out))? {
            return Ok(());
        }
        let rows = Rows::of(self.name(), queue, x, &axes)?;
        if rows.count == 0 {
            return Ok(());
        }
        let pass = Pass { input: x.dtype, compute: self.compute(x.dtype, out.dtype), output: out.dtype };
        self.reduce_rows(queue, &rows, pass, out.address)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let meta = Meta { dtype: x.dtype, shape: x.shape.clone() };
        let (Ok(outputs), Ok(axes)) = (self.infer(&[meta]), reduced_axes(self.name(), &self.axes, x.shape.len()))
        else {
            return Vec::new();
        };
        let kept: Vec<usize> = (0..x.shape.len()).filter(|axis| !axes.contains(axis)).collect();
        let strides = crate::view::dense_strides(&kept.iter().map(|&axis| x.shape[axis]).collect::<Vec<_>>());
        let mut elements = vec![Vec::new(); outputs[0].shape.iter().product()];
        for_each_index(&x.shape, |index| {
            let row: isize = kept.iter().zip(&strides).map(|(&axis, &stride)| index[axis] as isize * stride).sum();
            elements[row as usize].push(x.at(index));
        });
        let identity = self.reduction.identity(x.dtype);
        let data = elements.iter().map(|row| reference_row(self.reduction, row, identity)).collect();
        vec![Array::new(&outputs[0].shape, data, outputs[0].dtype)]
    }
}

fn reference_row(reduction: Reduction, row: &[f64], identity: f64) -> f64 {
    let any_nan = row.iter().any(|x| x.is_nan());
    match reduction {
        Reduction::Sum => row.iter().sum(),
        Reduction::Mean => row.iter().sum::<f64>() / row.len() as f64,
        Reduction::Product => row.iter().product(),
        Reduction::Maximum | Reduction::Minimum if any_nan => f64::NAN,
        Reduction::Maximum => row.iter().copied().fold(identity, f64::max),
        Reduction::Minimum => row.iter().copied().fold(identity, f64::min),
        Reduction::Any => f64::from(row.iter().any(|&x| x != 0.0)),
        Reduction::All => f64::from(row.iter().all(|&x| x != 0.0)),
        Reduction::SumOfSquares => row.iter().map(|x| x * x).sum(),
        Reduction::Norm => row.iter().map(|x| x * x).sum::<f64>().sqrt(),
        Reduction::SumOfAbsolutes => row.iter().map(|x| x.abs()).sum(),
    }
}

/// Element types of one pass over the rows.
#[derive(Clone, Copy)]
struct Pass {
    input: DType,
    compute: DType,
    output: DType,
}

impl Reduce {
    fn reduce_rows(&self, queue: &Queue, rows: &Rows, pass: Pass, out: usize) -> Result<()> {
        let apart = rows.stride != 1 && rows.row_stride == 1 && rows.count >= 64;
        if apart {
            return self.submit(queue, rows, pass, out, Walk::SideBySide);
        }
        let parts = (2..=64).rev().find(|parts| rows.length.is_multiple_of(*parts));
        match parts {
            Some(parts) if rows.count < 8 && rows.length >= WORTH_CUTTING => {
                self.reduce_in_parts(queue, rows, pass, out, parts)
            }
            _ => self.submit(queue, rows, pass, out, Walk::along(rows.length)),
        }
    }

    /// Long rows in two passes, so that every thread has work: each part of a row by itself, then the parts' results.
    fn reduce_in_parts(&self, queue: &Queue, rows: &Rows, pass: Pass, out: usize, parts: usize) -> Result<()> {
        let device = |source| Error::Device { operator: self.name(), source };
        let partial = queue.allocate(rows.count * parts * pass.compute.size()).map_err(device)?;
        let length = rows.length / parts;
        let first = match self.reduction {
            Reduction::Mean => Reduction::Sum,
            Reduction::Norm => Reduction::SumOfSquares,
            other => other,
        };
        let first = Reduce { reduction: first, ..self.clone() };
        let to_partial = Pass { output: pass.compute, ..pass };
        for row in 0..rows.count {
            let start = rows.row_stride * row as isize * pass.input.size() as isize;
            let cut = rows.part(rows.address.wrapping_add_signed(start), parts, length);
            first.submit(
                queue,
                &cut,
                to_partial,
                partial.address() + row * parts * pass.compute.size(),
                Walk::along(length),
            )?;
        }
        let joined = Rows::dense(partial.address(), rows.count, parts);
        let last = Pass { input: pass.compute, ..pass };
        let second = Reduce { reduction: self.reduction.of_parts(), ..self.clone() };
        second.submit_scaled(queue, &joined, last, out, Walk::Short(parts), rows.length, true)
    }

    fn submit(&self, queue: &Queue, rows: &Rows, pass: Pass, out: usize, shape: Walk) -> Result<()> {
        self.submit_scaled(queue, rows, pass, out, shape, rows.length, false)
    }

    #[allow(clippy::too_many_arguments)]
    fn submit_scaled(
        &self,
        queue: &Queue,
        rows: &Rows,
        pass: Pass,
        out: usize,
        shape: Walk,
        count: usize,
        of_parts: bool,
    ) -> Result<()> {
        let operator = self.name();
        let block = match shape {
            Walk::Short(length) => RowBlock::rows_for(length),
            Walk::Long => 1,
            Walk::SideBySide => SIDE_BY_SIDE,
        };
        let (kind, length) = match shape {
            Walk::Short(length) => (0, length),
            Walk::Long => (1, 0),
            Walk::SideBySide => (2, 0),
        };
        let numbers = vec![kind, length, usize::from(of_parts)];
        let key = Key::Other(operator, vec![pass.input, pass.compute, pass.output], numbers);
        let build = || kernel(self.reduction, pass, shape, of_parts);
        let pipeline = program::get(operator, &key, build)?;
        let arguments = [
            rows.address as u64,
            out as u64,
            rows.count as u64,
            rows.length as u64,
            rows.row_stride as u64,
            rows.stride as u64,
            count as u64,
        ];
        // SAFETY: rows and strides are those of the views, which the front door keeps alive.
        unsafe { queue.dispatch(operator, &pipeline, [rows.count.div_ceil(block), 1, 1], &arguments) }
            .map_err(|source| Error::Device { operator, source })
    }
}

/// How a kernel walks the rows.
#[derive(Clone, Copy)]
enum Walk {
    /// Several whole rows of this length a tile.
    Short(usize),
    /// One row a program, piece by piece.
    Long,
    /// Many rows side by side, element by element.
    SideBySide,
}

fn kernel(reduction: Reduction, pass: Pass, shape: Walk, of_parts: bool) -> Kernel {
    let mut b = Builder::new(reduction.name());
    let x = b.parameter("x", Type::pointer(pass.input.into()));
    let out = b.parameter("out", Type::pointer(pass.output.into()));
    let [rows, length, row_stride, stride, count] =
        ["rows", "length", "row_stride", "stride", "count"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let strides = [row_stride, stride];
    let combine = reduction.combine();
    let identity = reduction.identity(pass.compute);
    let zero = b.integer(0, Scalar::I64);
    match shape {
        Walk::Short(length) => {
            let block = RowBlock::new(&mut b, RowBlock::rows_for(length), length, rows);
            let x = block.load(&mut b, x, strides, pass.input, loaded(reduction, pass));
            let x = prepare(&mut b, reduction, x, of_parts);
            let reduced = b.reduce(combine, x, 1);
            let result = finish(&mut b, reduction, reduced, count);
            store(&mut b, &block, out, result, reduction, pass);
        }
        Walk::Long => {
            const PIECE: usize = 8192;
            let block = RowBlock::new(&mut b, 1, PIECE, rows);
            let step = b.integer(PIECE as i64, Scalar::I64);
            let initial = b.constant(identity, &Type::tile(accumulator(reduction, pass), &[1]));
            // Each piece is reduced as it is read: a running tile would be read and written for every element.
            let reduced = b.for_loop([zero, length, step], &[initial], |b, at, carried| {
                let types = (pass.input, loaded(reduction, pass));
                let x = block.load_piece(b, x, strides, (at, length), identity, types);
                let x = prepare(b, reduction, x, of_parts);
                let piece = b.reduce(combine, x, 1);
                vec![combined(b, combine, carried[0], piece)]
            })[0];
            let result = finish(&mut b, reduction, reduced, count);
            store(&mut b, &block, out, result, reduction, pass);
        }
        Walk::SideBySide => {
            let id = b.program_id(0);
            let size = b.integer(SIDE_BY_SIDE as i64, Scalar::I64);
            let start = b.multiply(id, size);
            let start = b.splat(start, &[SIDE_BY_SIDE]);
            let range = b.range(SIDE_BY_SIDE);
            let index = b.add(start, range);
            let bound = b.splat(rows, &[SIDE_BY_SIDE]);
            let mask = b.compare(Compare::Less, index, bound);
            let ty = Type::tile(accumulator(reduction, pass), &[SIDE_BY_SIDE]);
            let initial = b.constant(identity, &ty);
            let step = b.integer(1, Scalar::I64);
            let pointers = b.add_pointer(x, index);
            let other = b.constant(0.0, &Type::tile(pass.input.into(), &[SIDE_BY_SIDE]));
            let reduced = b.for_loop([zero, length, step], &[initial], |b, at, carried| {
                let offset = b.multiply(at, stride);
                let offset = b.splat(offset, &[SIDE_BY_SIDE]);
                let pointers = b.add_pointer(pointers, offset);
                let x = b.load(pointers, Some(mask), Some(other));
                let x = convert(b, x, pass.input, loaded(reduction, pass));
                let x = prepare(b, reduction, x, of_parts);
                vec![combined(b, combine, carried[0], x)]
            })[0];
            let result = finish(&mut b, reduction, reduced, count);
            let pointers = b.add_pointer(out, index);
            let result = to_output(&mut b, result, reduction, pass);
            b.store(pointers, result, Some(mask));
        }
    }
    b.finish()
}

/// The type in which elements are loaded: their own where they become truth values.
fn loaded(reduction: Reduction, pass: Pass) -> DType {
    if reduction.is_truth() { pass.input.compute() } else { pass.compute }
}

fn accumulator(reduction: Reduction, pass: Pass) -> Scalar {
    if reduction.is_truth() { Scalar::I1 } else { pass.compute.into() }
}

impl Walk {
    fn along(length: usize) -> Walk {
        if length > crate::rows::LONGEST { Walk::Long } else { Walk::Short(length) }
    }
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

fn cases(reduction: Reduction) -> Vec<Case> {
    let shapes: [(&[i64], &[usize]); 12] = [
        (&[], &[3, 5]),
        (&[-1], &[4, 1000]),
        (&[0], &[5, 7]),
        (&[0], &[9, 200]),
        (&[1], &[2, 3, 4]),
        (&[0, 2], &[2, 3, 4]),
        (&[2, 3], &[2, 3, 7, 9]),
        (&[1], &[2, 9000]),
        (&[], &[70_000]),
        (&[1], &[0, 3]),
        (&[], &[]),
        (&[-2, -1], &[1, 1, 33]),
    ];
    let values = match reduction {
        Reduction::Product => Values::Given(vec![1.0, 2.0, 0.5, -1.0]),
        Reduction::Any => Values::Given(vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
        Reduction::All => Values::Given(vec![1.0, 2.0, 3.0, 1.0, 1.0, 1.0, 0.0]),
        _ => Values::Uniform(-3.0, 3.0),
    };
    let mut cases = Vec::new();
    for (number, (axes, dims)) in shapes.into_iter().enumerate() {
        let operator = Reduce::new(reduction, axes, number % 2 == 0);
        // A product over many elements leaves every type's range.
        let many = dims.iter().product::<usize>() > 100;
        let values =
            if many && reduction == Reduction::Product { Values::Given(vec![1.0, -1.0]) } else { values.clone() };
        cases.push(Case::new(operator, vec![Input::of(dims, values)]));
    }
    cases
}

macro_rules! entries {
    ($($name:ident $reduction:ident $dtypes:expr, $tolerance:literal, $summary:literal;)+) => {
        $(#[doc = $summary] pub static $name: Entry = Entry {
            name: Reduction::$reduction.name(),
            summary: $summary,
            dtypes: $dtypes,
            cases: || cases(Reduction::$reduction),
            tolerance: $tolerance,
        };)+
        /// The reductions in the list of operators.
        pub static ENTRIES: &[&Entry] = &[$(&$name,)+];
    };
}
const SUMMED: &[DType] = &[DType::Bool, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
const COMPARED: &[DType] =
    &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

entries! {
    SUM Sum SUMMED, 64.0, "The sum along axes.";
    MEAN Mean dtype::FLOATS, 64.0, "The mean along axes.";
    PRODUCT Product SUMMED, 64.0, "The product along axes.";
    MAXIMUM Maximum COMPARED, 0.0, "The largest along axes; NaN when any is.";
    MINIMUM Minimum COMPARED, 0.0, "The smallest along axes; NaN when any is.";
    ANY Any dtype::ALL, 0.0, "Whether any element along the axes is not zero.";
    ALL All dtype::ALL, 0.0, "Whether all elements along the axes are not zero.";
    SUM_OF_SQUARES SumOfSquares dtype::FLOATS, 64.0, "The sum of squares along axes.";
    NORM Norm dtype::FLOATS, 64.0, "The square root of the sum of squares along axes.";
    SUM_OF_ABSOLUTES SumOfAbsolutes dtype::FLOATS, 64.0, "The sum of absolute values along axes.";
}
