//! What constants, and operators of constants, are found by. A key of what operators make of constants shares the keys of its inputs, and knows
//! its hash: making, hashing and comparing one costs what its operator costs, however much stands behind its inputs.

use crate::graph::{Source, StoredTensor, TensorData, Value};
use openmps_graph::DType;
use openmps_runtime::Identity;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What an operator of constants is found by. Clones are the same key.
#[derive(Clone)]
pub(in crate::graph) struct FoldedKey(Arc<Parts>);

struct Parts {
    device: Identity,
    /// The operator with its attributes.
    text: String,
    inputs: Vec<Constant>,
    /// Of all the above.
    hash: u64,
}

impl FoldedKey {
    /// The key of an operator, said in words with its attributes, of these inputs.
    pub(super) fn new(device: Identity, text: String, inputs: Vec<Constant>) -> FoldedKey {
        let mut hasher = DefaultHasher::new();
        (&device, &text, &inputs).hash(&mut hasher);
        FoldedKey(Arc::new(Parts { device, text, inputs, hash: hasher.finish() }))
    }

    /// Whether both are of the same operator, whatever it reads.
    fn is_alike(&self, other: &FoldedKey) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        a.hash == b.hash && a.device == b.device && a.text == b.text && a.inputs.len() == b.inputs.len()
    }
}

impl PartialEq for FoldedKey {
    /// Compared whole, each pair of keys behind them once.
    fn eq(&self, other: &FoldedKey) -> bool {
        let mut seen = HashSet::new();
        let mut open = vec![(self, other)];
        while let Some((a, b)) = open.pop() {
            if Arc::ptr_eq(&a.0, &b.0) || !seen.insert((Arc::as_ptr(&a.0), Arc::as_ptr(&b.0))) {
                continue;
            }
            if !a.is_alike(b) {
                return false;
            }
            for (a, b) in a.0.inputs.iter().zip(&b.0.inputs) {
                if !a.is_alike(b) {
                    return false;
                }
                open.extend(a.folded().zip(b.folded()));
            }
        }
        true
    }
}

impl Eq for FoldedKey {}

impl Hash for FoldedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

impl fmt::Debug for FoldedKey {
    /// Without what its inputs are made of, which may be named very often.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "FoldedKey({:?} {} of {} constants)", self.0.device, self.0.text, self.0.inputs.len())
    }
}

impl Drop for Parts {
    /// One after the other: a chain of operators may be longer than the stack is deep.
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.inputs);
        while let Some(Constant(content, ..)) = open.pop() {
            if let Content::Folded(FoldedKey(parts), _) = content
                && let Some(mut parts) = Arc::into_inner(parts)
            {
                open.append(&mut parts.inputs);
            }
        }
    }
}

/// A constant as part of a key: bytes are compared, memory is the same or another. A key keeps its memory alive, so that no other
/// constant can come to lie there; of what was folded, that of the constants that it is made of.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Constant(Content, DType, Vec<usize>);

#[derive(Clone, Debug)]
enum Content {
    Bytes(Arc<[u8]>),
    Tensor(TensorData),
    Stored(StoredTensor),
    Folded(FoldedKey, usize),
}

impl Constant {
    /// The constant that a value is.
    pub(in crate::graph) fn of(value: &Value) -> Option<Constant> {
        let content = match &value.source {
            Source::Constant(bytes) => Content::Bytes(Arc::clone(bytes)),
            Source::Data(tensor) => Content::Tensor(tensor.clone()),
            Source::Stored(stored) => Content::Stored(stored.clone()),
            Source::Folded(of, output) => Content::Folded(of.key.clone(), *output),
            _ => return None,
        };
        Some(Constant(content, value.meta.dtype, value.meta.shape.to_vec()))
    }

    /// Memory that does not change its place.
    pub(in crate::graph) fn of_memory(tensor: &TensorData) -> Constant {
        Constant(Content::Tensor(tensor.clone()), tensor.meta.dtype, tensor.meta.shape.to_vec())
    }

    /// What it is folded from, if it is.
    fn folded(&self) -> Option<&FoldedKey> {
        match &self.0 {
            Content::Folded(key, _) => Some(key),
            _ => None,
        }
    }

    /// Whether both are the same but for what they are folded from.
    fn is_alike(&self, other: &Constant) -> bool {
        let same = match (&self.0, &other.0) {
            (Content::Bytes(a), Content::Bytes(b)) => Arc::ptr_eq(a, b) || a == b,
            (Content::Tensor(a), Content::Tensor(b)) => a.buffer.is_same(&b.buffer) && a.offset == b.offset,
            (Content::Stored(a), Content::Stored(b)) => a.identity() == b.identity(),
            (Content::Folded(_, i), Content::Folded(_, j)) => i == j,
            _ => false,
        };
        same && (self.1, &self.2) == (other.1, &other.2)
    }
}

impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        self.is_alike(other) && self.folded() == other.folded()
    }
}

impl Eq for Constant {}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Content::Bytes(bytes) => bytes.hash(state),
            Content::Tensor(tensor) => (tensor.buffer.order(), tensor.offset).hash(state),
            Content::Stored(stored) => stored.identity().hash(state),
            Content::Folded(key, output) => (key, output).hash(state),
        }
        self.2.hash(state);
    }
}
