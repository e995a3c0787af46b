//! A program becomes a graph, for the shapes at hand: one function for each operation, in tables by family; ONNX's stand in `onnx`.
//!
//! Shapes are numbers here, and what is computed of them (`shape`, `slice`, `concat`, ...) is computed at once: a value is a tensor of
//! the graph, or known. Where the next operation depends on what only a run can say (the condition of an `if`, the number of elements
//! found), the graph so far is run, and what is alive goes into the next one.

mod arithmetic;
mod control;
mod creation;
mod detection;
mod image;
mod movement;
mod normalisation;
mod onnx;
mod part;
mod product;
mod recurrent;
mod reduction;
mod value;
mod volume;

pub(crate) use value::{Held, Value, read};

use crate::course::{Course, Origin, Segment};
use crate::error::{Error, Result};
use crate::program::{Block, Dialect, Operation, Program, ValueId};
use openmps::graph::{ExecutableCache, StoredTensor, Tensor};
use openmps::operators::view::shape_of;
use openmps::operators::{Array, Meta, Operator};
use openmps::tile::Number;
use openmps::{DataType, Device, Graph, OptimizationLevel, TensorData};
use std::collections::HashMap;
use std::sync::LazyLock;

/// What an operation becomes: its outputs, of which the last ones may be missing where nobody needs them.
pub(crate) type Lower = fn(&mut Lowering, &Operation) -> Result<Vec<Value>>;

/// Names with their functions.
type Table = &'static [(&'static str, Lower)];

static PADDLE: LazyLock<HashMap<&'static str, Lower>> = LazyLock::new(|| {
    let families = [
        arithmetic::ACTIVATIONS,
        arithmetic::OTHERS,
        control::TABLE,
        creation::TABLE,
        detection::TABLE,
        image::TABLE,
        movement::TABLE,
        normalisation::TABLE,
        part::TABLE,
        product::TABLE,
        recurrent::TABLE,
        reduction::TABLE,
        volume::TABLE,
    ];
    // Functions of their own come last: they take the place of a formula of that name.
    arithmetic::by_name().chain(families.into_iter().flatten().copied()).collect()
});

static ONNX: LazyLock<HashMap<&'static str, Lower>> =
    LazyLock::new(|| onnx::TABLES.into_iter().flatten().copied().collect());

/// The functions by the names of operations.
fn functions(dialect: Dialect) -> &'static HashMap<&'static str, Lower> {
    match dialect {
        Dialect::Paddle => &PADDLE,
        Dialect::Onnx { .. } => &ONNX,
    }
}

/// Whether there is a function for operations of this name.
pub(crate) fn is_known(dialect: Dialect, name: &str) -> bool {
    functions(dialect).contains_key(name)
}

/// Every operation that has a function, in alphabetical order.
pub(crate) fn known(dialect: Dialect) -> Vec<&'static str> {
    let mut names: Vec<&str> = functions(dialect).keys().copied().collect();
    names.sort_unstable();
    names
}

/// Steps after which a loop's graph is run, rather than made longer.
const LONGEST: usize = 4096;

/// A graph on the way.
pub(crate) struct Lowering<'m> {
    dialect: Dialect,
    device: &'m Device,
    cache: &'m ExecutableCache,
    weights: &'m [StoredTensor],
    pub(crate) graph: Graph,
    values: Vec<Option<Value>>,
    /// By parameter: what it is called in this graph.
    placed: HashMap<usize, Tensor>,
    feeds: Vec<Feed>,
    /// What tensors of graphs that were run during this operation were computed to: the operation may have them in its hands.
    moved: HashMap<Tensor, Held>,
    /// Operators in this graph.
    steps: usize,
    /// The graphs that were run on the way, and what was read.
    course: Course,
    /// Rounds of a loop at most.
    longest_loop: usize,
}

/// A placeholder of a graph, and what it is fed.
pub(crate) struct Feed {
    pub(crate) name: String,
    pub(crate) placeholder: Tensor,
    pub(crate) held: Held,
}

/// What a program became: its last graph, and how it came there.
pub(crate) struct Lowered {
    pub(crate) graph: Graph,
    pub(crate) results: Vec<Tensor>,
    pub(crate) feeds: Vec<Feed>,
    pub(crate) course: Course,
}

