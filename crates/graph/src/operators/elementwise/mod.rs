//! Elementwise operators: tables of formulas, and the one way in which all of them run.

mod activation;
mod binary;
mod chain;
mod curvature;
mod differentiate;
pub mod expression;
pub(crate) mod form;
mod fused;
mod gradient;
mod kernel;
mod layout;
mod optimizer;
mod recurrent;
mod row;
mod tiling;
mod unary;

pub use activation::Activation;
pub(crate) use activation::SQRT_2_OVER_PI;
pub use binary::Binary;
pub use chain::{Chain, Operand, Stage};
pub use form::{DTypes, Layout};
pub use fused::{ENTRY as FUSED, Fused};
pub use gradient::Gradient;
pub use layout::broadcast;
pub use optimizer::Optimizer;
pub use recurrent::Recurrent;
pub use row::{ElementwiseType, Row, Visitor};
pub use unary::Unary;

use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::operator::{Meta, Operator};
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::reference::Array;
use crate::vendor::{self, VendorGraph};
use crate::view::{Shape, View};
use arrayvec::ArrayVec;
use openmps_runtime::Pipeline;
use openmps_runtime::vendor::graph::{self, Operation};
use openmps_runtime::vendor::{Family, VendorCall};
use openmps_tile::{DType, Number};
use std::sync::{Arc, OnceLock};
use tiling::Tiling;

/// Elements of a tile: small enough that a few tiles stay in the first-level cache.
const TILE: usize = 2048;

/// Rows and columns of a tile when no tensor order suits all operands.
const SQUARE: usize = 64;

/// The most arguments a kernel takes: pointers, scalars, sizes, strides.
const MAX_ARGUMENTS: usize = 64;

/// One elementwise operator of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elementwise {
    /// Mathematics of one tensor.
    Unary(Unary),
    /// Activation functions.
    Activation(Activation),
    /// Two tensors, or a few more.
    Binary(Binary),
    /// Gradients.
    Gradient(Gradient),
    /// Steps of optimizers.
    Optimizer(Optimizer),
    /// Steps of recurrent networks.
    Recurrent(Recurrent),
}

