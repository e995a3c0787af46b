//! Paddle's new representation (PIR): a program as JSON, `inference.json`.
//!
//! Objects have short keys: `#` what it is, `%` a value's number, `I` and `O` what goes in and out, `A` attributes (`N` a name, `AT` its
//! content), `TT` a type, `D` its parts, `OA` attributes of outputs. Dialects are numbers: `0.` builtin, `1.` operators of Paddle, `2.`
//! control flow; `p` is a parameter.

use crate::error::{Error, Result};
use crate::program::{Attribute, Block, Operation, Port, Program, ValueId, ValueType, data_type_of};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashMap};

/// Versions of the format that are read.
const VERSIONS: std::ops::RangeInclusive<i64> = 0..=4;
const VERSIONS_TEXT: &str = "0 to 4";

/// Blocks inside blocks at most.
const DEPTH: usize = 32;

/// Reads a program.
pub fn read(text: &[u8]) -> Result<Program> {
    let file: Json = serde_json::from_slice(text).map_err(|error| Error::program(error.to_string()))?;
    let code = &file["base_code"];
    if code["magic"] != "pir" {
        return Err(Error::program(format!("base_code.magic is {}, expected \"pir\"", code["magic"])));
    }
    let version = code["version"].as_i64().ok_or_else(|| Error::program("base_code.version is no number"))?;
    if !VERSIONS.contains(&version) {
        return Err(Error::Version { got: version, known: VERSIONS_TEXT });
    }
    let mut reader = Reader::default();
    let block = first_block(array(&file["program"], "regions")?)?;
    reader.program.body = reader.block(block, 0)?;
    reader.program.parameters.sort_by(|a, b| a.name.cmp(&b.name));
    reader.outputs.sort_by_key(|(column, _)| *column);
    reader.program.outputs = reader.outputs.into_iter().map(|(_, port)| port).collect();
    reader.program.plan_releases();
    Ok(reader.program)
}

#[derive(Default)]
struct Reader {
    program: Program,
    /// By the number in the file. Arguments of blocks have negative numbers, which other blocks use again.
    ids: HashMap<i64, ValueId>,
    outputs: Vec<(i64, Port)>,
}

impl Reader {
    fn block(&mut self, block: &Json, depth: usize) -> Result<Block> {
        if depth > DEPTH {
            return Err(Error::program(format!("more than {DEPTH} blocks inside each other")));
        }
        let mut shadowed = Vec::new();
        let mut read = Block::default();
        for argument in array(block, "args")? {
            let number = integer(argument, "#")?;
            let id = self.new_value(&argument["TT"]);
            shadowed.push((number, self.ids.insert(number, id)));
            read.arguments.push(id);
        }
        for operation in array(block, "ops")? {
            self.operation(operation, &mut read, depth)?;
        }
        for (number, before) in shadowed.into_iter().rev() {
            match before {
                Some(id) => self.ids.insert(number, id),
                None => self.ids.remove(&number),
            };
        }
        Ok(read)
    }

    fn operation(&mut self, operation: &Json, block: &mut Block, depth: usize) -> Result<()> {
        let full_name = text(operation, "#")?;
        if full_name == "p" {
            return self.parameter(operation);
        }
        let (_, name) = full_name.split_once('.').unwrap_or(("", full_name));
        let inputs: Vec<Option<ValueId>> =
            array(operation, "I")?.iter().map(|input| self.used(input)).collect::<Result<_>>()?;
        let attributes = attributes(operation)?;
        match (full_name, name) {
            (_, "yield") => {
                block.yields = inputs.into_iter().flatten().collect();
                return Ok(());
            }
            (_, "data" | "feed") => {
                let value = self.made(operation)?;
                let Some(Some(value)) = value.first().copied() else {
                    return Err(Error::program("an input without a value"));
                };
                self.program.inputs.push(Port { name: name_of(&attributes, "an input")?, value });
                return Ok(());
            }
            (_, "fetch") => {
                let column = match attributes.get("col") {
                    Some(Attribute::Integer(column)) => *column,
                    _ => self.outputs.len() as i64,
                };
                let Some(Some(value)) = inputs.first().copied() else {
                    return Err(Error::program("an output without a value"));
                };
                self.outputs.push((column, Port { name: name_of(&attributes, "an output")?, value }));
                return Ok(());
            }
            _ => {}
        }
        let mut blocks = Vec::new();
        if let Some(regions) = operation.get("regions") {
            for region in regions.as_array().ok_or_else(|| Error::program("regions that are no list"))? {
                blocks.push(self.block(first_block(std::slice::from_ref(region))?, depth + 1)?);
            }
        }
        let outputs = self.made(operation)?;
        // `builtin.split` takes a list apart; Paddle's own `split` divides a tensor.
        let name = match full_name {
            "0.split" => "builtin.split",
            "0.slice" => "builtin.slice",
            _ => name.trim_end_matches('_'),
        };
        block.operations.push(Operation { name: name.to_owned(), inputs, outputs, attributes, blocks });
        Ok(())
    }

    /// A parameter: `A` ends with its name, `OA` begins with whether the file of parameters has it.
    fn parameter(&mut self, operation: &Json) -> Result<()> {
        let name = array(operation, "A")?.last().and_then(Json::as_str);
        let name = name.ok_or_else(|| Error::program("a parameter without a name"))?.to_owned();
        let value = self.output(&operation["O"])?;
        let Some(value) = value else { return Err(Error::program(format!("the parameter {name} has no value"))) };
        let is_stored = operation["OA"].as_array().and_then(|all| all.first()).and_then(Json::as_i64) != Some(0);
        if is_stored {
            self.program.parameters.push(Port { name, value });
        }
        Ok(())
    }