/// Lowers a whole program for these inputs.
pub(crate) fn lower(
    program: &Program,
    device: &Device,
    cache: &ExecutableCache,
    weights: &[StoredTensor],
    inputs: &[TensorData],
    longest_loop: usize,
) -> Result<Lowered> {
    let mut lowering = Lowering {
        dialect: program.dialect,
        device,
        cache,
        weights,
        graph: Graph::new(),
        values: vec![None; program.values.len()],
        placed: HashMap::new(),
        feeds: Vec::new(),
        moved: HashMap::new(),
        steps: 0,
        course: Course::default(),
        longest_loop,
    };
    for (at, port) in program.parameters.iter().enumerate() {
        lowering.values[port.value] = Some(Value::Weight(at));
    }
    for (at, (port, input)) in program.inputs.iter().zip(inputs).enumerate() {
        let tensor = lowering.place(port.name.clone(), Held { tensor: input.clone(), origin: Origin::Input(at) })?;
        lowering.values[port.value] = Some(Value::Tensor(tensor));
    }
    lowering.block(&program.body)?;
    let mut results = Vec::with_capacity(program.outputs.len());
    for port in &program.outputs {
        let value = lowering.value_of(port.value, "an output")?;
        results.push(lowering.tensor_of(&value)?);
    }
    let Lowering { graph, feeds, course, .. } = lowering;
    Ok(Lowered { graph, results, feeds, course })
}

