//! Elements added around a tensor: a constant, or the tensor's own, mirrored, repeated or wrapped around.

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{call, check, expect_inputs};
use crate::movement::{self, Mover};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_tile::{Number, dtype};

/// What the added elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The border is one value.
    Constant,
    /// Mirrored at the outermost element, which is not repeated.
    Reflect,
    /// The outermost element again and again.
    Replicate,
    /// From the other side, again and again.
    Circular,
}

/// Adds elements before and after each axis.
#[derive(Clone, Debug)]
pub struct Pad {
    /// For each axis how many elements are added before and after it. Negative numbers take elements away (constant only).
    pub paddings: Vec<(i64, i64)>,
    /// What the added elements are.
    pub mode: Mode,
    /// The value of constant padding.
    pub value: Number,
}

impl Pad {
    fn source(&self, index: usize, before: i64, size: usize) -> usize {
        let (position, size) = (index as i64 - before, size as i64);
        let position = match self.mode {
            Mode::Constant | Mode::Replicate => position.clamp(0, size - 1),
            Mode::Circular => position.rem_euclid(size),
            Mode::Reflect if position < 0 => -position,
            Mode::Reflect if position >= size => 2 * (size - 1) - position,
            Mode::Reflect => position,
        };
        position as usize
    }

    fn refuse(&self, got: String, expected: String) -> Error {
        Error::Attribute { operator: self.name(), attribute: "paddings", got, expected }
    }

    fn padded(&self, size: usize, (before, after): (i64, i64)) -> Result<usize> {
        let refuse = |limit: String| Err(self.refuse(format!("({before}, {after})"), limit));
        let limit = match self.mode {
            Mode::Constant => i64::MAX,
            Mode::Reflect => (size as i64 - 1).max(0),
            Mode::Circular | Mode::Replicate if size == 0 => 0,
            Mode::Circular | Mode::Replicate => i64::MAX,
        };
        if self.mode != Mode::Constant && (before < 0 || after < 0 || before > limit || after > limit) {
            return refuse(format!("0 to {limit} for mode {:?} and an axis of size {size}", self.mode));
        }
        match usize::try_from((size as i64).saturating_add(before).saturating_add(after)) {
            Ok(padded) => Ok(padded),
            Err(_) => refuse(format!("at least {size} elements are left of an axis of size {size}")),
        }
    }

    /// The overlap of input and output as (input start, output start, count) for each axis.
    fn overlap(&self, shape: &[usize], padded: &[usize]) -> Vec<(usize, usize, usize)> {
        let axis = |(d, &(before, _)): (usize, &(i64, i64))| {
            // What is taken away on one side may be more than there is, or than was added on the other.
            let from = (before.saturating_neg().max(0) as usize).min(shape[d]);
            let to = (before.max(0) as usize).min(padded[d]);
            (from, to, (shape[d] - from).min(padded[d] - to))
        };
        self.paddings.iter().enumerate().map(axis).collect()
    }
}

