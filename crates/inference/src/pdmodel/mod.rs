//! Paddle's legacy format, `.pdmodel`: a protobuf whose operations have named slots and whose variables may be written again.
//!
//! It becomes what the new representation is: each write makes a value of its own, slots stand in the order of the signature,
//! operations and attributes have today's names (`names.rs`), and what a branch or a loop writes of variables outside is handed back
//! (`control.rs`).

mod control;
pub(crate) mod format;
mod names;

use crate::error::{Error, Result};
use crate::program::{Attribute, Block, Operation, Port, Program, ValueId, ValueType};
use format::{Attr, BlockDesc, OpDesc, ProgramDesc, Scalar, VarDesc};
use openmps::DataType;
use prost::Message;
use std::collections::{BTreeMap, HashMap};

/// `VarType.Type` of a dense tensor.
const DENSE_TENSOR: i32 = 7;

/// The version of Paddle that wrote a program, as millions, thousands and ones; 0 is a development version.
const NEWEST: i64 = 3_999_999;

/// The element type of this number in `VarType.Type`.
pub fn data_type(code: i64) -> Option<DataType> {
    Some(match code {
        0 => DataType::Bool,
        1 => DataType::I16,
        2 => DataType::I32,
        3 => DataType::I64,
        4 => DataType::F16,
        5 => DataType::F32,
        6 => DataType::F64,
        20 => DataType::U8,
        21 => DataType::I8,
        22 => DataType::BF16,
        _ => return None,
    })
}

/// Reads a program.
pub fn read(file: &[u8]) -> Result<Program> {
    let program = match ProgramDesc::decode(file) {
        Ok(program) if !program.blocks.is_empty() => program,
        Ok(_) => return Err(Error::program("no block")),
        Err(error) => return Err(Error::program(error.to_string())),
    };
    let version = program.version.as_ref().and_then(|version| version.version).unwrap_or(0);
    if !(0..=NEWEST).contains(&version) {
        return Err(Error::Version { got: version, known: "those of Paddle up to 3" });
    }
    control::check(&program.blocks)?;
    let block = &program.blocks[0];
    let mut reader = Reader { blocks: &program.blocks, ..Reader::default() };
    reader.parameters(block);
    reader.program.body.operations = reader.operations(block)?;
    reader.program.inputs = in_order(reader.inputs);
    reader.program.outputs = in_order(reader.outputs);
    reader.program.plan_releases();
    Ok(reader.program)
}

fn in_order(mut ports: Vec<(i64, Port)>) -> Vec<Port> {
    ports.sort_by_key(|(column, _)| *column);
    ports.into_iter().map(|(_, port)| port).collect()
}

#[derive(Default)]
struct Reader<'a> {
    blocks: &'a [BlockDesc],
    program: Program,
    /// Of the block that is being read.
    operations: Vec<Operation>,
    declared: HashMap<&'a str, &'a VarDesc>,
    /// What each variable holds at this place.
    current: HashMap<&'a str, ValueId>,
    /// By their columns, in which operations need not stand.
    inputs: Vec<(i64, Port)>,
    outputs: Vec<(i64, Port)>,
}

