//! Which vector instructions this CPU has, decided once; `OPENMPS_HOST_LEVEL=portable|neon|avx2|avx512|amx` lowers it for tests.

use std::sync::OnceLock;

/// A set of vector instructions that kernels are compiled for. Ordered: a higher level includes the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The target's baseline: SSE2 on x86-64, NEON on aarch64.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// The name that `openmps info` and `OPENMPS_HOST_LEVEL` use.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Portable if cfg!(target_arch = "aarch64") => "neon",
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

/// The level in use: the highest the CPU has, or the lower one that `OPENMPS_HOST_LEVEL` names.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let asked = match openmps_settings::HOST_LEVEL.get() {
            Some("portable" | "neon") => Level::Portable,
            Some("avx2") => Level::Avx2,
            _ => Level::Avx512,
        };
        asked.min(detected())
    })
}

/// The level of functions that read long runs and store nothing: where a CPU takes instructions of 512 bits through units of 256, loads of 256 bits
/// come from memory a fifth faster, and from a cache as fast (16M numbers on a Zen 4: 2.3 ms instead of 2.9).
pub(crate) fn reading() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| if halves_vectors() { level().min(Level::Avx2) } else { level() })
}

/// Whether this is an AMD CPU with AVX-512 whose units are 256 bits wide.
#[cfg(target_arch = "x86_64")]
fn halves_vectors() -> bool {
    use std::arch::x86_64::__cpuid;
    /// AMD64 Architecture Programmer's Manual, volume 3, "Performance Optimization Identifiers".
    const IDENTIFIERS: u32 = 0x8000_001a;
    const FP256: u32 = 1 << 2;
    const FP512: u32 = 1 << 3;
    is_amd() && __cpuid(0x8000_0000).eax >= IDENTIFIERS && __cpuid(IDENTIFIERS).eax & (FP256 | FP512) == FP256
}

#[cfg(not(target_arch = "x86_64"))]
fn halves_vectors() -> bool {
    false
}

/// Whether the CPU asks for the next lines of a run itself where it goes on behind the end of a page: AMD's since Zen 5 (family 26). On one, RMS norm over rows
/// of 4,096 bytes takes 190 ns a row without requests of ours, 250 with them.
pub(crate) fn prefetches_across_pages() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static DOES: OnceLock<bool> = OnceLock::new();
        *DOES.get_or_init(|| {
            let signature = std::arch::x86_64::__cpuid(1).eax;
            // The family is 15 and what the extension says of it.
            is_amd() && signature >> 8 & 0xf == 0xf && 15 + (signature >> 20 & 0xff) >= 26
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
}

/// The name of the level in use, or of the matrix unit beside it.
pub fn name() -> &'static str {
    if multiplies_tiles() { "amx" } else { level().name() }
}

/// How many terms of a sum of bfloat16 products the CPU adds up in float32 at once; none where it gains nothing by that. An AMD CPU takes as long for two
/// products as for one of float32, Intel's matrix unit multiplies 32 terms of tiles. The vectors of a Xeon of 2023 (family 6, model 207) take four times as long
/// as those of float32: 90 GFLOPS, and 176.
pub(crate) fn bfloats_at_once() -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        static PAIRS: OnceLock<bool> = OnceLock::new();
        let multiplies_pairs = || std::arch::is_x86_feature_detected!("avx512bf16") && is_amd();
        match level() {
            Level::Avx512 if multiplies_tiles() => Some(32),
            Level::Avx512 if *PAIRS.get_or_init(multiplies_pairs) => Some(2),
            _ => None,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Whether the CPU multiplies tiles of bfloat16 (AMX-BF16, of Intel's Xeons since 2023), and the system lets this process do so.
pub(crate) fn multiplies_tiles() -> bool {
    static DOES: OnceLock<bool> = OnceLock::new();
    *DOES.get_or_init(|| {
        let asked = matches!(openmps_settings::HOST_LEVEL.get(), None | Some("amx"));
        asked && level() == Level::Avx512 && has_tiles()
    })
}

/// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID; Linux gives the tiles' registers to a process that asks for them
/// (Documentation/arch/x86/xstate.rst), since they make what it saves of a thread 8 KB larger.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const FEATURES: u32 = 7;
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    const REQUEST_PERMISSION: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    let wanted = AMX_BF16 | AMX_TILE;
    let has = __cpuid(0).eax >= FEATURES && __cpuid_count(FEATURES, 0).edx & wanted == wanted;
    // SAFETY: a call with two numbers, which changes what the system saves of this process's threads.
    has && unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) } == 0
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn has_tiles() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Level {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2");
    if avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
        Level::Avx512
    } else if avx2 {
        Level::Avx2
    } else {
        Level::Portable
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Level {
    Level::Portable
}
