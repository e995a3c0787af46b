//! What a convolution or matrix product does with a result while it is still in a register.

use super::lanes::Lanes;

/// A function of one number, applied to every element of a result.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Activation {
    /// x
    #[default]
    None,
    /// max(x, 0)
    Relu,
    /// min(max(x, 0), 6)
    Relu6,
    /// x where x > 0, else `slope` * x
    LeakyRelu {
        /// The factor below zero; between 0 and 1.
        slope: f32,
    },
    /// min(max(x * slope + offset, 0), 1)
    HardSigmoid {
        /// The factor, 1/6 or 0.2 in most models.
        slope: f32,
        /// The addend, 0.5 in most models.
        offset: f32,
    },
    /// x * min(max(x + 3, 0), 6) / 6
    HardSwish,
    /// 1 / (1 + exp(-x))
    Sigmoid,
    /// x / (1 + exp(-beta * x))
    Swish {
        /// The steepness; 1 is also called SiLU.
        beta: f32,
    },
}

/// Applied to each element y of output channel c: `after.0 * activation(scale[c] * y + bias[c] + residual) + after.1`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// A factor for each output channel.
    pub scale: Option<&'a [f32]>,
    /// An addend for each output channel.
    pub bias: Option<&'a [f32]>,
    /// A tensor of the output's shape and layout, added before the activation.
    pub residual: Option<&'a [f32]>,
    /// The activation.
    pub activation: Activation,
    /// A factor and an addend for every element, applied last.
    pub after: Option<(f32, f32)>,
}

impl Epilogue<'_> {
    /// Only this bias.
    pub fn bias(bias: Option<&[f32]>) -> Epilogue<'_> {
        Epilogue { bias, ..Epilogue::default() }
    }

    /// Whether it changes nothing.
    pub fn is_identity(&self) -> bool {
        self.scale.is_none()
            && self.bias.is_none()
            && self.residual.is_none()
            && self.activation == Activation::None
            && self.after.is_none()
    }

    /// The bias and the bounds, if it is nothing more than `min(max(y + bias, low), high)`.
    #[inline(always)]
    pub(crate) fn as_clamp(&self) -> Option<(Option<&[f32]>, f32, f32)> {
        if self.scale.is_some() || self.residual.is_some() || self.after.is_some() {
            return None;
        }
        match self.activation {
            Activation::None => Some((self.bias, f32::NEG_INFINITY, f32::INFINITY)),
            Activation::Relu => Some((self.bias, 0.0, f32::INFINITY)),
            Activation::Relu6 => Some((self.bias, 0.0, 6.0)),
            _ => None,
        }
    }

    /// Applies it to N elements of `channel`; `at` is the first one's index in the output.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`; the residual has N elements from `at` on.
    #[inline(always)]
    pub(crate) unsafe fn apply<V: Lanes>(&self, value: V, channel: usize, at: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let residual = self.residual.map(|residual| V::load(residual.as_ptr().add(at)));
            self.apply_with(value, channel, residual)
        }
    }

    /// Applies it to one element of `channel`; `at` is its index in the output.
    #[inline(always)]
    pub(crate) fn apply_one(&self, value: f32, channel: usize, at: usize) -> f32 {
        let residual = self.residual.map(|residual| Single(residual[at]));
        // SAFETY: `Single` needs no instructions and reads nothing.
        unsafe { self.apply_with(Single(value), channel, residual) }.0
    }

    #[inline(always)]
    unsafe fn apply_with<V: Lanes>(&self, mut y: V, channel: usize, residual: Option<V>) -> V {
        // SAFETY: the caller vouches for the instructions of `V`.
        unsafe {
            if let Some(scale) = self.scale {
                y = y.mul(V::splat(scale[channel]));
            }
            if let Some(bias) = self.bias {
                y = y.add(V::splat(bias[channel]));
            }
            if let Some(residual) = residual {
                y = y.add(residual);
            }
            y = self.activation.apply(y);
            if let Some((factor, addend)) = self.after {
                y = y.fma(V::splat(factor), V::splat(addend));
            }
            y
        }
    }
}

impl Activation {
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(crate) unsafe fn apply<V: Lanes>(self, x: V) -> V {
        // SAFETY: the caller vouches for the instructions of `V`.
        unsafe {
            let zero = V::splat(0.0);
            let one = V::splat(1.0);
            match self {
                Activation::None => x,
                Activation::Relu => x.max(zero),
                Activation::Relu6 => x.max(zero).min(V::splat(6.0)),
                Activation::LeakyRelu { slope } => x.max(x.mul(V::splat(slope))),
                Activation::HardSigmoid { slope, offset } => {
                    x.fma(V::splat(slope), V::splat(offset)).max(zero).min(one)
                }
                Activation::HardSwish => {
                    let gate = x.add(V::splat(3.0)).max(zero).min(V::splat(6.0));
                    x.mul(gate).mul(V::splat(1.0 / 6.0))
                }
                Activation::Sigmoid => one.div(zero.sub(x).exp().add(one)),
                Activation::Swish { beta } => x.div(x.mul(V::splat(-beta)).exp().add(one)),
            }
        }
    }
}

/// One number as a vector of one lane, so that ends of rows go through the same arithmetic.
#[derive(Clone, Copy)]
pub(crate) struct Single(pub(crate) f32);

// SAFETY of all methods: plain arithmetic; the caller vouches for one number at each address.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
impl Lanes for Single {
    const N: usize = 1;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Single(value)
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Single(unsafe { *from })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { *to = self.0 }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Single(self.0 + other.0)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Single(self.0 - other.0)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Single(self.0 * other.0)
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        Single(self.0 / other.0)
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, addend: Self) -> Self {
        Single(self.0 * factor.0 + addend.0)
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Single(if other.0 > self.0 { other.0 } else { self.0 })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Single(if other.0 < self.0 { other.0 } else { self.0 })
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        Single(f32::from_bits(((self.0 as i32 + 127) as u32) << 23))
    }
}
