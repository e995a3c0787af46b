//! Registers of 32 bytes, and sums of their products: what the kernels of all formats are written in.

#[cfg(any(test, not(target_arch = "aarch64")))]
use super::planes::GROUP;
use crate::vector::math::half_to_single;

/// Sums of products, in lanes of float32. Methods are unsafe because the CPU must have the instructions, and readers of memory because it must be
/// there: 32 bytes unless another number is said.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Products: Copy {
    /// 32 bytes.
    type Bytes: Copy;
    /// Two numbers of float32.
    type Pair: Copy;

    unsafe fn load(from: *const u8) -> Self::Bytes;
    /// 16 bytes: byte i is the low half of byte i, byte 16 + i its high half.
    unsafe fn nibbles(from: *const u8) -> Self::Bytes;
    /// `(byte >> SHIFT) & mask`; no bit of the mask is above those that a shift leaves.
    unsafe fn bits<const SHIFT: i32>(bytes: Self::Bytes, mask: u8) -> Self::Bytes;
    /// `byte | upper << 4`; `upper` is below 16.
    unsafe fn below(bytes: Self::Bytes, upper: Self::Bytes) -> Self::Bytes;
    /// `byte - by`, signed.
    unsafe fn less(bytes: Self::Bytes, by: u8) -> Self::Bytes;

    unsafe fn zero() -> Self;
    /// `self` and the products of numbers below 128 with x, times `scale`.
    unsafe fn add(self, q: Self::Bytes, x: *const i8, scale: f32) -> Self;
    /// The same of signed numbers.
    unsafe fn add_signed(self, q: Self::Bytes, x: *const i8, scale: f32) -> Self;
    /// The same, the first 16 times `scales[0]`, the last 16 times `scales[1]`.
    unsafe fn add_halves(self, q: Self::Bytes, x: *const i8, scales: [f32; 2]) -> Self;
    unsafe fn sum(self) -> f32;

    /// As `add` and `add_signed`, times the first of the pair.
    unsafe fn add_by_first(self, q: Self::Bytes, x: *const i8, pair: Self::Pair) -> Self;
    unsafe fn add_signed_by_first(self, q: Self::Bytes, x: *const i8, pair: Self::Pair) -> Self;

    /// Two numbers of float16, of four bytes.
    unsafe fn pair(from: *const u8) -> Self::Pair;
    /// One, of two bytes, twice.
    unsafe fn twice(from: *const u8) -> Self::Pair;
    unsafe fn times(pair: Self::Pair, by: [f32; 2]) -> Self::Pair;
    unsafe fn plus(left: Self::Pair, right: Self::Pair) -> Self::Pair;
    unsafe fn no_pair() -> Self::Pair;
    unsafe fn second(pair: Self::Pair) -> f32;

    /// A float16, of two bytes.
    #[inline(always)]
    unsafe fn half(from: *const u8) -> f32 {
        // SAFETY: the caller's promise.
        half_to_single(u16::from_le_bytes(unsafe { *from.cast() }))
    }

    /// Asks for the cache line at an address, which need not be one.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}

