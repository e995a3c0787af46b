//! Random tensors and dropout. The numbers depend on the source alone; they have statistical tests instead of a reference.

mod tiles;

use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, call, check, check_dense, expect_dense, expect_inputs, takes_native};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Shape, View, elements};
use openmps_host::by_type;
use openmps_host::native::memory::{Element, slice, slice_mut};
pub use openmps_host::native::multinomial::Draws;
use openmps_host::native::multinomial::multinomial;
use openmps_host::native::random as native;
pub use openmps_host::native::random::Source;
use openmps_tile::{DType, dtype};

/// How the numbers are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Law {
    /// Evenly in [low, high).
    Uniform { low: f64, high: f64 },
    /// Normally.
    Normal { mean: f64, deviation: f64 },
    /// Normally, but only numbers between `low` and `high`.
    TruncatedNormal { mean: f64, deviation: f64, low: f64, high: f64 },
    /// Integers in [low, high).
    Integers { low: i64, high: i64 },
    /// Times between events of this rate.
    Exponential { rate: f64 },
    /// 0, 1, ... in random order.
    Permutation,
}

/// A tensor of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    /// The distribution.
    pub law: Law,
    /// Where the numbers come from.
    pub source: Source,
    /// The result's dimensions.
    pub dims: Shape,
    /// The result's element type.
    pub dtype: DType,
}

/// Ones with the probabilities given by the input, zeros otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Bernoulli {
    /// Where the numbers come from.
    pub source: Source,
}

/// Numbers of categories, drawn for each row of the input by the weights in it.
#[derive(Clone, Copy, Debug)]
pub struct Multinomial {
    /// How many, and whether one may be drawn twice.
    pub draws: Draws,
    /// Where the numbers come from.
    pub source: Source,
}

/// Zeroes elements at random; outputs: the result, and the mask of kept elements as uint8.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The probability of zero.
    pub probability: f64,
    /// Whether kept elements are divided by their probability.
    pub upscale: bool,
    /// Where the numbers come from.
    pub source: Source,
}

/// The first input times the mask in the second times a scale: the gradient of [`Dropout`].
#[derive(Clone, Copy, Debug)]
pub struct ApplyMask {
    /// The factor of kept elements.
    pub scale: f64,
}

/// Random operators have no reference to compare with.
fn no_reference(operator: &'static str) -> Vec<Array> {
    unreachable!("{operator} is random and not in the list that references are used for")
}