impl Elementwise {
    /// The row of the family's table that declares the operator.
    #[inline]
    pub const fn row(self) -> &'static Row {
        match self {
            Elementwise::Unary(member) => &Unary::ROWS[member as usize],
            Elementwise::Activation(member) => &Activation::ROWS[member as usize],
            Elementwise::Binary(member) => &Binary::ROWS[member as usize],
            Elementwise::Gradient(member) => &Gradient::ROWS[member as usize],
            Elementwise::Optimizer(member) => &Optimizer::ROWS[member as usize],
            Elementwise::Recurrent(member) => &Recurrent::ROWS[member as usize],
        }
    }

    /// Every elementwise operator.
    pub fn all() -> impl Iterator<Item = Elementwise> {
        let unary = Unary::ALL.iter().map(|&member| Elementwise::Unary(member));
        let activations = Activation::ALL.iter().map(|&member| Elementwise::Activation(member));
        let binary = Binary::ALL.iter().map(|&member| Elementwise::Binary(member));
        let gradients = Gradient::ALL.iter().map(|&member| Elementwise::Gradient(member));
        let optimizers = Optimizer::ALL.iter().map(|&member| Elementwise::Optimizer(member));
        let recurrent = Recurrent::ALL.iter().map(|&member| Elementwise::Recurrent(member));
        unary.chain(activations).chain(binary).chain(gradients).chain(optimizers).chain(recurrent)
    }

    /// Whether the operator is a formula of tensors alone: it takes no numbers, and its output's type follows from its inputs'.
    pub const fn is_plain(self) -> bool {
        let row = self.row();
        row.scalars.is_empty() && !matches!(row.output, row::Output::Given)
    }

    /// Of this operator's numbers those that its gradient has, too, by their names and in the gradient's order.
    pub fn numbers_of(self, gradient: Gradient, numbers: &[Number]) -> ArrayVec<Number, 4> {
        let (own, other) = (self.row().scalars, Elementwise::Gradient(gradient).row().scalars);
        let position = |name: &&str| own.iter().position(|own| own == name);
        other.iter().filter_map(position).filter_map(|position| numbers.get(position).copied()).collect()
    }

    /// The operator and numbers that say the same and are computed faster: powers of 2 and 3 are products.
    fn simplest(self, scalars: &[Number]) -> (Elementwise, &[Number]) {
        match (self, scalars) {
            (Elementwise::Unary(Unary::PowScalar), [factor]) if factor.to_f64() == 2.0 => {
                (Elementwise::Unary(Unary::Square), &[])
            }
            (Elementwise::Unary(Unary::PowScalar), [factor]) if factor.to_f64() == 3.0 => {
                (Elementwise::Unary(Unary::Cube), &[])
            }
            _ => (self, scalars),
        }
    }

    /// Pipelines for dense tensors of one shape and type, found without a look-up in the cache.
    fn dense_pipeline(self, dtype: DType, output: DType) -> Result<&'static Pipeline> {
        const TYPES: usize = openmps_tile::dtype::EVERY.len();
        static TABLES: [OnceLock<Vec<OnceLock<Arc<Pipeline>>>>; 6] = [const { OnceLock::new() }; 6];
        let (table, member) = match self {
            Elementwise::Unary(member) => (0, member as usize),
            Elementwise::Activation(member) => (1, member as usize),
            Elementwise::Binary(member) => (2, member as usize),
            Elementwise::Gradient(member) => (3, member as usize),
            Elementwise::Optimizer(member) => (4, member as usize),
            Elementwise::Recurrent(member) => (5, member as usize),
        };
        let members = [
            Unary::ALL.len(),
            Activation::ALL.len(),
            Binary::ALL.len(),
            Gradient::ALL.len(),
            Optimizer::ALL.len(),
            Recurrent::ALL.len(),
        ];
        let cells = members[table] * TYPES;
        // A fork meanwhile would leave what is being made once half made.
        let _section = openmps_runtime::fork::section();
        let table = TABLES[table].get_or_init(|| (0..cells).map(|_| OnceLock::new()).collect());
        let cell = &table[member * TYPES + dtype as usize];
        if let Some(pipeline) = cell.get() {
            return Ok(pipeline);
        }
        let row = self.row();
        let inputs: DTypes = row.operands.iter().map(|_| dtype).collect();
        let layout = Layout { outer: 0, rows: None, columns: TILE };
        let kernel = kernel::build(row, &inputs, output, &layout);
        let pipeline = Arc::new(program::compile(row.name, kernel)?);
        Ok(cell.get_or_init(|| pipeline))
    }
}

/// Computes an elementwise operator. The inputs' shapes must broadcast to the output's; any strides are read as they are.
#[inline]
pub fn run(operator: Elementwise, queue: &Queue, inputs: &[&View], scalars: &[Number], output: &View) -> Result<()> {
    let (operator, scalars) = operator.simplest(scalars);
    let row = operator.row();
    check(row, inputs, scalars, output)?;
    if vendor::try_vendor(queue, row.name, || vendor_call(row.name, inputs, output))? {
        return Ok(());
    }
    let dtype = inputs[0].dtype;
    let is_plain = inputs.iter().all(|x| x.dtype == dtype && x.shape == output.shape && x.is_dense())
        && output.is_dense()
        && row.output != row::Output::Given;
    if is_plain {
        return run_dense(operator, queue, inputs, scalars, output);
    }
    run_general(row, queue, inputs, scalars, output)
}

/// The operators for which MPSGraph has a method of its own.
fn method(name: &str) -> Option<Operation> {
    use graph::{Binary, Unary};
    Some(match name {
        "abs" => Operation::Unary(Unary::Absolute),
        "negate" => Operation::Unary(Unary::Negative),
        "exp" => Operation::Unary(Unary::Exponent),
        "log" => Operation::Unary(Unary::Logarithm),
        "sqrt" => Operation::Unary(Unary::SquareRoot),
        "rsqrt" => Operation::Unary(Unary::ReciprocalSquareRoot),
        "square" => Operation::Unary(Unary::Square),
        "reciprocal" => Operation::Unary(Unary::Reciprocal),
        "sin" => Operation::Unary(Unary::Sine),
        "cos" => Operation::Unary(Unary::Cosine),
        "tanh" => Operation::Unary(Unary::Tanh),
        "erf" => Operation::Unary(Unary::Erf),
        "floor" => Operation::Unary(Unary::Floor),
        "ceil" => Operation::Unary(Unary::Ceiling),
        "relu" => Operation::Relu,
        "sigmoid" => Operation::Sigmoid,
        "add" => Operation::Binary(Binary::Addition),
        "subtract" => Operation::Binary(Binary::Subtraction),
        "multiply" => Operation::Binary(Binary::Multiplication),
        "divide" => Operation::Binary(Binary::Division),
        "maximum" => Operation::Binary(Binary::Maximum),
        "minimum" => Operation::Binary(Binary::Minimum),
        "elementwise_pow" => Operation::Binary(Binary::Power),
        _ => return None,
    })
}