impl<'a> Reader<'a> {
    fn parameters(&mut self, block: &'a BlockDesc) {
        self.declare(block);
        for variable in &block.vars {
            let is_tensor = variable.kind.kind == DENSE_TENSOR;
            if variable.persistable == Some(true) && is_tensor {
                let value = self.write(&variable.name);
                self.program.parameters.push(Port { name: variable.name.clone(), value });
            }
        }
        self.program.parameters.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn declare(&mut self, block: &'a BlockDesc) {
        self.declared.extend(block.vars.iter().map(|variable| (&variable.name[..], variable)));
    }

    /// What a block does.
    fn operations(&mut self, block: &'a BlockDesc) -> Result<Vec<Operation>> {
        self.declare(block);
        let outer = std::mem::take(&mut self.operations);
        block.ops.iter().try_for_each(|operation| self.operation(operation))?;
        Ok(std::mem::replace(&mut self.operations, outer))
    }

    /// A new value in a variable.
    fn write(&mut self, name: &'a str) -> ValueId {
        let tensor = self.declared.get(name).and_then(|variable| variable.kind.dense_tensor.as_ref());
        self.program.values.push(tensor.map_or_else(ValueType::default, |tensor| ValueType {
            data_type: data_type(i64::from(tensor.tensor.data_type)),
            dims: tensor.tensor.dims.clone(),
            ..ValueType::default()
        }));
        let value = self.program.values.len() - 1;
        self.current.insert(name, value);
        value
    }

    fn read(&self, name: &str) -> Result<ValueId> {
        let value = self.current.get(name).copied();
        value.ok_or_else(|| Error::program(format!("the variable {name:?} is read before it is written")))
    }

    fn operation(&mut self, operation: &'a OpDesc) -> Result<()> {
        let mut attributes = attributes(operation);
        let column = match attributes.get("col") {
            Some(Attribute::Integer(column)) => *column,
            _ => 0,
        };
        match &operation.kind[..] {
            "feed" => {
                let Some(name) = slot(&operation.outputs, "Out").first() else {
                    return Err(Error::program("a feed without a variable"));
                };
                let value = self.write(name);
                self.inputs.push((column, Port { name: name.clone(), value }));
                return Ok(());
            }
            "fetch" => {
                let Some(name) = slot(&operation.inputs, "X").first() else {
                    return Err(Error::program("a fetch without a variable"));
                };
                self.outputs.push((column, Port { name: name.clone(), value: self.read(name)? }));
                return Ok(());
            }
            "while" => return self.repeat(operation),
            "conditional_block" => return self.branch(operation),
            _ => {}
        }
        let Some(row) = names::find(&operation.kind) else {
            self.unknown(operation, attributes);
            return Ok(());
        };
        for &(old, new) in row.attributes {
            if let Some(content) = attributes.remove(old) {
                attributes.insert(new.to_owned(), content);
            }
        }
        let inputs = row.inputs.iter().map(|slot| self.slot_value(operation, slot)).collect::<Result<Vec<_>>>()?;
        let mut outputs = Vec::new();
        for &name in row.outputs {
            let names = slot(&operation.outputs, name.trim_end_matches('*'));
            if name.ends_with('*') {
                outputs.extend(names.iter().map(|name| Some(self.write(name))));
            } else {
                outputs.push(names.first().map(|name| self.write(name)));
            }
        }
        self.operations.push(Operation { name: row.name.to_owned(), inputs, outputs, attributes, blocks: Vec::new() });
        Ok(())
    }

    /// An operation that is not in the table. It must not be taken for today's one of that name, whose inputs it may not have; all that it
    /// writes is written, so that the program can be read to its end and every such operation be named.
    fn unknown(&mut self, operation: &'a OpDesc, attributes: BTreeMap<String, Attribute>) {
        let written = operation.outputs.iter().flat_map(|slot| &slot.arguments);
        let outputs = written.map(|name| Some(self.write(name))).collect();
        let name = format!("{} (legacy)", operation.kind);
        self.operations.push(Operation { name, outputs, attributes, ..Operation::default() });
    }

    /// The value of a slot, or of the first one that there is where the slot is `A|B`. A list (`A*`) becomes a value by `combine`. What
    /// an output's variable holds before the operation is `=A`.
    fn slot_value(&mut self, operation: &'a OpDesc, slots: &str) -> Result<Option<ValueId>> {
        if let Some(output) = slots.strip_prefix('=') {
            let name = slot(&operation.outputs, output).first();
            return Ok(name.and_then(|name| self.current.get(&name[..]).copied()));
        }
        for name in slots.split('|') {
            let names = slot(&operation.inputs, name.trim_end_matches('*'));
            if names.is_empty() {
                continue;
            }
            if !name.ends_with('*') {
                return self.read(&names[0]).map(Some);
            }
            let inputs = names.iter().map(|name| self.read(name).map(Some)).collect::<Result<_>>()?;
            return Ok(Some(self.combine(inputs)));
        }
        Ok(None)
    }

    /// A list of values, as a value.
    fn combine(&mut self, inputs: Vec<Option<ValueId>>) -> ValueId {
        self.program.values.push(ValueType::default());
        let list = self.program.values.len() - 1;
        let combine =
            Operation { name: "combine".to_owned(), inputs, outputs: vec![Some(list)], ..Operation::default() };
        self.operations.push(combine);
        list
    }
}

fn slot<'a>(arguments: &'a [format::Arguments], name: &str) -> &'a [String] {
    let found = arguments.iter().find(|slot| slot.parameter == name);
    found.map_or(&[], |slot| &slot.arguments)
}

fn attributes(operation: &OpDesc) -> BTreeMap<String, Attribute> {
    let read = |attribute: &Attr| Some((attribute.name.clone(), content(attribute)?));
    operation.attrs.iter().filter_map(read).collect()
}

/// What an attribute holds, by the number of its kind in `AttrType`.
fn content(attribute: &Attr) -> Option<Attribute> {
    Some(match attribute.kind {
        0 => Attribute::Integer(i64::from(attribute.i?)),
        1 => Attribute::Float(f64::from(attribute.f?)),
        2 => Attribute::Text(attribute.s.clone()?),
        3 => Attribute::Integers(attribute.ints.iter().map(|&value| i64::from(value)).collect()),
        4 => Attribute::Floats(attribute.floats.iter().map(|&value| f64::from(value)).collect()),
        5 => Attribute::Texts(attribute.strings.clone()),
        6 => Attribute::Flag(attribute.b?),
        7 => Attribute::Integers(attribute.bools.iter().map(|&value| i64::from(value)).collect()),
        9 => Attribute::Integer(attribute.l?),
        11 => Attribute::Integers(attribute.longs.clone()),
        12 => Attribute::Floats(attribute.float64s.clone()),
        15 => Attribute::Float(attribute.float64?),
        16 => scalar(attribute.scalar.as_ref()?)?,
        17 => Attribute::Floats(attribute.scalars.iter().map(number).collect::<Option<_>>()?),
        _ => return None,
    })
}

fn number(value: &Scalar) -> Option<f64> {
    match scalar(value)? {
        Attribute::Flag(flag) => Some(f64::from(u8::from(flag))),
        Attribute::Integer(whole) => Some(whole as f64),
        Attribute::Float(value) => Some(value),
        _ => None,
    }
}

fn scalar(scalar: &Scalar) -> Option<Attribute> {
    let flag = scalar.b.map(Attribute::Flag);
    let whole = scalar.i.map(Attribute::Integer);
    flag.or(whole).or_else(|| scalar.r.map(Attribute::Float))
}
