//! Models of ONNX (<https://onnx.ai>): a graph of nodes whose values have names, with its tensors in the same file or beside it.
//!
//! They become what Paddle's programs are, with ONNX's names of operations and attributes: constants are operations, or parameters where they
//! are large; a graph inside a node is a block, which may read what is around it; a call of one of the model's functions is what the function does.

pub(crate) mod format;
mod function;
mod order;
pub(crate) mod tensor;

use crate::error::{Error, Result};
use crate::program::{Attribute, Block, Dialect, Operation, Origin, Port, Program, ValueId, ValueType};
use crate::storage::Storage;
use format::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, kind};
use function::Call;
use openmps::Device;
use openmps::graph::StoredTensor;
use openmps::operators::Array;
use order::in_order;
use prost::Message;
use prost::bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use tensor::{Content, Place, Weight};

/// The version of the first operators that are read: those before broadcast by an attribute.
const OLDEST: i64 = 7;

/// The attributes of nodes that are graphs, in the order of their blocks.
const GRAPHS: [&str; 3] = ["then_branch", "else_branch", "body"];

/// A model that was read.
pub(crate) struct Read {
    pub program: Program,
    /// One for each parameter of the program.
    pub weights: Vec<Weight>,
}

/// Whether a file is a model of ONNX.
pub(crate) fn is_model(file: &[u8]) -> bool {
    /// The fields that tell it from a program of Paddle, which is a protobuf, too.
    #[derive(Clone, PartialEq, Message)]
    struct Head {
        #[prost(int64, tag = "1")]
        ir_version: i64,
        #[prost(bytes = "bytes", optional, tag = "7")]
        graph: Option<Bytes>,
        #[prost(bytes = "bytes", repeated, tag = "8")]
        opset_import: Vec<Bytes>,
    }
    Head::decode(file).is_ok_and(|head| head.ir_version > 0 && head.graph.is_some() && !head.opset_import.is_empty())
}

/// The version of the format from which on a tensor that is also an input may be given by a run.
const OVERRIDABLE: i64 = 4;

/// Reads a model. Tensors of these names are inputs.
pub(crate) fn read(file: &Bytes, given: &[&str]) -> Result<Read> {
    let model = ModelProto::decode(file.clone()).map_err(|error| Error::program(error.to_string()))?;
    let graph = model.graph.as_ref().ok_or_else(|| Error::program("no graph"))?;
    let own = model.opset_import.iter().find(|set| is_own(&set.domain));
    // A model of others' operators alone names no version of ONNX's.
    let opset = own.map_or(OLDEST, |set| set.version);
    if opset < OLDEST {
        return Err(Error::Version { got: opset, known: "sets of operators from 7 on" });
    }
    let mut reader = Reader {
        file,
        program: Program::default(),
        weights: Vec::new(),
        scopes: Vec::new(),
        functions: function::by_name(&model, opset)?,
        call: Call::default(),
    };
    reader.program.dialect = Dialect::Onnx { opset };
    reader.program.metadata =
        model.metadata_props.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect();
    reader.program.origin = Origin {
        producer_name: model.producer_name.clone(),
        graph_name: graph.name.clone(),
        domain: model.domain.clone(),
        description: model.doc_string.clone(),
        graph_description: graph.doc_string.clone(),
        version: model.model_version,
    };
    reader.main(graph, if model.ir_version < OVERRIDABLE { None } else { Some(given) })?;
    reader.program.plan_releases();
    Ok(Read { program: reader.program, weights: reader.weights })
}

/// A model's tensors for a device; those beside the model's file are in its folder.
pub(crate) fn load(
    device: &Device,
    weights: Vec<Weight>,
    own: &Arc<Storage>,
    folder: Option<&Path>,
) -> Result<Vec<StoredTensor>> {
    let mut others: HashMap<String, Arc<Storage>> = HashMap::new();
    let mut loaded = Vec::with_capacity(weights.len());
    for Weight { data_type, dims, place } in weights {
        let bytes = dims.iter().product::<usize>() * data_type.size();
        let (storage, begin) = match place {
            Place::Inside { begin } => (Arc::clone(own), begin),
            Place::Here(content) => (Arc::new(Storage::Memory(content.into())), 0),
            Place::Beside { file, begin } => {
                let folder =
                    folder.ok_or_else(|| Error::program(format!("its tensors are in {file}: open it by its path")))?;
                let storage = match others.get(&file) {
                    Some(storage) => Arc::clone(storage),
                    None => Arc::new(Storage::open(&folder.join(&file))?),
                };
                others.insert(file, Arc::clone(&storage));
                (storage, begin)
            }
        };
        if begin.checked_add(bytes).is_none_or(|end| end > storage.len()) {
            return Err(storage.too_short(begin, bytes));
        }
        loaded.push(StoredTensor::new(device, &dims, data_type, move || Ok(storage.read(begin, bytes)?))?);
    }
    Ok(loaded)
}

