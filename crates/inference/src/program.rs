//! A program: operations by the names of Paddle or ONNX, attributes, typed values.

use crate::error::{Error, Result};
use openmps::DataType;
use std::collections::BTreeMap;

/// A value's number in [`Program::values`].
pub type ValueId = usize;

/// Whose operations a program is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Paddle's, in either form of its files.
    #[default]
    Paddle,
    /// ONNX's, of this version of its set of operators.
    Onnx {
        /// The version of the set.
        opset: i64,
    },
}

/// A whole model but for its parameters' contents.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Whose names and attributes its operations have.
    pub dialect: Dialect,
    /// What its author wrote beside it: a list of characters, names of classes. Only ONNX has it.
    pub metadata: BTreeMap<String, String>,
    /// Who wrote it, as ONNX says.
    pub origin: Origin,
    /// Every value that an operation makes or reads.
    pub values: Vec<ValueType>,
    /// The operations of the main block.
    pub body: Block,
    /// Values that files hold: Paddle's in the order of their file, which is that of their names.
    pub parameters: Vec<Port>,
    /// What a run is given.
    pub inputs: Vec<Port>,
    /// Tensors of the model that a run may be given instead; only ONNX has them.
    pub overridable: Vec<(String, ValueType)>,
    /// What a run gives back.
    pub outputs: Vec<Port>,
}

/// Who wrote a model, and what it is called: empty where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Origin {
    pub producer_name: String,
    pub graph_name: String,
    pub domain: String,
    pub description: String,
    pub graph_description: String,
    pub version: i64,
}

/// A value with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name that the model gives it.
    pub name: String,
    /// Which value it is.
    pub value: ValueId,
}

/// What is known of a value before a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueType {
    /// The type of its elements; none where it is not a tensor, or of a type that openmps does not have.
    pub data_type: Option<DataType>,
    /// Its dimensions, -1 where a run decides.
    pub dims: Vec<i64>,
    /// What the model calls its dimensions, where it names any.
    pub names: Vec<Option<String>>,
    /// Whether a run decides even how many dimensions it has.
    pub any_rank: bool,
}

/// Operations in their order.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Values that whoever runs the block hands over.
    pub arguments: Vec<ValueId>,
    /// What it does.
    pub operations: Vec<Operation>,
    /// What it hands back.
    pub yields: Vec<ValueId>,
    /// By operation: values of this block that nobody reads after it.
    pub released: Vec<Vec<ValueId>>,
}

/// An operation, in the form that every file is read into.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// Paddle's name without its dialect, without the underscore of operations in place; ONNX's, of other domains with the domain before it.
    pub name: String,
    /// What it reads, in the order of its signature; none where an optional input is missing.
    pub inputs: Vec<Option<ValueId>>,
    /// What it makes; none where nobody wants it.
    pub outputs: Vec<Option<ValueId>>,
    /// Its attributes by name.
    pub attributes: BTreeMap<String, Attribute>,
    /// The blocks of a branch (then, else) and of a loop (body).
    pub blocks: Vec<Block>,
}

/// An attribute's content. Lists of no elements are `Integers`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Attribute {
    Flag(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Texts(Vec<String>),
    /// None is a type that the operation derives from its inputs.
    DataType(Option<DataType>),
}

impl Operation {
    fn wrong(&self, attribute: &str, expected: &str) -> Error {
        let got = self.attributes.get(attribute);
        let what = format!("the attribute {attribute} is {got:?}, expected {expected}");
        Error::Operation { operation: self.name.clone(), what }
    }