impl Lowering<'_> {
    /// Lowers a block's operations.
    pub(crate) fn block(&mut self, block: &Block) -> Result<()> {
        for (operation, released) in block.operations.iter().zip(&block.released) {
            self.operation(operation)?;
            self.forget(released.iter().copied());
        }
        Ok(())
    }

    fn operation(&mut self, operation: &Operation) -> Result<()> {
        let name = &operation.name;
        let lower = functions(self.dialect).get(&name[..]).ok_or_else(|| Error::Unsupported(vec![name.clone()]))?;
        let outputs = lower(self, operation).map_err(|error| match error {
            Error::Run(source) => Error::Lowering { operation: name.clone(), source },
            other => other,
        })?;
        for (id, value) in operation.outputs.iter().zip(outputs) {
            if let Some(id) = id {
                self.values[*id] = Some(value.now(&self.moved));
            }
        }
        self.moved.clear();
        Ok(())
    }

    pub(crate) fn set(&mut self, id: ValueId, value: Value) {
        self.values[id] = Some(value);
    }

    pub(crate) fn value_of(&self, id: ValueId, what: &str) -> Result<Value> {
        let value = self.values.get(id).cloned().flatten();
        value.ok_or_else(|| Error::program(format!("value {id}, {what}, was never made")))
    }

    /// An input that must be there.
    pub(crate) fn input(&self, operation: &Operation, at: usize) -> Result<Value> {
        self.optional(operation, at)?.ok_or_else(|| wrong(operation, format!("its input {at} is missing")))
    }

    /// An input that may be missing.
    pub(crate) fn optional(&self, operation: &Operation, at: usize) -> Result<Option<Value>> {
        match operation.inputs.get(at).copied().flatten() {
            Some(id) => self.value_of(id, "an input").map(Some),
            None => Ok(None),
        }
    }

    /// The members of an input that is a list.
    pub(crate) fn list(&self, operation: &Operation, at: usize) -> Result<Vec<Value>> {
        match self.optional(operation, at)? {
            Some(Value::List(members)) => Ok(members),
            Some(single) => Ok(vec![single]),
            None => Ok(Vec::new()),
        }
    }

    /// Whole numbers that are an input, or an attribute where that input is missing. A list of tensors is one number each; an
    /// attribute's negative ones may stand for them.
    pub(crate) fn integers(&mut self, operation: &Operation, at: usize, attribute: &str) -> Result<Option<Vec<i64>>> {
        match self.optional(operation, at)? {
            Some(Value::List(members)) => {
                let mut numbers = Vec::new();
                for member in members {
                    numbers.extend(self.known(&member)?.data.into_iter().map(|number| number as i64));
                }
                Ok(Some(numbers))
            }
            Some(value) => Ok(Some(self.known(&value)?.data.into_iter().map(|number| number as i64).collect())),
            None => operation.integers(attribute),
        }
    }

    /// A number that is an input, or an attribute where that input is missing.
    pub(crate) fn number(&mut self, operation: &Operation, at: usize, attribute: &str, default: f64) -> Result<f64> {
        match self.optional(operation, at)? {
            Some(value) => {
                let known = self.known(&value)?;
                known.data.first().copied().ok_or_else(|| wrong(operation, format!("its {attribute} is empty")))
            }
            None => operation.float(attribute, default),
        }
    }

    /// Shape and element type of a value.
    pub(crate) fn meta(&self, value: &Value) -> Result<Meta> {
        Ok(match value {
            Value::Tensor(tensor) if self.moved.contains_key(tensor) => meta_of(&self.moved[tensor].tensor)?,
            Value::Tensor(tensor) => {
                Meta { dtype: self.graph.data_type(*tensor)?, shape: shape_of(self.graph.shape(*tensor)?)? }
            }
            Value::Known(array) => Meta { dtype: array.dtype, shape: array.shape.clone() },
            Value::Weight(at) => {
                let weight = &self.weights[*at];
                Meta { dtype: weight.data_type(), shape: shape_of(weight.shape())? }
            }
            Value::Held(held) => meta_of(&held.tensor)?,
            Value::List(_) => return Err(Error::program("a list of tensors where one tensor is expected")),
        })
    }

    pub(crate) fn shape(&self, value: &Value) -> Result<Vec<usize>> {
        Ok(self.meta(value)?.shape.to_vec())
    }

    pub(crate) fn data_type(&self, value: &Value) -> Result<DataType> {
        Ok(self.meta(value)?.dtype)
    }

    /// The value as a tensor of the graph.
    pub(crate) fn tensor_of(&mut self, value: &Value) -> Result<Tensor> {
        Ok(match value.clone().now(&self.moved) {
            Value::Tensor(tensor) => tensor,
            Value::Known(array) => value::constant(&mut self.graph, &array)?,
            Value::Weight(at) => match self.placed.get(&at) {
                Some(&tensor) => tensor,
                None => {
                    let tensor = self.graph.stored(&self.weights[at]);
                    self.placed.insert(at, tensor);
                    tensor
                }
            },
            Value::Held(held) => match self.feeds.iter().find(|feed| feed.held.origin == held.origin) {
                Some(feed) => feed.placeholder,
                None => self.place(format!("held {}", self.feeds.len()), held)?,
            },
            Value::List(_) => return Err(Error::program("a list of tensors where one tensor is expected")),
        })
    }

    fn place(&mut self, name: String, held: Held) -> Result<Tensor> {
        let placeholder = self.graph.placeholder(&name, held.tensor.shape(), held.tensor.data_type())?;
        self.feeds.push(Feed { name, placeholder, held });
        Ok(placeholder)
    }

    /// An operator's outputs: computed at once where all its inputs are known and small, else a step of the graph.
    pub(crate) fn apply(&mut self, operator: impl Operator, inputs: &[Value]) -> Result<Vec<Value>> {
        if let Some(known) = value::evaluate(&operator, inputs)? {
            return Ok(known.into_iter().map(Value::Known).collect());
        }
        let tensors = inputs.iter().map(|input| self.tensor_of(input)).collect::<Result<Vec<_>>>()?;
        self.steps += 1;
        Ok(self.graph.operator(operator, &tensors)?.into_iter().map(Value::Tensor).collect())
    }

    /// The only output of an operator.
    pub(crate) fn one(&mut self, operator: impl Operator, inputs: &[Value]) -> Result<Value> {
        self.apply(operator, inputs)?.into_iter().next().ok_or_else(|| Error::program("an operator without an output"))
    }

    /// The same elements under another shape.
    pub(crate) fn reshape(&mut self, value: &Value, shape: &[usize]) -> Result<Value> {
        if let Value::Known(array) = value
            && array.data.len() == shape.iter().product::<usize>()
        {
            return Ok(Value::Known(Array { shape: shape_of(shape)?, ..array.clone() }));
        }
        let tensor = self.tensor_of(value)?;
        Ok(Value::Tensor(self.graph.reshape(tensor, shape)?))
    }

    /// The elements of a value, for which the graph so far is run where they are not known.
    pub(crate) fn known(&mut self, value: &Value) -> Result<Array> {
        if let Value::Known(array) = value {
            return Ok(array.clone());
        }
        if let Value::Weight(at) = value {
            return read(&self.weights[*at].tensor()?);
        }
        let mut held = value.clone().now(&self.moved);
        if !matches!(held, Value::Held(_)) {
            self.run(&mut held)?;
        }
        let Value::Held(Held { tensor, origin }) = &held else {
            return Err(Error::program("a value that cannot be read"));
        };
        let numbers = read(tensor)?;
        self.course.read(*origin, &numbers.data);
        Ok(numbers)
    }

    /// Runs the graph where it has grown long.
    pub(crate) fn run_if_long(&mut self) -> Result<()> {
        if self.steps > LONGEST { self.run(&mut Value::List(Vec::new())) } else { Ok(()) }
    }

    /// Runs the graph so far; every tensor that is alive, and `wanted`, is held in memory afterwards, and the next graph is empty.
    pub(crate) fn run(&mut self, wanted: &mut Value) -> Result<()> {
        // What was fed is there already.
        let feeds = std::mem::take(&mut self.feeds);
        let mut held: HashMap<Tensor, Held> = feeds.iter().map(|feed| (feed.placeholder, feed.held.clone())).collect();
        let mut tensors: Vec<Tensor> = Vec::new();
        self.values.iter().flatten().chain([&*wanted]).for_each(|value| value.collect(&mut tensors));
        tensors.retain(|tensor| !held.contains_key(tensor));
        if !tensors.is_empty() {
            held.extend(self.compute(&tensors, feeds)?);
        }
        self.values.iter_mut().flatten().chain([wanted]).for_each(|value| value.hold(&held));
        self.moved.extend(held);
        self.graph = Graph::new();
        self.placed.clear();
        self.steps = 0;
        Ok(())
    }

    /// Runs the graph so far for these tensors.
    fn compute(&mut self, tensors: &[Tensor], feeds: Vec<Feed>) -> Result<Vec<(Tensor, Held)>> {
        let executable = self.cache.compile(&self.graph, self.device, tensors, OptimizationLevel::Level1)?;
        let (segment, results) = Segment::first(executable, &self.device.queue(), feeds)?;
        let number = self.course.ran(segment);
        let held = |(result, tensor)| Held { tensor, origin: Origin::Graph { number, result } };
        Ok(tensors.iter().copied().zip(results.into_iter().enumerate().map(held)).collect())
    }

    /// Forgets values that nobody reads any more.
    pub(crate) fn forget(&mut self, ids: impl IntoIterator<Item = ValueId>) {
        ids.into_iter().for_each(|id| self.values[id] = None);
    }
}

