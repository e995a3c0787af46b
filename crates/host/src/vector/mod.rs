//! Vector primitives: one operation over a run of elements, compiled for each `Level` and chosen at run time.
//!
//! A primitive is a plain function pointer over raw addresses, looked up once when a program is planned. Destination and
//! source may be the same address, but may not overlap otherwise: work goes in chunks that are read whole before they are written.

pub mod binary;
pub mod cast;
pub mod chain;
pub mod choice;
pub mod double;
pub mod exchange;
mod formula;
pub mod fused;
pub mod math;
pub mod memory;
pub mod pair;
pub mod reduce;
pub mod sum_of_pairs;
pub mod unary;

/// Elements that are read before any of them is written, so that results may replace operands.
///
/// 64: a loop this long is vectorised as a loop. Of 32 the compiler makes straight-line code first, and then vectors of
/// half the width with shuffles between them (division, maximum, sums: two to four times slower).
pub(crate) const CHUNK: usize = 64;

/// Defines `$name<generics>() -> $pointer`, which picks the instance of `$body` for the level in use, or for the one that is named. `by lanes`: the
/// body's first generic is the level's [`Lanes`](crate::native::lanes::Lanes).
macro_rules! leveled {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$($generic:ident),*>($($arg:ident: $arg_ty:ty),*) -> $pointer:ty
     where { $($bounds:tt)* } = $body:ident) => {
        leveled! {
            $(#[$doc])*
            $vis fn $name<$($generic),*>($($arg: $arg_ty),*) -> $pointer
            where { $($bounds)* } = $body at $crate::level::level
        }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$($generic:ident),*>($($arg:ident: $arg_ty:ty),*) -> $pointer:ty
     where { $($bounds:tt)* } = $body:ident at $level:path) => {
        leveled! {
            @ $(#[$doc])*
            $vis fn $name<$($generic),*>($($arg: $arg_ty),*) -> $pointer
            where { $($bounds)* } = $body at $level, with [], [], []
        }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$($generic:ident),*>($($arg:ident: $arg_ty:ty),*) -> $pointer:ty
     where { $($bounds:tt)* } = $body:ident by lanes) => {
        leveled! {
            @ $(#[$doc])*
            $vis fn $name<$($generic),*>($($arg: $arg_ty),*) -> $pointer
            where { $($bounds)* } = $body at $crate::level::level,
            with [$crate::native::lanes::Avx512,], [$crate::native::lanes::Avx2,], [$crate::native::lanes::Portable,]
        }
    };
    (@ $(#[$doc:meta])* $vis:vis fn $name:ident<$($generic:ident),*>($($arg:ident: $arg_ty:ty),*) -> $pointer:ty
     where { $($bounds:tt)* } = $body:ident at $level:path, with [$($wide:tt)*], [$($eight:tt)*], [$($plain:tt)*]) => {
        $(#[$doc])*
        $vis fn $name<$($generic),*>() -> $pointer where $($bounds)* {
            // SAFETY (of all instances): the same contract as the body's; the level has been detected.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
            unsafe fn avx512<$($generic),*>($($arg: $arg_ty),*) where $($bounds)* {
                // SAFETY: passed on to the caller.
                unsafe { $body::<$($wide)* $($generic),*>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi2")]
            unsafe fn avx2<$($generic),*>($($arg: $arg_ty),*) where $($bounds)* {
                // SAFETY: passed on to the caller.
                unsafe { $body::<$($eight)* $($generic),*>($($arg),*) }
            }
            unsafe fn portable<$($generic),*>($($arg: $arg_ty),*) where $($bounds)* {
                // SAFETY: passed on to the caller.
                unsafe { $body::<$($plain)* $($generic),*>($($arg),*) }
            }
            match $level() {
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx512 => avx512::<$($generic),*>,
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx2 => avx2::<$($generic),*>,
                _ => portable::<$($generic),*>,
            }
        }
    };
}
pub(crate) use leveled;
