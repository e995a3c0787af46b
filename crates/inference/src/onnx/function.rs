//! Functions of a model: a node that calls one becomes the function's nodes, whose values have names of their own.

use super::format::{AttributeProto, FunctionProto, ModelProto, NodeProto};
use super::order::in_order;
use super::{Reader, is_own};
use crate::error::{Error, Result};
use crate::program::{Operation, ValueId};
use std::collections::HashMap;

/// Domain, name and overload.
pub(super) type Name<'a> = (&'a str, &'a str, &'a str);

/// Calls within calls at most: a function may not call itself.
const DEEPEST: usize = 64;

/// Values of a model with functions at most: a few that call each other twice would become more than there is memory.
const MOST_VALUES: usize = 1 << 22;

/// The function that is being read; nothing outside of all.
#[derive(Default)]
pub(super) struct Call<'a> {
    /// The first of the reader's scopes that the function sees.
    pub outermost: usize,
    /// What its attributes are in this call.
    attributes: HashMap<&'a str, &'a AttributeProto>,
    depth: usize,
}

/// What a node calls, if there is such a function.
pub(super) fn called(node: &NodeProto) -> Name<'_> {
    (&node.domain, &node.op_type, &node.overload)
}

/// A model's functions; their operators must be of the set that the model uses.
pub(super) fn by_name(model: &ModelProto, opset: i64) -> Result<HashMap<Name<'_>, &FunctionProto>> {
    let mut functions = HashMap::with_capacity(model.functions.len());
    for function in &model.functions {
        let own = function.opset_import.iter().find(|set| is_own(&set.domain));
        if let Some(set) = own.filter(|set| set.version != opset) {
            let what =
                format!("its function {} has operators of set {}, the model of {opset}", function.name, set.version);
            return Err(Error::program(what));
        }
        functions.insert((&function.domain[..], &function.name[..], &function.overload[..]), function);
    }
    Ok(functions)
}

impl<'a> Reader<'a> {
    /// What an attribute is here: within a function it may be one of the call's, which need not be given.
    pub(super) fn given(&self, attribute: &'a AttributeProto) -> Option<&'a AttributeProto> {
        match &attribute.ref_attr_name[..] {
            "" => Some(attribute),
            name => self.call.attributes.get(name).copied(),
        }
    }

    /// The function's nodes, with the call's inputs and attributes.
    pub(super) fn inlined(&mut self, function: &'a FunctionProto, node: &'a NodeProto) -> Result<Vec<Operation>> {
        let depth = self.call.depth + 1;
        if depth > DEEPEST {
            return Err(Error::program(format!("the function {} calls itself", function.name)));
        }
        if self.program.values.len() > MOST_VALUES {
            return Err(Error::program(format!("its functions make more than {MOST_VALUES} values")));
        }
        let mut scope: HashMap<&'a str, Option<ValueId>> = HashMap::new();
        for (at, formal) in function.input.iter().enumerate() {
            let actual = node.input.get(at).filter(|name| !name.is_empty());
            scope.insert(formal, actual.map(|name| self.find(name)).transpose()?.flatten());
        }
        let mut attributes: HashMap<&'a str, &'a AttributeProto> =
            function.attribute_proto.iter().map(|default| (&default.name[..], default)).collect();
        for attribute in &node.attribute {
            attributes.extend(self.given(attribute).map(|given| (&attribute.name[..], given)));
        }
        let around = std::mem::replace(&mut self.call, Call { outermost: self.scopes.len(), attributes, depth });
        self.scopes.push(scope);
        let mut operations = Vec::with_capacity(function.node.len());
        for inner in in_order(&function.node)? {
            operations.extend(self.node(inner)?);
        }
        let results = function.output.iter().map(|name| self.find(name)).collect::<Result<Vec<_>>>()?;
        self.scopes.pop();
        self.call = around;
        if let Some(scope) = self.scopes.last_mut() {
            scope.extend(node.output.iter().map(|name| &name[..]).zip(results).filter(|(name, _)| !name.is_empty()));
        }
        Ok(operations)
    }
}