/// Whether operators of this domain are ONNX's own.
fn is_own(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

struct Reader<'a> {
    file: &'a Bytes,
    program: Program,
    weights: Vec<Weight>,
    /// The values of the graphs that are being read, by name, the innermost last; an input of a function may be missing.
    scopes: Vec<HashMap<&'a str, Option<ValueId>>>,
    functions: HashMap<function::Name<'a>, &'a FunctionProto>,
    /// The function that is being read.
    call: Call<'a>,
}

impl<'a> Reader<'a> {
    /// The main graph. Tensors that are inputs, too, need not be given; those of the names in `given` are, and none may be in old versions of the format.
    fn main(&mut self, graph: &'a GraphProto, given: Option<&[&str]>) -> Result<()> {
        let tensors: HashSet<&str> = graph.initializer.iter().map(|tensor| &tensor.name[..]).collect();
        let (held, mut inputs): (Vec<_>, Vec<_>) =
            graph.input.iter().partition(|input| tensors.contains(&input.name[..]));
        if let Some(given) = given {
            for info in &held {
                self.program.overridable.push((info.name.clone(), described(info)?));
            }
            inputs.extend(held.into_iter().filter(|info| given.contains(&&info.name[..])));
        }
        if let Some(input) = inputs.iter().find(|input| !is_tensor(input)) {
            return Err(Error::program(format!("the input {}, which is no tensor", input.name)));
        }
        self.program.body = self.graph(graph, &inputs)?;
        let ports = |infos: &[&ValueInfoProto], ids: &[ValueId]| -> Vec<Port> {
            infos.iter().zip(ids).map(|(info, &value)| Port { name: info.name.clone(), value }).collect()
        };
        let outputs: Vec<&ValueInfoProto> = graph.output.iter().collect();
        self.program.inputs = ports(&inputs, &std::mem::take(&mut self.program.body.arguments));
        self.program.outputs = ports(&outputs, &std::mem::take(&mut self.program.body.yields));
        for (port, info) in self.program.outputs.iter().zip(outputs) {
            // An input that is handed back is described as an input.
            if !self.program.inputs.iter().any(|input| input.value == port.value) {
                self.program.values[port.value] = described(info)?;
            }
        }
        Ok(())
    }

