//! Walks over tensors of any strides by a flat index: dimensions, folded where neighbours step as one, and what a kernel makes of them.

use crate::tiles::{dimensions, offset};
use openmps_tile::{Builder, Scalar, Type, Value};

/// A dimension: its size, and how far it moves in each of several tensors.
pub(crate) type Dimension = (usize, Vec<isize>);

/// Without dimensions of size 1, and with neighbours made one that every tensor walks as one. At least one dimension is left.
pub(crate) fn folded(dims: impl Iterator<Item = Dimension>, tensors: usize) -> Vec<Dimension> {
    let mut all: Vec<Dimension> = Vec::new();
    for (size, strides) in dims.filter(|(size, _)| *size != 1) {
        match all.last_mut() {
            Some((before, outer)) if outer.iter().zip(&strides).all(|(outer, own)| *outer == own * size as isize) => {
                *before *= size;
                *outer = strides;
            }
            _ => all.push((size, strides)),
        }
    }
    if all.is_empty() {
        all.push((1, vec![0; tensors]));
    }
    all
}

pub(crate) fn arguments_of(dims: &[Dimension]) -> impl Iterator<Item = u64> {
    dims.iter().flat_map(|(size, strides)| {
        [*size as u64].into_iter().chain(strides.iter().map(|&stride| stride as u64)).collect::<Vec<_>>()
    })
}

/// The parameters of [`arguments_of`], for a number of dimensions.
pub(crate) struct Walk {
    pub sizes: Vec<Value>,
    /// For each dimension the strides of the tensors.
    strides: Vec<Vec<Value>>,
}

impl Walk {
    pub fn parameters(b: &mut Builder, name: &str, dims: usize, tensors: usize) -> Walk {
        let mut walk = Walk { sizes: Vec::new(), strides: Vec::new() };
        for d in 0..dims {
            walk.sizes.push(b.parameter(format!("{name}{d}"), Type::scalar(Scalar::I64)));
            let stride = |t: usize| b.parameter(format!("{name}{d}_stride{t}"), Type::scalar(Scalar::I64));
            walk.strides.push((0..tensors).map(stride).collect());
        }
        walk
    }

    /// The place in each dimension of a flat index, a scalar or a tile.
    pub fn places(&self, b: &mut Builder, at: Value) -> Vec<Value> {
        dimensions(b, at, &self.sizes, Scalar::I64)
    }

    /// How far these places are in one of the tensors.
    pub fn offset(&self, b: &mut Builder, places: &[Value], tensor: usize) -> Value {
        let steps: Vec<_> =
            places.iter().zip(&self.strides).map(|(&place, strides)| (place, strides[tensor])).collect();
        offset(b, steps[0], steps[1..].iter().copied())
    }
}