    fn made(&mut self, operation: &Json) -> Result<Vec<Option<ValueId>>> {
        array(operation, "O")?.iter().map(|output| self.output(output)).collect()
    }

    fn output(&mut self, output: &Json) -> Result<Option<ValueId>> {
        let number = integer(output, "%")?;
        if number == 0 {
            return Ok(None);
        }
        let id = self.new_value(&output["TT"]);
        self.ids.insert(number, id);
        Ok(Some(id))
    }

    fn used(&self, input: &Json) -> Result<Option<ValueId>> {
        let number = integer(input, "%")?;
        if number == 0 {
            return Ok(None);
        }
        let known = self.ids.get(&number).copied();
        known.map(Some).ok_or_else(|| Error::program(format!("value {number} is read before it is made")))
    }

    fn new_value(&mut self, kind: &Json) -> ValueId {
        self.program.values.push(value_type(kind));
        self.program.values.len() - 1
    }
}

/// A tensor's type; another one is left open.
fn value_type(kind: &Json) -> ValueType {
    let is_tensor = kind["#"].as_str().is_some_and(|name| name.ends_with("t_dtensor"));
    if !is_tensor {
        return ValueType::default();
    }
    let dims = kind["D"][1].as_array().map_or_else(Vec::new, |dims| dims.iter().filter_map(Json::as_i64).collect());
    ValueType { data_type: type_name(&kind["D"][0]).and_then(data_type_of), dims, ..ValueType::default() }
}

/// The name of an element type: `float32` of `0.t_f32`.
fn type_name(kind: &Json) -> Option<&str> {
    kind["#"].as_str()?.split_once("t_").map(|(_, name)| name)
}

fn attributes(operation: &Json) -> Result<BTreeMap<String, Attribute>> {
    let mut read = BTreeMap::new();
    for attribute in array(operation, "A")? {
        let name = text(attribute, "N")?;
        if let Some(content) = attribute["AT"].as_object().and_then(attribute_content) {
            read.insert(name.to_owned(), content);
        }
    }
    Ok(read)
}

/// What an attribute holds; none where nothing here needs its kind (places, pointers).
fn attribute_content(attribute: &Map<String, Json>) -> Option<Attribute> {
    let (_, kind) = attribute.get("#")?.as_str()?.split_once("a_")?;
    let data = attribute.get("D").or_else(|| attribute.get("VD"))?;
    Some(match kind {
        "bool" => Attribute::Flag(data.as_bool()?),
        "i32" | "i64" | "index" | "u32" | "u64" => Attribute::Integer(data.as_i64()?),
        "f32" | "f64" => Attribute::Float(float(data)?),
        "str" | "tensorname" | "layout" | "data_layout" => Attribute::Text(data.as_str()?.to_owned()),
        "dtype" => Attribute::DataType(data_type_of(data.as_str()?)),
        "intarray" => Attribute::Integers(data.as_array()?.iter().map(Json::as_i64).collect::<Option<_>>()?),
        "scalar" => match data.as_array()?.get(1)? {
            Json::Bool(value) => Attribute::Flag(*value),
            number if number.is_i64() => Attribute::Integer(number.as_i64()?),
            number => Attribute::Float(float(number)?),
        },
        "array" => list(data.as_array()?)?,
        _ => return None,
    })
}

/// A list of attributes of one kind.
fn list(members: &[Json]) -> Option<Attribute> {
    let members: Vec<Attribute> =
        members.iter().map(|member| member.as_object().and_then(attribute_content)).collect::<Option<_>>()?;
    let whole = |member: &Attribute| match member {
        Attribute::Integer(value) => Some(*value),
        Attribute::Flag(value) => Some(i64::from(*value)),
        _ => None,
    };
    let number = |member: &Attribute| match member {
        Attribute::Float(value) => Some(*value),
        other => whole(other).map(|value| value as f64),
    };
    if let Some(values) = members.iter().map(whole).collect() {
        return Some(Attribute::Integers(values));
    }
    if let Some(values) = members.iter().map(number).collect() {
        return Some(Attribute::Floats(values));
    }
    let word = |member: Attribute| if let Attribute::Text(text) = member { Some(text) } else { None };
    members.into_iter().map(word).collect::<Option<_>>().map(Attribute::Texts)
}

/// A number, or the name of one that JSON does not have.
fn float(data: &Json) -> Option<f64> {
    match data {
        Json::Null => Some(f64::NAN),
        Json::String(name) => match name.to_lowercase().as_str() {
            "nan" => Some(f64::NAN),
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        number => number.as_f64(),
    }
}

fn name_of(attributes: &BTreeMap<String, Attribute>, what: &str) -> Result<String> {
    match attributes.get("name") {
        Some(Attribute::Text(name)) => Ok(name.clone()),
        _ => Err(Error::program(format!("{what} without a name"))),
    }
}

fn first_block(regions: &[Json]) -> Result<&Json> {
    let block = regions.first().and_then(|region| region["blocks"].as_array()).and_then(|blocks| blocks.first());
    block.ok_or_else(|| Error::program("a region without a block"))
}

fn array<'a>(object: &'a Json, key: &str) -> Result<&'a [Json]> {
    object[key].as_array().map(Vec::as_slice).ok_or_else(|| Error::program(format!("{key} is no list")))
}

fn text<'a>(object: &'a Json, key: &str) -> Result<&'a str> {
    object[key].as_str().ok_or_else(|| Error::program(format!("{key} is no text")))
}

fn integer(object: &Json, key: &str) -> Result<i64> {
    object[key].as_i64().ok_or_else(|| Error::program(format!("{key} is no number")))
}
