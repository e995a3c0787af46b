//! What a convolution or matrix product does with a result while it is still in a register.

use super::lanes::Arithmetic;

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
    /// x times the normal distribution's integral
    Gelu,
    /// GELU approximated by tanh
    GeluTanh,
}

impl Activation {
    /// What it is called; nothing where it is none.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Activation::None => return None,
            Activation::Relu => "relu",
            Activation::Relu6 => "relu6",
            Activation::LeakyRelu { .. } => "leaky_relu",
            Activation::HardSigmoid { .. } => "hard_sigmoid",
            Activation::HardSwish => "hard_swish",
            Activation::Sigmoid => "sigmoid",
            Activation::Swish { .. } => "swish",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_tanh",
        })
    }
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

    /// It as what is done to sums that are still in registers, where that is little.
    #[inline(always)]
    pub(crate) fn quick(&self) -> Option<Quick<'_>> {
        let end = match self.activation {
            Activation::None => End::Clamp(f32::NEG_INFINITY, f32::INFINITY),
            Activation::Relu => End::Clamp(0.0, f32::INFINITY),
            Activation::Relu6 => End::Clamp(0.0, 6.0),
            Activation::HardSwish => End::HardSwish,
            _ => return None,
        };
        let quick = Quick { bias: self.bias, residual: self.residual, end, after: self.after };
        self.scale.is_none().then_some(quick)
    }

    /// Applies it to N elements of `channel`; `at` is the first one's index in the output.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`; the residual has N elements from `at` on.
    #[inline(always)]
    pub(crate) unsafe fn apply<V: Arithmetic>(&self, value: V, channel: usize, at: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let of_channel = [splat_at(self.scale, channel), splat_at(self.bias, channel)];
            self.apply_with(value, of_channel, load_at(self.residual, at))
        }
    }

    /// Applies it to N elements, one of each channel from `channel` on, as the columns of a matrix have them; `at` is the first one's
    /// index in the output.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`; scale and bias have N elements from `channel` on, the residual from `at` on.
    #[inline(always)]
    pub(crate) unsafe fn apply_along<V: Arithmetic>(&self, value: V, channel: usize, at: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let of_channels = [load_at(self.scale, channel), load_at(self.bias, channel)];
            self.apply_with(value, of_channels, load_at(self.residual, at))
        }
    }

    /// Applies it to one element of `channel`; `at` is its index in the output.
    #[inline(always)]
    pub(crate) fn apply_one(&self, value: f32, channel: usize, at: usize) -> f32 {
        let [scale, bias, residual] = [(self.scale, channel), (self.bias, channel), (self.residual, at)]
            .map(|(numbers, index)| numbers.map(|numbers| Single(numbers[index])));
        // SAFETY: `Single` needs no instructions and reads nothing.
        unsafe { self.apply_with(Single(value), [scale, bias], residual) }.0
    }

    #[inline(always)]
    unsafe fn apply_with<V: Arithmetic>(&self, mut y: V, [scale, bias]: [Option<V>; 2], residual: Option<V>) -> V {
        // SAFETY: the caller vouches for the instructions of `V`.
        unsafe {
            if let Some(scale) = scale {
                y = y.mul(scale);
            }
            if let Some(bias) = bias {
                y = y.add(bias);
            }
            if let Some(residual) = residual {
                y = y.add(residual);
            }
            y = self.activation.apply(y);
            if let Some((factor, addend)) = self.after {
                only_here();
                y = y.fma(V::splat(factor), V::splat(addend));
            }
            y
        }
    }
}

/// An epilogue of few instructions.
#[derive(Clone, Copy)]
pub(crate) struct Quick<'a> {
    /// An addend for each output channel, which the caller adds: where the channels are depends on the tile.
    pub bias: Option<&'a [f32]>,
    /// Read by [`Quick::apply`].
    pub residual: Option<&'a [f32]>,
    end: End,
    after: Option<(f32, f32)>,
}

/// An activation of few instructions.
#[derive(Clone, Copy)]
enum End {
    Clamp(f32, f32),
    HardSwish,
}