fn vendor_call(name: &str, inputs: &[&View], output: &View) -> Option<VendorCall> {
    let method = method(name)?;
    // Sums of booleans, and powers and roundings of integers, mean here what they need not mean there.
    let dtype = inputs[0].dtype;
    if dtype == DType::Bool || !dtype.is_float() && matches!(name, "elementwise_pow" | "floor" | "ceil") {
        return None;
    }
    let (mut graph, nodes) = VendorGraph::new(inputs)?;
    let y = graph.add(method, &nodes)?;
    graph.finish(Family::Elementwise, output.len(), y, output)
}

fn check(row: &'static Row, inputs: &[&View], scalars: &[Number], output: &View) -> Result<()> {
    let operator = row.name;
    let dtypes: DTypes = inputs.iter().map(|x| x.dtype).collect();
    let common = checked(row, &dtypes, scalars.len())?;
    let expected = match row.output {
        row::Output::Same => common,
        row::Output::Float if !common.is_float() => DType::F32,
        row::Output::Float => common,
        row::Output::Bool => DType::Bool,
        row::Output::Given => output.dtype,
    };
    if output.dtype != expected {
        return Err(Error::DType { operator, what: "the output", got: output.dtype, expected: expected.to_string() });
    }
    Ok(())
}

/// The common type of inputs and numbers that are what a row takes.
fn checked(row: &'static Row, inputs: &[DType], scalars: usize) -> Result<DType> {
    let operator = row.name;
    if inputs.len() != row.operands.len() || scalars != row.scalars.len() {
        let got = format!("{} tensors and {scalars} numbers", inputs.len());
        let expected = format!("{} and {}", row.operands.len(), row.scalars.len());
        return Err(Error::Attribute { operator, attribute: "operands", got, expected });
    }
    let mut common = None;
    for (&dtype, operand) in inputs.iter().zip(row.operands) {
        if *operand == row::Operand::Common && *common.get_or_insert(dtype) != dtype {
            let expected = format!("{}, the type of the other input", common.unwrap_or(dtype));
            return Err(Error::DType { operator, what: "an input", got: dtype, expected });
        }
    }
    let common = common.unwrap_or(inputs[0]);
    if !row.dtypes.contains(&common) {
        return Err(Error::DType { operator, what: "the input", got: common, expected: names(row.dtypes) });
    }
    Ok(common)
}

fn names(dtypes: &[DType]) -> String {
    let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
    format!("one of {}", names.join(", "))
}

fn run_dense(operator: Elementwise, queue: &Queue, inputs: &[&View], scalars: &[Number], output: &View) -> Result<()> {
    let count = output.len();
    if count == 0 {
        return Ok(());
    }
    let row = operator.row();
    let pipeline = operator.dense_pipeline(inputs[0].dtype, output.dtype)?;
    let mut arguments = ArrayVec::<u64, MAX_ARGUMENTS>::new();
    push_operands(&mut arguments, row, inputs, scalars, output);
    arguments.push(count as u64);
    arguments.extend(std::iter::repeat_n(1, inputs.len() + 1));
    // SAFETY: the views describe memory that the frontend keeps alive, dense and of this many elements.
    unsafe { program::launch(queue, row.name, pipeline, [count.div_ceil(TILE), 1, 1], &arguments) }
}

