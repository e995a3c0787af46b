//! Repeating a tensor: along dimensions of size 1 (expand), or whole (tile).

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Recorder};
use crate::layout::{call, check, expect_inputs};
use crate::movement;
use crate::operator::{Meta, Operator};
use crate::operators::repeat_gradient::RepeatGradient;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{MAX_RANK, Shape, View};
use openmps_host::native::copy::copy;
use openmps_host::native::memory::Memory;
use openmps_tile::dtype;
use std::sync::Arc;

/// Broadcasts to a shape: expand, expand_as, broadcast_tensors.
#[derive(Clone, Debug)]
pub struct Expand {
    /// The output's dimensions; -1 keeps the input's.
    pub dims: Vec<i64>,
}

impl Expand {
    fn shape(&self, input: &Shape) -> Result<Shape> {
        let missing = self.dims.len().checked_sub(input.len());
        let fits = |missing: usize| {
            let sizes = self.dims.iter().enumerate().map(|(d, &size)| {
                let own = d.checked_sub(missing).map(|d| input[d]);
                match (own, size) {
                    (Some(own), -1) => Some(own),
                    (None | Some(1), size) if size >= 0 => Some(size as usize),
                    (Some(own), size) if own as i64 == size => Some(own),
                    _ => None,
                }
            });
            sizes.collect::<Option<Vec<usize>>>()
        };
        let Some(dims) = missing.and_then(fits) else {
            let (got, expected) = (format!("{:?}", self.dims), format!("a shape that {input:?} broadcasts to"));
            return Err(Error::Attribute { operator: self.name(), attribute: "shape", got, expected });
        };
        crate::view::shape_of(&dims)
    }
}

impl Operator for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        Ok(vec![Meta { dtype: inputs[0].dtype, shape: self.shape(&inputs[0].shape)? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let from = inputs[0].broadcast_to(&outputs[0].shape).expect("checked by infer");
        movement::run(queue, self.name(), |mover| mover.copy(&from, &outputs[0]))
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, dims) = (b.dy()?, b.meta(b.inputs[0]).shape);
        Ok(vec![Some(b.record(Arc::new(RepeatGradient { dims }), &[dy])?[0])])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let dims = self.shape(&inputs[0].shape).expect("checked by infer");
        vec![Array::from_fn(&dims, inputs[0].dtype, |index| inputs[0].at_broadcast(index))]
    }
}

/// The whole tensor repeated along each axis.
#[derive(Clone, Debug)]
pub struct Tile {
    /// How often along each axis; the shorter of this and the shape gets leading ones.
    pub repeats: Vec<usize>,
}

impl Tile {
    /// Repetitions and sizes with leading ones, outermost first.
    fn pairs(&self, shape: &[usize]) -> Vec<(usize, usize)> {
        let rank = shape.len().max(self.repeats.len());
        let from_end = |list: &[usize], back: usize| list.len().checked_sub(back).map_or(1, |at| list[at]);
        (1..=rank).rev().map(|back| (from_end(&self.repeats, back), from_end(shape, back))).collect()
    }
}

impl Operator for Tile {
    fn name(&self) -> &'static str {
        "tile"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let dims: Vec<usize> =
            self.pairs(&inputs[0].shape).into_iter().map(|(repeat, size)| repeat.saturating_mul(size)).collect();
        Ok(vec![Meta { dtype: inputs[0].dtype, shape: crate::view::shape_of(&dims)? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let missing = outputs[0].rank() - inputs[0].rank();
        // Each axis is a repetition with distance zero and the axis itself; the output's axis is cut in two alike.
        let (mut dims, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for (d, (repeat, size)) in self.pairs(&inputs[0].shape).into_iter().enumerate() {
            let own = d.checked_sub(missing).map_or(0, |d| inputs[0].strides[d]);
            let stride = outputs[0].strides[d];
            for (count, from_stride, to_stride) in [(repeat, 0, stride * size as isize), (size, own, stride)] {
                if count != 1 {
                    dims.push(count);
                    from.push(from_stride);
                    to.push(to_stride);
                }
            }
        }
        if dims.len() <= MAX_RANK {
            let cut = |view: &View, strides: &[isize]| View {
                shape: dims.iter().copied().collect(),
                strides: strides.iter().copied().collect(),
                ..view.clone()
            };
            let (from, to) = (cut(&inputs[0], &from), cut(&outputs[0], &to));
            return movement::run(queue, self.name(), |mover| mover.copy(&from, &to));
        }
        call(queue, self.name(), || {
            let (to, from) = (Memory::new(outputs[0].address, &to), Memory::new(inputs[0].address, &from));
            // SAFETY: the views name live memory, and the doubled axes reach the same elements.
            unsafe { copy(inputs[0].dtype.size(), &dims, to, from) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, dims) = (b.dy()?, b.meta(b.inputs[0]).shape);
        Ok(vec![Some(b.record(Arc::new(RepeatGradient { dims }), &[dy])?[0])])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let pairs = self.pairs(&inputs[0].shape);
        let dims: Vec<usize> = pairs.iter().map(|(repeat, size)| repeat * size).collect();
        vec![Array::from_fn(&dims, inputs[0].dtype, |index| {
            let index: Vec<usize> = index.iter().zip(&pairs).map(|(i, (_, size))| i % size).collect();
            inputs[0].at(&index[index.len() - inputs[0].shape.len()..])
        })]
    }
}

/// For the list of operators.
pub static EXPAND: Entry = Entry {
    name: "expand",
    summary: "A tensor broadcast to a shape.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |to: &[i64], dims: &[usize]| Case::new(Expand { dims: to.to_vec() }, vec![Input::new(dims)]);
        vec![
            case(&[], &[]),
            case(&[3, 4], &[]),
            case(&[0, 4], &[1, 4]),
            case(&[5, 7], &[7]),
            case(&[5, 7], &[5, 1]),
            case(&[2, -1, 6], &[4, 1]),
            case(&[2, 3, 4, 5], &[2, 1, 4, 1]),
        ]
    },
    tolerance: 0.0,
};

/// For the list of operators.
pub static TILE: Entry = Entry {
    name: "tile",
    summary: "A tensor repeated along its axes.",
    dtypes: dtype::ALL,
    cases: || {
        let case =
            |repeats: &[usize], dims: &[usize]| Case::new(Tile { repeats: repeats.to_vec() }, vec![Input::new(dims)]);
        vec![case(&[3], &[]), case(&[3], &[4]), case(&[2, 1, 3], &[5, 2]), case(&[2], &[3, 4]), case(&[0, 2], &[3, 4])]
    },
    tolerance: 0.0,
};