    /// A graph that is given these values.
    fn graph(&mut self, graph: &'a GraphProto, inputs: &[&'a ValueInfoProto]) -> Result<Block> {
        if !graph.sparse_initializer.is_empty() {
            return Err(Error::program("a sparse tensor"));
        }
        self.scopes.push(HashMap::new());
        let mut block = Block::default();
        for input in inputs {
            let value = described(input)?;
            block.arguments.push(self.define(&input.name, value));
        }
        // What the graph is given takes the place of what it has.
        let is_given = |tensor: &&TensorProto| inputs.iter().any(|input| input.name == tensor.name);
        for tensor in graph.initializer.iter().filter(|tensor| !is_given(tensor)) {
            let content = tensor::read(tensor, self.file)?;
            block.operations.extend(self.hold(&tensor.name, content));
        }
        for node in in_order(&graph.node)? {
            block.operations.extend(self.node(node)?);
        }
        for output in &graph.output {
            let made = self.find(&output.name)?;
            block
                .yields
                .push(made.ok_or_else(|| Error::program(format!("the output {}, which is missing", output.name)))?);
        }
        self.scopes.pop();
        Ok(block)
    }

    fn define(&mut self, name: &'a str, value: ValueType) -> ValueId {
        let id = self.program.values.len();
        self.program.values.push(value);
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, Some(id));
        }
        id
    }

    /// The value of this name that can be seen here; none for an input of a function that is not given.
    fn find(&self, name: &str) -> Result<Option<ValueId>> {
        let found = self.scopes[self.call.outermost..].iter().rev().find_map(|scope| scope.get(name).copied());
        found.ok_or_else(|| Error::program(format!("the value {name}, which nothing makes before it is read")))
    }

    /// A tensor of the model: a parameter, or an operation that makes it.
    fn hold(&mut self, name: &'a str, content: Content) -> Option<Operation> {
        match content {
            Content::Known(array) => {
                let id = self.define(name, ValueType::default());
                Some(constant(id, &array))
            }
            Content::Weight(weight) => {
                let dims = weight.dims.iter().map(|&size| size as i64).collect();
                let value =
                    self.define(name, ValueType { data_type: Some(weight.data_type), dims, ..ValueType::default() });
                self.program.parameters.push(Port { name: name.to_owned(), value });
                self.weights.push(weight);
                None
            }
        }
    }

    /// The operations that a node is: one, none where it makes a parameter, those of a function.
    fn node(&mut self, node: &'a NodeProto) -> Result<Vec<Operation>> {
        if let Some(function) = self.functions.get(&function::called(node)).copied() {
            return self.inlined(function, node);
        }
        if node.op_type == "Constant"
            && is_own(&node.domain)
            && let ([attribute], [output]) = (&node.attribute[..], &node.output[..])
            && let Some(attribute) = self.given(attribute)
            && let Some(content) = tensor::constant(attribute, self.file)?
        {
            return Ok(self.hold(output, content).into_iter().collect());
        }
        let name =
            if is_own(&node.domain) { node.op_type.clone() } else { format!("{}.{}", node.domain, node.op_type) };
        let input = |name: &String| if name.is_empty() { Ok(None) } else { self.find(name) };
        let mut inputs = node.input.iter().map(input).collect::<Result<Vec<_>>>()?;
        let mut blocks = Vec::new();
        for graph in GRAPHS.iter().filter_map(|name| node.attribute.iter().find(|attribute| attribute.name == *name)) {
            if let Some(graph) = self.given(graph).and_then(|graph| graph.g.as_ref()) {
                let inputs: Vec<&ValueInfoProto> = graph.input.iter().collect();
                blocks.push(self.graph(graph, &inputs)?);
            }
        }
        let mut attributes = BTreeMap::new();
        for attribute in &node.attribute {
            if let Some(given) = self.given(attribute) {
                // A number that float64 leaves out is one more input.
                if name == "ConstantOfShape"
                    && let Some(tensor) = &given.t
                    && let Content::Weight(weight) = tensor::read(tensor, self.file)?
                {
                    self.hold("", Content::Weight(weight));
                    inputs.push(self.program.parameters.last().map(|parameter| parameter.value));
                    continue;
                }
                self.attribute(&name, &attribute.name, given, &mut attributes)?;
            }
        }
        // Loops keep what goes round in their outputs, so that each has one.
        let is_loop = matches!(&node.op_type[..], "Loop" | "Scan" | "SequenceMap");
        let is_kept = |name: &str| !name.is_empty() || is_loop;
        let mut outputs: Vec<Option<ValueId>> =
            node.output.iter().map(|name| is_kept(name).then(|| self.define(name, ValueType::default()))).collect();
        if let (true, Some(body)) = (is_loop, blocks.first()) {
            // Loop's body hands back its condition before all others.
            let all = body.yields.len().saturating_sub(usize::from(node.op_type == "Loop"));
            outputs.extend((outputs.len()..all).map(|_| Some(self.define("", ValueType::default()))));
        }
        Ok(vec![Operation { name, inputs, outputs, attributes, blocks }])
    }

    fn attribute(
        &self,
        node: &str,
        name: &str,
        attribute: &AttributeProto,
        attributes: &mut BTreeMap<String, Attribute>,
    ) -> Result<()> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let value = match (attribute.kind, &attribute.t) {
            (kind::TENSOR, Some(tensor)) => {
                let Content::Known(array) = tensor::read(tensor, self.file)? else {
                    return Err(Error::program(format!(
                        "{node}: the attribute {name}, a large tensor or one of integers beyond 2^53"
                    )));
                };
                attributes.insert("dtype".to_owned(), Attribute::DataType(Some(array.dtype)));
                Attribute::Floats(array.data)
            }
            (kind::FLOAT, _) => Attribute::Float(f64::from(attribute.f)),
            (kind::INT, _) => Attribute::Integer(attribute.i),
            (kind::STRING, _) => Attribute::Text(text(&attribute.s)),
            (kind::FLOATS, _) => Attribute::Floats(attribute.floats.iter().map(|&number| f64::from(number)).collect()),
            (kind::INTS, _) => Attribute::Integers(attribute.ints.clone()),
            (kind::STRINGS, _) => Attribute::Texts(attribute.strings.iter().map(text).collect()),
            (kind::GRAPH | kind::TYPE, _) => return Ok(()),
            (other, _) => {
                return Err(Error::program(format!("{node}: the attribute {name} of type {other}")));
            }
        };
        attributes.insert(name.to_owned(), value);
        Ok(())
    }
}

/// An operation that makes a tensor that is known.
fn constant(output: ValueId, array: &Array) -> Operation {
    let attributes = [
        ("shape", Attribute::Integers(array.shape.iter().map(|&size| size as i64).collect())),
        ("values", Attribute::Floats(array.data.clone())),
        ("dtype", Attribute::DataType(Some(array.dtype))),
    ];
    Operation {
        name: "Constant".to_owned(),
        outputs: vec![Some(output)],
        attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..Operation::default()
    }
}

fn is_tensor(info: &ValueInfoProto) -> bool {
    info.kind.as_ref().is_some_and(|kind| kind.tensor_type.is_some())
}

/// The element type and the dimensions that a graph declares; those that have a name, or none, are a run's to decide.
fn described(info: &ValueInfoProto) -> Result<ValueType> {
    let Some(tensor) = info.kind.as_ref().and_then(|kind| kind.tensor_type.as_ref()) else {
        return Ok(ValueType::default());
    };
    let code = i64::from(tensor.elem_type);
    let data_type = tensor::data_type(code);
    if data_type.is_none() && code != 0 {
        return Err(Error::program(format!("{} has elements of the type of number {code}", info.name)));
    }
    let dim = |dim: &format::DimensionProto| dim.dim_value.filter(|&size| size >= 0).unwrap_or(-1);
    let all = tensor.shape.as_ref().map_or(&[][..], |shape| &shape.dim);
    let names = all.iter().map(|dim| dim.dim_param.clone().filter(|name| !name.is_empty())).collect();
    Ok(ValueType { data_type, dims: all.iter().map(dim).collect(), names, any_rank: tensor.shape.is_none() })
}