fn run_general(row: &'static Row, queue: &Queue, inputs: &[&View], scalars: &[Number], output: &View) -> Result<()> {
    let mut tensors: ArrayVec<&View, { layout::MAX_TENSORS }> = inputs.iter().copied().collect();
    tensors.push(output);
    let Some(tiling) = Tiling::over(row.name, &tensors)? else { return Ok(()) };
    let dtypes: DTypes = inputs.iter().map(|x| x.dtype).collect();
    let key = Key::Elementwise(row.name, dtypes.clone(), output.dtype, tiling.layout.clone());
    let pipeline = program::get(row.name, &key, || kernel::build(row, &dtypes, output.dtype, &tiling.layout))?;
    let mut arguments = ArrayVec::<u64, MAX_ARGUMENTS>::new();
    push_operands(&mut arguments, row, inputs, scalars, output);
    tiling.launch(row.name, queue, &pipeline, arguments)
}

/// Sets every element of a view of integers to these bits.
pub(crate) fn fill(queue: &Queue, output: &View, bits: u64) -> Result<()> {
    const NAME: &str = "fill";
    let Some(tiling) = Tiling::over(NAME, &[output])? else { return Ok(()) };
    let key = Key::Elementwise(NAME, DTypes::new(), output.dtype, tiling.layout.clone());
    let pipeline = program::get(NAME, &key, || kernel::fill(NAME, output.dtype, &tiling.layout))?;
    tiling.launch(NAME, queue, &pipeline, ArrayVec::<u64, MAX_ARGUMENTS>::from_iter([output.address as u64, bits]))
}

fn push_operands(
    arguments: &mut ArrayVec<u64, MAX_ARGUMENTS>,
    row: &Row,
    inputs: &[&View],
    scalars: &[Number],
    output: &View,
) {
    arguments.extend(inputs.iter().map(|x| x.address as u64));
    arguments.push(output.address as u64);
    if !scalars.is_empty() {
        let dtypes: DTypes = inputs.iter().map(|x| x.dtype).collect();
        let compute = row.compute(&dtypes);
        arguments.extend(scalars.iter().map(|&scalar| scalar_bits(scalar, compute)));
    }
}

/// An elementwise operator with its numbers, as a member of the list of operators.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which operator.
    pub operator: Elementwise,
    /// The numbers among the formula's operands, in its order.
    pub scalars: Vec<Number>,
    /// The output's type, where the inputs leave it open.
    pub output: Option<DType>,
}

impl Call {
    /// A call without numbers.
    pub fn new(operator: Elementwise) -> Call {
        Call { operator, scalars: Vec::new(), output: None }
    }

    /// The result's element type.
    fn output_dtype(&self, inputs: &[DType]) -> DType {
        self.operator.row().output_dtype(inputs).or(self.output).unwrap_or(inputs[0])
    }
}

impl Operator for Call {
    fn name(&self) -> &'static str {
        self.operator.row().name
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let row = self.operator.row();
        let dtypes: Vec<DType> = inputs.iter().map(|x| x.dtype).collect();
        checked(row, &dtypes, self.scalars.len())?;
        let mut shape = Shape::new();
        for x in inputs {
            shape = broadcast(row.name, &shape, &x.shape)?;
        }
        Ok(vec![Meta { dtype: self.output_dtype(&dtypes), shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        let inputs: ArrayVec<&View, { layout::MAX_TENSORS }> = inputs.iter().collect();
        run(self.operator, queue, &inputs, &self.scalars, &outputs[0])
    }

    fn moves(&self) -> bool {
        self.operator.row().dtypes.contains(&DType::U32)
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        self.differentiate(b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let row = self.operator.row();
        let metas: Vec<Meta> = inputs.iter().map(|x| Meta { dtype: x.dtype, shape: x.shape.clone() }).collect();
        let Ok(outputs) = self.infer(&metas) else { return Vec::new() };
        let scalars: Vec<f64> = self
            .scalars
            .iter()
            .map(|scalar| match scalar {
                Number::Integer(value) => *value as f64,
                Number::Float(value) => *value,
            })
            .collect();
        let output = Array::from_fn(&outputs[0].shape, outputs[0].dtype, |index| {
            let x: Vec<f64> = inputs.iter().map(|x| x.at_broadcast(index)).collect();
            let value = (row.reference)(&x, &scalars);
            // Bits of a boolean: only the lowest exists. The sum of two that are true is true.
            if outputs[0].dtype == DType::Bool && row.output == row::Output::Same {
                value.min(1.0).rem_euclid(2.0)
            } else {
                value
            }
        });
        vec![output]
    }
}