    /// A whole number.
    pub fn integer(&self, name: &str, default: i64) -> Result<i64> {
        match self.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Integer(value)) => Ok(*value),
            Some(Attribute::Float(value)) if value.fract() == 0.0 => Ok(*value as i64),
            Some(Attribute::Integers(values)) if values.len() == 1 => Ok(values[0]),
            Some(_) => Err(self.wrong(name, "a whole number")),
        }
    }

    /// A number.
    pub fn float(&self, name: &str, default: f64) -> Result<f64> {
        match self.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Integer(value)) => Ok(*value as f64),
            Some(Attribute::Float(value)) => Ok(*value),
            Some(Attribute::Flag(value)) => Ok(f64::from(u8::from(*value))),
            Some(_) => Err(self.wrong(name, "a number")),
        }
    }

    /// A switch.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Flag(value)) => Ok(*value),
            Some(Attribute::Integer(value)) => Ok(*value != 0),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    /// A word.
    pub fn text<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str> {
        match self.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Text(value)) => Ok(value),
            Some(_) => Err(self.wrong(name, "a text")),
        }
    }

    /// Whole numbers; none where there is no such attribute.
    pub fn integers(&self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Integers(values)) => Ok(Some(values.clone())),
            Some(Attribute::Integer(value)) => Ok(Some(vec![*value])),
            Some(Attribute::Floats(values)) if values.iter().all(|value| value.fract() == 0.0) => {
                Ok(Some(values.iter().map(|&value| value as i64).collect()))
            }
            Some(_) => Err(self.wrong(name, "whole numbers")),
        }
    }

    /// Numbers; none where there is no such attribute.
    pub fn floats(&self, name: &str) -> Result<Option<Vec<f64>>> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Floats(values)) => Ok(Some(values.clone())),
            Some(Attribute::Integers(values)) => Ok(Some(values.iter().map(|&value| value as f64).collect())),
            Some(_) => Err(self.wrong(name, "numbers")),
        }
    }

    /// An element type; none where there is no such attribute, or where the inputs say it.
    pub fn data_type(&self, name: &str) -> Result<Option<DataType>> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::DataType(value)) => Ok(*value),
            Some(Attribute::Integer(code)) => Ok(crate::pdmodel::data_type(*code)),
            Some(_) => Err(self.wrong(name, "an element type")),
        }
    }
}

impl Block {
    /// Calls `each` with every operation of this block and of those inside it.
    pub fn visit<'a>(&'a self, each: &mut impl FnMut(&'a Operation)) {
        for operation in &self.operations {
            each(operation);
            operation.blocks.iter().for_each(|block| block.visit(each));
        }
    }
}

impl Program {
    /// Finds out after which operation each value is no longer needed.
    pub(crate) fn plan_releases(&mut self) {
        let kept: Vec<ValueId> = self.outputs.iter().map(|port| port.value).collect();
        self.body.plan_releases(&kept);
    }
}

impl Block {
    fn plan_releases(&mut self, kept: &[ValueId]) {
        let mut last: BTreeMap<ValueId, usize> = self.arguments.iter().map(|&id| (id, 0)).collect();
        for (at, operation) in self.operations.iter_mut().enumerate() {
            operation.blocks.iter_mut().for_each(|block| block.plan_releases(&[]));
            let mut used = Vec::new();
            operation.uses(&mut used);
            for id in used {
                // What an outer block made is that block's to release.
                if let Some(last) = last.get_mut(&id) {
                    *last = at;
                }
            }
            last.extend(operation.outputs.iter().flatten().map(|&id| (id, at)));
        }
        self.released = vec![Vec::new(); self.operations.len()];
        for (id, at) in last {
            let is_kept = kept.contains(&id) || self.yields.contains(&id);
            if let Some(released) = self.released.get_mut(at).filter(|_| !is_kept) {
                released.push(id);
            }
        }
    }
}

impl Operation {
    /// Every value that it or what is inside it reads.
    fn uses(&self, used: &mut Vec<ValueId>) {
        used.extend(self.inputs.iter().flatten());
        for block in &self.blocks {
            block.operations.iter().for_each(|operation| operation.uses(used));
            used.extend(&block.yields);
        }
    }
}

/// The element type of this name.
pub(crate) fn data_type_of(name: &str) -> Option<DataType> {
    Some(match name {
        "bool" => DataType::Bool,
        "uint8" | "ui8" => DataType::U8,
        "int8" | "i8" => DataType::I8,
        "int16" | "i16" => DataType::I16,
        "int32" | "i32" => DataType::I32,
        "int64" | "i64" | "index" => DataType::I64,
        "float16" | "f16" => DataType::F16,
        "bfloat16" | "bf16" => DataType::BF16,
        "float32" | "f32" => DataType::F32,
        "float64" | "f64" => DataType::F64,
        _ => return None,
    })
}