fn meta_of(tensor: &TensorData) -> Result<Meta> {
    Ok(Meta { dtype: tensor.data_type(), shape: shape_of(tensor.shape())? })
}

/// An error of an operation.
pub(crate) fn wrong(operation: &Operation, what: impl Into<String>) -> Error {
    Error::Operation { operation: operation.name.clone(), what: what.into() }
}

/// An axis, negative ones counted from the end.
pub(crate) fn axis_of(operation: &Operation, axis: i64, rank: usize) -> Result<usize> {
    let resolved = if axis < 0 { axis + rank as i64 } else { axis };
    let inside = usize::try_from(resolved).ok().filter(|&axis| axis < rank.max(1));
    inside.ok_or_else(|| wrong(operation, format!("axis {axis} of {rank} dimensions")))
}

/// Axes that may not be named at all.
pub(crate) fn axes_of(operation: &Operation, axes: Option<Vec<i64>>, rank: usize) -> Result<Vec<usize>> {
    axes.unwrap_or_default().into_iter().map(|axis| axis_of(operation, axis, rank)).collect()
}

/// A number in the kind that it has for elements of this type.
pub(crate) fn number_of(dtype: DataType, value: f64) -> Number {
    if dtype.is_float() { Number::Float(value) } else { Number::Integer(value as i64) }
}

/// A size that is not negative.
pub(crate) fn size_of(operation: &Operation, size: i64) -> Result<usize> {
    usize::try_from(size).map_err(|_| wrong(operation, format!("a size of {size}")))
}

/// Sizes of which none is negative.
pub(crate) fn sizes_of(operation: &Operation, sizes: impl IntoIterator<Item = i64>) -> Result<Vec<usize>> {
    sizes.into_iter().map(|size| size_of(operation, size)).collect()
}