impl Operator for Random {
    fn name(&self) -> &'static str {
        match self.law {
            Law::Uniform { .. } => "uniform",
            Law::Normal { .. } => "normal",
            Law::TruncatedNormal { .. } => "truncated_normal",
            Law::Integers { .. } => "random_integers",
            Law::Exponential { .. } => "exponential",
            Law::Permutation => "permutation",
        }
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>> {
        if let Law::Integers { low, high } = self.law
            && low >= high
        {
            let (got, expected) = (high.to_string(), format!("more than low, which is {low}"));
            return Err(Error::Attribute { operator: self.name(), attribute: "high", got, expected });
        }
        Ok(vec![Meta { dtype: self.dtype, shape: self.dims.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let (out, len) = (outputs[0].address, outputs[0].len());
        call(queue, self.name(), || {
            // SAFETY: a dense output of this many elements.
            by_type!(self.dtype, T => unsafe { fill::<T>(self.law, out, len, self.source) });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        no_reference(self.name())
    }
}

/// # Safety
/// `len` elements of `T` at `out` must be writable.
unsafe fn fill<T: Element>(law: Law, out: usize, len: usize, source: Source) {
    // SAFETY: promised by the caller.
    unsafe {
        match law {
            Law::Uniform { low, high } => native::uniform::<T>(out, len, source, low, high),
            Law::Normal { mean, deviation } => native::normal::<T>(out, len, source, mean, deviation),
            Law::TruncatedNormal { mean, deviation, low, high } => {
                native::truncated_normal::<T>(out, len, source, (mean, deviation), (low, high))
            }
            Law::Integers { low, high } => native::integers::<T>(out, len, source, low, high),
            Law::Exponential { rate } => native::exponential::<T>(out, len, source, rate),
            Law::Permutation => native::permutation::<T>(out, len, source),
        }
    }
}

impl Operator for Bernoulli {
    fn name(&self) -> &'static str {
        "bernoulli"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        Ok(inputs.to_vec())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        call(queue, self.name(), || {
            let chances = Dense::of(&inputs[0]);
            // SAFETY: dense tensors of one shape.
            by_type!(inputs[0].dtype, T => unsafe {
                native::bernoulli::<T>(outputs[0].address, chances.address, outputs[0].len(), self.source)
            })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        no_reference(self.name())
    }
}

impl Operator for Multinomial {
    fn name(&self) -> &'static str {
        "multinomial"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let (Draws::Replaced(count) | Draws::Distinct(count)) = self.draws;
        let mut shape = inputs[0].shape.clone();
        crate::layout::expect_dtype(self.name(), "probabilities", inputs[0].dtype, dtype::FLOATS)?;
        match shape.last_mut() {
            Some(last) => *last = count,
            None => {
                let (got, expected) = (shape, "rows of probabilities".to_owned());
                return Err(Error::Shape { operator: self.name(), what: "input", got, expected });
            }
        }
        elements(&shape)?;
        Ok(vec![Meta { dtype: DType::I64, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let (leading, categories) = inputs[0].shape.split_at(inputs[0].rank() - 1);
        let sizes = [leading.iter().product(), categories[0]];
        call(queue, self.name(), || {
            let (weights, out) = (Dense::of(&inputs[0]), outputs[0].address);
            // SAFETY: a dense tensor of these sizes, and a dense output with a number for each row and draw.
            by_type!(inputs[0].dtype, T => unsafe {
                multinomial::<T>(out, weights.address, sizes, self.draws, self.source)
            })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        no_reference(self.name())
    }
}

impl Operator for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        if !(0.0..=1.0).contains(&self.probability) {
            let (got, expected) = (self.probability.to_string(), "0 to 1".to_owned());
            return Err(Error::Attribute { operator: self.name(), attribute: "probability", got, expected });
        }
        Ok(vec![inputs[0].clone(), Meta { dtype: DType::U8, shape: inputs[0].shape.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(self.name(), output))?;
        let keep = 1.0 - self.probability;
        let scale = if self.upscale && keep > 0.0 { 1.0 / keep } else { 1.0 };
        let (mask, len) = (outputs[1].address, outputs[1].len());
        if !takes_native(queue, true) {
            return tiles::dropout(queue, self, scale, &inputs[0], outputs);
        }
        call(queue, self.name(), || {
            // SAFETY: a dense mask of this many bytes.
            unsafe { native::keep_mask(mask, len, self.source, self.probability) };
            let x = Dense::of(&inputs[0]);
            by_type!(inputs[0].dtype, T => apply_mask::<T>(x.address, mask, outputs[0].address, len, scale));
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, mask) = (b.dy()?, b.outputs[1]);
        let scale = if self.upscale && self.probability < 1.0 { 1.0 / (1.0 - self.probability) } else { 1.0 };
        Ok(vec![Some(b.one(ApplyMask { scale }, &[dy, mask])?)])
    }

    fn reference(&self, _: &[Array]) -> Vec<Array> {
        no_reference(self.name())
    }
}

impl Operator for ApplyMask {
    fn name(&self) -> &'static str {
        "apply_mask"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        crate::layout::expect_shape(self.name(), "mask", &inputs[1].shape, &inputs[0].shape)?;
        crate::layout::expect_dtype(self.name(), "mask", inputs[1].dtype, &[DType::U8, DType::Bool])?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let (out, len) = (outputs[0].address, outputs[0].len());
        call(queue, self.name(), || {
            let (x, mask) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            by_type!(inputs[0].dtype, T => apply_mask::<T>(x.address, mask.address, out, len, self.scale));
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, mask) = (b.dy()?, b.inputs[1]);
        Ok(vec![Some(b.one(*self, &[dy, mask])?), None])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let pairs = inputs[0].data.iter().zip(&inputs[1].data);
        let data = pairs.map(|(&x, &keep)| if keep != 0.0 { x * self.scale } else { 0.0 }).collect();
        vec![Array::new(&inputs[0].shape, data, inputs[0].dtype)]
    }
}

/// `out = mask ? x * scale : 0`; a dropped NaN is zero too.
fn apply_mask<T: Element>(x: usize, mask: usize, out: usize, len: usize, scale: f64) {
    openmps_host::parallel_for(len, 1, |begin, end| {
        let (bytes, len) = (begin * size_of::<T>(), end - begin);
        // SAFETY: three dense tensors of one shape, as `run` has checked; no other thread writes these elements.
        let (x, mask, out) =
            unsafe { (slice::<T>(x + bytes, len), slice::<u8>(mask + begin, len), slice_mut::<T>(out + bytes, len)) };
        for ((out, &x), &keep) in out.iter_mut().zip(x).zip(mask) {
            *out = if keep != 0 { T::from_f64(x.to_f64() * scale) } else { T::ZERO };
        }
    });
}