impl Quick<'_> {
    /// What changes nothing.
    pub const NONE: Quick<'static> =
        Quick { bias: None, residual: None, end: End::Clamp(f32::NEG_INFINITY, f32::INFINITY), after: None };

    /// All but the bias, applied to R rows of W vectors, whose first element has index `at` in the output and whose rows are `stride` apart there.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`; the residual has these elements.
    #[inline(always)]
    pub(crate) unsafe fn apply<V: Arithmetic, const R: usize, const W: usize>(
        self,
        mut sums: [[V; W]; R],
        at: usize,
        stride: usize,
    ) -> [[V; W]; R] {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(residual) = self.residual {
                for i in 0..R {
                    for j in 0..W {
                        sums[i][j] = sums[i][j].add(V::load(residual.as_ptr().add(at + i * stride + j * V::N)));
                    }
                }
            }
            match self.end {
                End::Clamp(low, high) => {
                    let (low, high) = (V::splat(low), V::splat(high));
                    for row in &mut sums {
                        for j in 0..W {
                            row[j] = row[j].max(low).min(high);
                        }
                    }
                }
                End::HardSwish => {
                    for row in &mut sums {
                        for j in 0..W {
                            row[j] = Activation::HardSwish.apply(row[j]);
                        }
                    }
                }
            }
            if let Some((factor, addend)) = self.after {
                only_here();
                let (factor, addend) = (V::splat(factor), V::splat(addend));
                for row in &mut sums {
                    for j in 0..W {
                        row[j] = row[j].fma(factor, addend);
                    }
                }
            }
        }
        sums
    }
}

// Written out: closures would not have the instructions of the functions that they stand in.

/// Number `at`, where there are any, in all lanes.
#[inline(always)]
#[allow(clippy::manual_map)]
unsafe fn splat_at<V: Arithmetic>(numbers: Option<&[f32]>, at: usize) -> Option<V> {
    match numbers {
        // SAFETY: the caller vouches for the instructions of `V`.
        Some(numbers) => Some(unsafe { V::splat(numbers[at]) }),
        None => None,
    }
}

/// N numbers from `at` on, where there are any.
#[inline(always)]
#[allow(clippy::manual_map)]
unsafe fn load_at<V: Arithmetic>(numbers: Option<&[f32]>, at: usize) -> Option<V> {
    match numbers {
        // SAFETY: the caller vouches for N numbers from `at` on.
        Some(numbers) => Some(unsafe { V::load(numbers.as_ptr().add(at)) }),
        None => None,
    }
}

/// Keeps the compiler from computing a branch before it is known to be taken: it would multiply by the numbers of another activation, which are whatever
/// lies there. Where that is denormal an Intel CPU takes a hundred times as long: a convolution with ReLU had two to five times its time.
#[inline(always)]
fn only_here() {
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) }
}

impl Activation {
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(crate) unsafe fn apply<V: Arithmetic>(self, x: V) -> V {
        // SAFETY: the caller vouches for the instructions of `V`.
        unsafe {
            let zero = V::splat(0.0);
            let one = V::splat(1.0);
            match self {
                Activation::None => x,
                Activation::Relu => x.max(zero),
                Activation::Relu6 => x.max(zero).min(V::splat(6.0)),
                Activation::LeakyRelu { slope } => {
                    only_here();
                    x.max(x.mul(V::splat(slope)))
                }
                Activation::HardSigmoid { slope, offset } => {
                    only_here();
                    x.fma(V::splat(slope), V::splat(offset)).max(zero).min(one)
                }
                Activation::HardSwish => {
                    let gate = x.add(V::splat(3.0)).max(zero).min(V::splat(6.0));
                    x.mul(gate).mul(V::splat(1.0 / 6.0))
                }
                Activation::Sigmoid => one.div(zero.sub(x).exp().add(one)),
                Activation::Swish { beta } => {
                    only_here();
                    x.max(V::splat(LEAST)).div(x.mul(V::splat(-beta)).exp().add(one))
                }
                Activation::Gelu => gelu(x),
                Activation::GeluTanh => {
                    // tanh(u) is 2 sigmoid(2u) - 1, and u is sqrt(2 / pi) (x + 0.044715 x^3).
                    let u = x
                        .mul(x)
                        .fma(V::splat(-2.0 * SQRT_2_OVER_PI * 0.044715), V::splat(-2.0 * SQRT_2_OVER_PI))
                        .mul(x);
                    x.max(V::splat(LEAST)).div(u.exp().add(one))
                }
            }
        }
    }
}