impl Operator for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let Meta { dtype, shape } = &inputs[0];
        if self.paddings.len() != shape.len() {
            return Err(self.refuse(format!("{:?}", self.paddings), format!("a pair for each of {} axes", shape.len())));
        }
        let sizes = shape.iter().zip(&self.paddings).map(|(&size, &padding)| self.padded(size, padding));
        Ok(vec![Meta { dtype: *dtype, shape: sizes.collect::<Result<_>>()? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], &outputs[0]);
        let overlap = self.overlap(&x.shape, &out.shape);
        if out.is_empty() {
            return Ok(());
        }
        movement::run(queue, self.name(), |mover| {
            let (mut from, mut to) = (x.clone(), out.clone());
            for (d, &(skip_from, skip_to, count)) in overlap.iter().enumerate() {
                from = from.narrowed(d, skip_from, 1, count);
                to = to.narrowed(d, skip_to, 1, count);
            }
            mover.copy(&from, &to)?;
            // Borders axis by axis: what is outside along an axis lies in the overlap of the axes before it.
            for (d, &(_, start, count)) in overlap.iter().enumerate().rev() {
                let mut region = out.clone();
                for (outer, &(_, start, count)) in overlap[..d].iter().enumerate() {
                    region = region.narrowed(outer, start, 1, count);
                }
                self.border(mover, &region, d, start, count)?;
            }
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        Ok(vec![Some(b.one(PadGradient { pad: self.clone() }, &[dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let size = |(&size, &padding)| self.padded(size, padding).expect("checked by infer");
        let dims: Vec<usize> = x.shape.iter().zip(&self.paddings).map(size).collect();
        vec![Array::from_fn(&dims, x.dtype, |index| {
            let inside = |d: usize| (0..x.shape[d] as i64).contains(&(index[d] as i64 - self.paddings[d].0));
            if self.mode == Mode::Constant && !(0..index.len()).all(inside) {
                return self.value.to_f64();
            }
            let from: Vec<usize> =
                (0..index.len()).map(|d| self.source(index[d], self.paddings[d].0, x.shape[d])).collect();
            x.at(&from)
        })]
    }
}

impl Pad {
    /// Fills what lies before and after `count` elements of one axis of a region; inner axes are complete already.
    fn border(&self, mover: &Mover, region: &View, axis: usize, start: usize, count: usize) -> Result<()> {
        let (size, end) = (region.shape[axis], start + count);
        if self.mode == Mode::Constant {
            mover.fill(&region.narrowed(axis, 0, 1, start), self.value)?;
            return mover.fill(&region.narrowed(axis, end, 1, size - end), self.value);
        }
        (0..start).chain(end..size).try_for_each(|index| {
            let source = start + self.source(index, start as i64, count);
            mover.copy(&region.narrowed(axis, source, 1, 1), &region.narrowed(axis, index, 1, 1))
        })
    }
}

/// The sum of the gradients of the elements that each element was copied to: the gradient of [`Pad`] in float types.
#[derive(Clone, Debug)]
pub struct PadGradient {
    /// The padding that was done.
    pub pad: Pad,
}

impl PadGradient {
    fn dims(&self, padded: &[usize]) -> Result<Vec<usize>> {
        let refuse = |expected: String| self.pad.refuse(format!("{:?}", self.pad.paddings), expected);
        if self.pad.paddings.len() != padded.len() {
            return Err(refuse(format!("a pair for each of {} axes", padded.len())));
        }
        let size = |(&size, &(before, after)): (&usize, &(i64, i64))| {
            let size = (size as i64).checked_sub(before).and_then(|rest| rest.checked_sub(after));
            let size = size.and_then(|size| usize::try_from(size).ok());
            size.ok_or_else(|| refuse(format!("no more than the gradient's shape {padded:?}")))
        };
        padded.iter().zip(&self.pad.paddings).map(size).collect()
    }
}

impl Operator for PadGradient {
    fn name(&self) -> &'static str {
        "pad_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let shape = crate::view::shape_of(&self.dims(&inputs[0].shape)?)?;
        self.pad.infer(&[Meta { dtype: inputs[0].dtype, shape: shape.clone() }])?;
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        crate::layout::expect_dense(self.name(), &outputs[0])?;
        let overlap = self.pad.overlap(&outputs[0].shape, &inputs[0].shape);
        if self.pad.mode == Mode::Constant {
            let (mut from, mut to) = (inputs[0].clone(), outputs[0].clone());
            for (d, &(skip_to, skip_from, count)) in overlap.iter().enumerate() {
                from = from.narrowed(d, skip_from, 1, count);
                to = to.narrowed(d, skip_to, 1, count);
            }
            return movement::run(queue, self.name(), |mover| {
                mover.fill(&outputs[0], Number::Integer(0))?;
                mover.copy(&from, &to)
            });
        }
        call(queue, self.name(), || {
            let gradient = crate::layout::Dense::of(&inputs[0]);
            openmps_host::by_type!(inputs[0].dtype, T => self.sum::<T>(gradient.address, &inputs[0].shape, &outputs[0]));
            Ok(())
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let dims = self.dims(&inputs[0].shape).expect("checked by infer");
        let mut sums = Array::from_fn(&dims, inputs[0].dtype, |_| 0.0);
        let strides = crate::view::dense_strides(&dims);
        let mut flat = 0;
        crate::reference::for_each_index(&inputs[0].shape, |index| {
            let inside = |d: usize| (0..dims[d] as i64).contains(&(index[d] as i64 - self.pad.paddings[d].0));
            if self.pad.mode != Mode::Constant || (0..dims.len()).all(inside) {
                let at = |d: usize| self.pad.source(index[d], self.pad.paddings[d].0, dims[d]) as isize * strides[d];
                sums.data[(0..dims.len()).map(at).sum::<isize>() as usize] += inputs[0].data[flat];
            }
            flat += 1;
        });
        vec![sums]
    }
}

impl PadGradient {
    /// Adds up every element of the dense gradient where it came from.
    fn sum<T: openmps_host::native::memory::Element>(&self, gradient: usize, padded: &[usize], out: &View) {
        let mut sums = vec![0.0_f64; out.len()];
        // SAFETY: the gradient is a dense tensor of this shape.
        let gradient = unsafe { openmps_host::native::memory::slice::<T>(gradient, padded.iter().product()) };
        let sources: Vec<Vec<usize>> = (0..padded.len())
            .map(|d| {
                let source = |i| self.pad.source(i, self.pad.paddings[d].0, out.shape[d]) * out.strides[d] as usize;
                (0..padded[d]).map(source).collect()
            })
            .collect();
        let mut flat = 0;
        crate::reference::for_each_index(padded, |index| {
            let at: usize = index.iter().zip(&sources).map(|(&i, sources)| sources[i]).sum();
            sums[at] += gradient[flat].to_f64();
            flat += 1;
        });
        // SAFETY: a dense output of this many elements.
        let out = unsafe { openmps_host::native::memory::slice_mut::<T>(out.address, out.len()) };
        out.iter_mut().zip(sums).for_each(|(value, sum)| *value = T::from_f64(sum));
    }
}

fn pads() -> Vec<(&'static [usize], Pad)> {
    let pad = |mode, paddings: &[(i64, i64)]| Pad { paddings: paddings.to_vec(), mode, value: Number::Integer(1) };
    vec![
        (&[4], pad(Mode::Constant, &[(2, 3)])),
        (&[3, 5], pad(Mode::Constant, &[(0, 0), (1, 0)])),
        (&[3, 5], pad(Mode::Constant, &[(1, -1), (-2, 4)])),
        (&[0, 2], pad(Mode::Constant, &[(1, 1), (0, 1)])),
        (&[2, 3, 4, 5], pad(Mode::Constant, &[(0, 0), (1, 0), (2, 1), (1, 3)])),
        (&[2, 4, 5], pad(Mode::Reflect, &[(0, 0), (3, 1), (2, 4)])),
        (&[2, 4, 5], pad(Mode::Replicate, &[(1, 0), (3, 7), (2, 0)])),
        (&[2, 4, 5], pad(Mode::Circular, &[(0, 0), (4, 1), (2, 5)])),
        (&[3, 2], pad(Mode::Circular, &[(7, 5), (1, 6)])),
    ]
}

/// For the list of operators.
pub static PAD: Entry = Entry {
    name: "pad",
    summary: "Elements added around a tensor: constant, reflect, replicate or circular.",
    dtypes: dtype::ALL,
    cases: || pads().into_iter().map(|(dims, pad)| Case::new(pad, vec![Input::new(dims)])).collect(),
    tolerance: 0.0,
};

/// For the list of operators.
pub static PAD_GRADIENT: Entry = Entry {
    name: "pad_gradient",
    summary: "The gradient of pad: each element's copies added up.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(dims, pad): (&[usize], Pad)| {
            let shape = dims.iter().copied().collect();
            let padded = pad.infer(&[Meta { dtype: dtype::DType::F32, shape }]).expect("a legal case").remove(0).shape;
            Case::new(PadGradient { pad }, vec![Input::new(&padded)])
        };
        pads().into_iter().map(case).collect()
    },
    tolerance: 1.0,
};
