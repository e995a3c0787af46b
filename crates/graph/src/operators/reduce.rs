//! Reductions along axes: sum, mean, product, extremes, any, all, logsumexp, norms.

mod beside;
mod cases;
mod gradient;
mod kernel;

use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{expect_float, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::Chain;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::reference::{Array, for_each_index, sum};
use crate::rows::{RowBlock, Rows, reduced_axes};
use crate::vendor::{VendorGraph, try_vendor};
use crate::view::{Shape, View};
use beside::Beside;
use kernel::{Order, Pass, Source};
use openmps_runtime::vendor::{Family, VendorCall, graph};
use openmps_tile::{Combine, DType};

pub use cases::ENTRIES;

/// What is done with the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum; integers and booleans sum to int64 unless the output says otherwise.
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
    /// Sum, mean, maximum, ...: what one result is of the elements it stands for.
    pub reduction: Reduction,
    /// The axes that go; none means all.
    pub axes: Vec<i64>,
    /// Whether they stay as dimensions of size 1.
    pub keep_dims: bool,
    /// The output's type, where it is not the one that follows from the input.
    pub output: Option<DType>,
}

/// On the host a row of a chain that ends in a reduction costs some 80 ns beside its elements; in two kernels it does not, which cost a microsecond more. The
/// mean of hard swish over 960 rows of 49 elements took 195 us in one kernel and 41 in two, over 672 of 196 94 and 64, over 240 of 784 80 and 75 (Zen 4, one
/// thread).
const SHORT_ROW: usize = 512;
const MANY_ROWS: usize = 32;

/// Elements below which a row is not cut into parts: on a GPU for its many threadgroups, on the host device, whose threads read as many in
/// the time that a second kernel takes, for its few threads.
const WORTH_CUTTING: usize = 1 << 16;
const WORTH_CUTTING_ON_HOST: usize = 1 << 18;

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

    /// Whether an element is combined as it is, rather than its square, its absolute value or whether it is not zero.
    fn takes_elements_as_they_are(self) -> bool {
        matches!(self, Reduction::Sum | Reduction::Mean | Reduction::Product | Reduction::Maximum | Reduction::Minimum)
    }

    fn identity(self, dtype: DType) -> f64 {
        match self {
            Reduction::Product | Reduction::All => 1.0,
            Reduction::Maximum => dtype.bounds().0,
            Reduction::Minimum => dtype.bounds().1,
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
            (None, Reduction::Mean | Reduction::SumOfSquares | Reduction::SumOfAbsolutes) if input == DType::Bool => {
                DType::I64
            }
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
    fn vendor_call(&self, x: &View, axes: &[usize], out: &View) -> Option<VendorCall> {
        let reduction = match self.reduction {
            Reduction::Sum => graph::Reduction::Sum,
            Reduction::Mean => graph::Reduction::Mean,
            Reduction::Product => graph::Reduction::Product,
            Reduction::Maximum => graph::Reduction::Maximum,
            Reduction::Minimum => graph::Reduction::Minimum,
            _ => return None,
        };
        let (mut graph, nodes) = VendorGraph::new(&[x])?;
        // Half types are combined in float32.
        let wide = graph.cast(nodes[0], if x.dtype.is_float() { DType::F32 } else { x.dtype })?;
        let y = graph.add(graph::Operation::Reduce(reduction, axes.to_vec()), &[wide])?;
        let y = graph.cast(y, x.dtype)?;
        graph.finish(Family::Reduction, x.len(), y, out)
    }
}

impl Operator for Reduce {
    fn name(&self) -> &'static str {
        self.reduction.name()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let x = &inputs[0];
        if self.reduction == Reduction::Norm {
            expect_float(self.name(), "x", x.dtype)?;
        }
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

    fn arithmetic(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs[0].count()
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        crate::layout::check(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], &outputs[0]);
        let axes = reduced_axes(self.name(), &self.axes, x.rank())?;
        if try_vendor(queue, self.name(), || self.vendor_call(x, &axes, out))? {
            return Ok(());
        }
        if out.is_empty() {
            return Ok(());
        }
        let pass = Pass { input: x.dtype, compute: self.compute(x.dtype, out.dtype), output: out.dtype };
        if let Some(beside) = Beside::of(queue, x, &axes) {
            return beside.reduce(self.reduction, queue, x.address, out.address, pass);
        }
        let rows = Rows::of(self.name(), queue, x, &axes)?;
        self.reduce_rows(queue, Source::Tensor, &[rows], pass, out.address, &[])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        gradient::gradient(self, b)
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
        Reduction::Sum => sum(row.iter().copied()),
        Reduction::Mean => sum(row.iter().copied()) / row.len() as f64,
        Reduction::Product => row.iter().product(),
        Reduction::Maximum | Reduction::Minimum if any_nan => f64::NAN,
        Reduction::Maximum => row.iter().copied().fold(identity, f64::max),
        Reduction::Minimum => row.iter().copied().fold(identity, f64::min),
        Reduction::Any => f64::from(row.iter().any(|&x| x != 0.0)),
        Reduction::All => f64::from(row.iter().all(|&x| x != 0.0)),
        Reduction::SumOfSquares => sum(row.iter().map(|x| x * x)),
        Reduction::Norm => sum(row.iter().map(|x| x * x)).sqrt(),
        Reduction::SumOfAbsolutes => sum(row.iter().map(|x| x.abs())),
    }
}