/// Registers that the CPU has. Made only here, of what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instructions {
    #[cfg(any(test, not(target_arch = "aarch64")))]
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX2, and the products of bytes of AVX-512.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Instructions {
    /// The best ones of the level in use.
    #[cfg(target_arch = "x86_64")]
    pub fn best() -> Instructions {
        use crate::Level;
        match crate::level() {
            Level::Avx512 if std::arch::is_x86_feature_detected!("avx512vnni") => Instructions::Vnni,
            Level::Avx512 | Level::Avx2 => Instructions::Avx2,
            Level::Portable => Instructions::Portable,
        }
    }
    #[cfg(target_arch = "aarch64")]
    pub fn best() -> Instructions {
        Instructions::Neon
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub fn best() -> Instructions {
        Instructions::Portable
    }

    /// The best ones and all below.
    #[cfg(test)]
    pub fn all() -> Vec<Instructions> {
        let mut all = vec![Instructions::Portable];
        #[cfg(target_arch = "x86_64")]
        if crate::level() >= crate::Level::Avx2 {
            all.push(Instructions::Avx2);
        }
        if !all.contains(&Instructions::best()) {
            all.push(Instructions::best());
        }
        all
    }
}

/// Calls a function that is generic over [`Products`] with the registers of these [`Instructions`]:
/// `at_products!(instructions, sums(weights: &Weights, x: &Row) -> f32)`. It must be `inline(always)`, so that it is compiled for them.
macro_rules! at_products {
    ($instructions:expr, $body:ident($($name:ident: $type:ty),*) -> $result:ty) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2")]
        unsafe fn vnni($($name: $type),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { $body::<$crate::native::quantized::products::Avx2<true>>($($name),*) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi2")]
        unsafe fn avx2($($name: $type),*) -> $result {
            // SAFETY: as above.
            unsafe { $body::<$crate::native::quantized::products::Avx2<false>>($($name),*) }
        }
        use $crate::native::quantized::products::Instructions;
        match $instructions {
            #[cfg(any(test, not(target_arch = "aarch64")))]
            Instructions::Portable => $body::<$crate::native::quantized::products::Portable>($($name),*),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => avx2($($name),*),
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => vnni($($name),*),
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => $body::<$crate::native::quantized::products::Neon>($($name),*),
        }
    }};
}
pub(super) use at_products;

/// Pairs as two numbers, where a register of both is not worth it.
macro_rules! plain_pairs {
    () => {
        type Pair = [f32; 2];

        #[inline(always)]
        unsafe fn add_by_first(self, q: Self::Bytes, x: *const i8, [scale, _]: [f32; 2]) -> Self {
            unsafe { self.add(q, x, scale) }
        }
        #[inline(always)]
        unsafe fn add_signed_by_first(self, q: Self::Bytes, x: *const i8, [scale, _]: [f32; 2]) -> Self {
            unsafe { self.add_signed(q, x, scale) }
        }
        #[inline(always)]
        unsafe fn pair(from: *const u8) -> [f32; 2] {
            unsafe { [Self::half(from), Self::half(from.add(2))] }
        }
        #[inline(always)]
        unsafe fn twice(from: *const u8) -> [f32; 2] {
            unsafe { [Self::half(from); 2] }
        }
        #[inline(always)]
        unsafe fn times(pair: [f32; 2], by: [f32; 2]) -> [f32; 2] {
            [pair[0] * by[0], pair[1] * by[1]]
        }
        #[inline(always)]
        unsafe fn plus(left: [f32; 2], right: [f32; 2]) -> [f32; 2] {
            [left[0] + right[0], left[1] + right[1]]
        }
        #[inline(always)]
        unsafe fn no_pair() -> [f32; 2] {
            [0.0; 2]
        }
        #[inline(always)]
        unsafe fn second([_, second]: [f32; 2]) -> f32 {
            second
        }
    };
}

/// For CPUs whose instructions are not known here, and the baseline of x86-64.
#[cfg(any(test, not(target_arch = "aarch64")))]
#[derive(Clone, Copy)]
pub(super) struct Portable(f32);

#[cfg(any(test, not(target_arch = "aarch64")))]
// SAFETY of all methods: the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Products for Portable {
    type Bytes = [u8; GROUP];
    plain_pairs!();

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [u8; GROUP] {
        unsafe { *from.cast() }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> [u8; GROUP] {
        let packed = unsafe { *from.cast::<[u8; GROUP / 2]>() };
        std::array::from_fn(|i| if i < GROUP / 2 { packed[i] & 15 } else { packed[i - GROUP / 2] >> 4 })
    }
    #[inline(always)]
    unsafe fn bits<const SHIFT: i32>(bytes: [u8; GROUP], mask: u8) -> [u8; GROUP] {
        bytes.map(|byte| (byte >> SHIFT) & mask)
    }
    #[inline(always)]
    unsafe fn below(bytes: [u8; GROUP], upper: [u8; GROUP]) -> [u8; GROUP] {
        std::array::from_fn(|i| bytes[i] | upper[i] << 4)
    }
    #[inline(always)]
    unsafe fn less(bytes: [u8; GROUP], by: u8) -> [u8; GROUP] {
        bytes.map(|byte| byte.wrapping_sub(by))
    }
    #[inline(always)]
    unsafe fn zero() -> Portable {
        Portable(0.0)
    }
    #[inline(always)]
    unsafe fn add(self, q: [u8; GROUP], x: *const i8, scale: f32) -> Portable {
        // Numbers below 128 are the same as signed bytes.
        unsafe { self.add_signed(q, x, scale) }
    }
    #[inline(always)]
    unsafe fn add_signed(self, q: [u8; GROUP], x: *const i8, scale: f32) -> Portable {
        unsafe { self.add_halves(q, x, [scale; 2]) }
    }
    #[inline(always)]
    unsafe fn add_halves(self, q: [u8; GROUP], x: *const i8, scales: [f32; 2]) -> Portable {
        let x = unsafe { &*x.cast::<[i8; GROUP]>() };
        let mut halves = [0i32; 2];
        for i in 0..GROUP {
            halves[i / (GROUP / 2)] += i32::from(q[i] as i8) * i32::from(x[i]);
        }
        Portable(self.0 + halves[0] as f32 * scales[0] + halves[1] as f32 * scales[1])
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.0
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::Avx2;

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
pub(super) use neon::Neon;

#[cfg(target_arch = "aarch64")]
mod neon;