/// What is divided by one plus an exponential at the least: `Arithmetic::exp` ends at 2.4e38, so that lesser numbers, whose result is 0, would have one
/// that counts.
const LEAST: f32 = -1e20;

const SQRT_2_OVER_PI: f32 = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;

/// `log(erfc(a / sqrt 2)) / a` for `a` in 0..=10: the highest power's factor first.
const LOG_OF_TAIL: [f32; 10] = [
    -9.093_524e-9,
    3.363_653_3e-7,
    -5.087_967_6e-6,
    3.994_262e-5,
    -1.540_052e-4,
    -7.359_059e-5,
    4.896_161e-3,
    -3.639_922_7e-2,
    -0.318_292_86,
    -0.797_886_1,
];

/// `max(x, 0) - |x| erfc(|x| / sqrt 2) / 2`: no differences of nearly equal numbers, so small results keep their digits, too.
#[inline(always)]
unsafe fn gelu<V: Arithmetic>(x: V) -> V {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let zero = V::splat(0.0);
        let a = zero.sub(x).max(x).min(V::splat(10.0));
        let mut p = V::splat(LOG_OF_TAIL[0]);
        for factor in &LOG_OF_TAIL[1..] {
            p = p.fma(a, V::splat(*factor));
        }
        a.mul(V::splat(-0.5)).fma(p.mul(a).exp(), x.max(zero))
    }
}

/// One number as a vector of one lane, so that ends of rows go through the same arithmetic.
#[derive(Clone, Copy)]
pub(crate) struct Single(pub(crate) f32);

// SAFETY of all methods: plain arithmetic; the caller vouches for one number at each address.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
impl Arithmetic for Single {
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
    unsafe fn sqrt(self) -> Self {
        Single(self.0.sqrt())
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        Single(f32::from_bits(((self.0 as i32 + 127) as u32) << 23))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GELU in units of the last place where it is positive, and relatively where it is small.
    #[test]
    fn gelu_keeps_its_digits() {
        // SAFETY: `Single` needs no instructions.
        let gelu = |x: f32| unsafe { Activation::Gelu.apply(Single(x)) }.0;
        for i in -90_000..=90_000 {
            let x = i as f32 / 10_000.0;
            let want = 0.5 * f64::from(x) * libm::erfc(-f64::from(x) / 2f64.sqrt());
            let bound = if x > -3.0 { 4e-7 } else { 2e-2 } * want.abs() + 1e-30;
            let bound = if x < 0.0 && x > -3.0 { 5.0 * bound } else { bound };
            assert!((f64::from(gelu(x)) - want).abs() <= bound, "{x}: {} for {want}", gelu(x));
        }
        assert_eq!((gelu(f32::INFINITY), gelu(1e30)), (f32::INFINITY, 1e30));
        for activation in [Activation::Swish { beta: 1.0 }, Activation::GeluTanh] {
            // SAFETY: `Single` needs no instructions.
            let apply = |x: f32| unsafe { activation.apply(Single(x)) }.0;
            assert!([-1e10, -1e30, f32::MIN].iter().all(|&x| apply(x).abs() < 1e-18), "{activation:?}");
            assert!(apply(f32::MAX) == f32::MAX && apply(f32::NAN).is_nan(), "{activation:?}");
        }
        assert!(gelu(f32::NEG_INFINITY).abs() < 1e-20 && gelu(f32::NAN).is_nan());
        assert!(gelu(-0.0) == 0.0 && gelu(-0.0).is_sign_negative());
    }
}