impl Reduce {
    /// Reduces what a chain computes of inputs that broadcast to `shape`, without storing it. False where its rows do not step evenly
    /// through the inputs: then nothing was done.
    pub fn run_chain(
        &self,
        queue: &Queue,
        chain: &Chain,
        (inputs, shape): (&[View], &Shape),
        output: &View,
    ) -> Result<bool> {
        let axes = reduced_axes(self.name(), &self.axes, shape.len())?;
        let rows = |x: &View| Rows::even(&x.broadcast_to(shape)?, &axes);
        let Some(rows) = inputs.iter().map(rows).collect::<Option<Vec<Rows>>>() else { return Ok(false) };
        if rows[0].count == 0 {
            return Ok(true);
        }
        if queue.is_host() && rows[0].count >= MANY_ROWS && rows[0].length < SHORT_ROW {
            return Ok(false);
        }
        let dtypes: Vec<DType> = inputs.iter().map(|x| x.dtype).collect();
        let input = chain.dtype(&dtypes);
        let pass = Pass { input, compute: self.compute(input, output.dtype), output: output.dtype };
        let numbers = chain.numbers(&dtypes);
        self.reduce_rows(queue, Source::Chain(chain, &dtypes), &rows, pass, output.address, &numbers)?;
        Ok(true)
    }

    fn reduce_rows(
        &self,
        queue: &Queue,
        source: Source,
        rows: &[Rows],
        pass: Pass,
        out: usize,
        numbers: &[u64],
    ) -> Result<()> {
        let first = &rows[0];
        let call = Launch { source, pass, numbers, count: first.length, of_parts: false };
        let worth_cutting = if queue.is_host() { WORTH_CUTTING_ON_HOST } else { WORTH_CUTTING };
        let parts = (2..=64).rev().find(|parts| first.length.is_multiple_of(*parts));
        match parts {
            Some(parts) if first.count < 8 && first.length >= worth_cutting => {
                self.reduce_in_parts(queue, rows, out, call, parts)
            }
            _ => self.submit(queue, rows, out, call),
        }
    }

    /// Long rows in two passes, so that every thread has work: each part of a row by itself, then the parts' results.
    fn reduce_in_parts(&self, queue: &Queue, rows: &[Rows], out: usize, call: Launch, parts: usize) -> Result<()> {
        let device = |source| Error::Device { operator: self.name(), source };
        let (count, length, size) = (rows[0].count, rows[0].length / parts, call.pass.compute.size());
        let partial = queue.allocate(count * parts * size).map_err(device)?;
        let first = match self.reduction {
            Reduction::Mean => Reduction::Sum,
            Reduction::Norm => Reduction::SumOfSquares,
            other => other,
        };
        let first = Reduce { reduction: first, ..self.clone() };
        let pass = Pass { output: call.pass.compute, ..call.pass };
        for row in 0..count {
            let cut: Vec<Rows> = rows.iter().map(|rows| rows.part(row, parts, length)).collect();
            let to = partial.address() + row * parts * size;
            first.submit(queue, &cut, to, Launch { pass, count: length, ..call })?;
        }
        let joined = Rows::dense(partial.address(), count, parts, call.pass.compute);
        let pass = Pass { input: call.pass.compute, ..call.pass };
        let second = Reduce { reduction: self.reduction.of_parts(), ..self.clone() };
        let source = Source::Tensor;
        second.submit(queue, &[joined], out, Launch { source, pass, of_parts: true, numbers: &[], ..call })
    }

    fn submit(&self, queue: &Queue, rows: &[Rows], out: usize, call: Launch) -> Result<()> {
        let (operator, first) = (self.name(), &rows[0]);
        let pass = call.pass;
        let order = Order::along(self.reduction, call.source, pass, first, queue.is_host());
        let (kind, width, block) = match order {
            Order::Short(width) => (0, width, RowBlock::rows_for(width)),
            Order::Long(piece) => (1, piece, 1),
        };
        let numbers = vec![kind, width, usize::from(call.of_parts)];
        let mut dtypes = vec![pass.input, pass.compute, pass.output];
        let key = match call.source {
            Source::Tensor => Key::Other(operator, dtypes, numbers),
            Source::Chain(chain, inputs) => {
                dtypes.extend(inputs);
                Key::Chain { chain: chain.text(), reduction: operator, dtypes, layout: None, numbers }
            }
        };
        let build = || kernel::kernel(self.reduction, call.source, pass, order, call.of_parts);
        let pipeline = program::get(operator, &key, build)?;
        let mut arguments: Vec<u64> = rows.iter().map(|rows| rows.address as u64).collect();
        arguments.extend([out, first.count, first.length, call.count].map(|number| number as u64));
        arguments.extend(rows.iter().flat_map(|rows| [rows.row_stride as u64, rows.stride as u64]));
        arguments.extend(call.numbers);
        // SAFETY: rows and strides are those of the views, which the frontend keeps alive.
        unsafe { program::launch(queue, operator, &pipeline, [first.count.div_ceil(block), 1, 1], &arguments) }
    }
}

/// One launch over rows.
#[derive(Clone, Copy)]
struct Launch<'a> {
    source: Source<'a>,
    pass: Pass,
    /// A chain's numbers, as arguments.
    numbers: &'a [u64],
    /// What a mean is divided by.
    count: usize,
    /// Whether the elements are results of parts.
    of_parts: bool,
}
