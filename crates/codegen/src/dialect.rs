//! What differs between the two languages: one record each, and the few texts that need more than a word.

use openmps_tile::Scalar;

/// A language that kernels are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Metal Shading Language 3.0 and later, 3.1 for bfloat16, math mode "safe".
    Metal,
    /// CUDA C++, as NVRTC compiles it without further headers.
    Cuda,
}

/// What a language calls the same things.
pub(crate) struct Keywords {
    /// Its name in errors.
    pub name: &'static str,
    /// What stands before a helper function.
    pub inline: &'static str,
    /// What stands before a pointer into device memory.
    pub device: &'static str,
    /// The same where threadgroups pass this memory to each other.
    pub coherent_device: &'static str,
    /// What stands before memory of a threadgroup.
    pub threadgroup: &'static str,
    /// Signed types of 8, 16, 32 and 64 bits.
    pub signed: [&'static str; 4],
    /// Waits for the whole threadgroup, whose memory is consistent then.
    pub barrier: &'static str,
    /// The same for device memory.
    pub device_barrier: &'static str,
    /// The same where other threadgroups are to see it, too: Metal's barrier orders memory within a threadgroup only.
    pub coherent_barrier: &'static str,
    /// What stands before mathematical functions that must be exact.
    pub precise: &'static str,
    /// What compares and exchanges 16 bits.
    pub compare_and_swap_16: &'static str,
    /// This program's place in the grid, and the grid's size.
    pub program: &'static str,
    pub programs: &'static str,
}

static METAL: Keywords = Keywords {
    name: "Metal",
    inline: "inline",
    device: "device ",
    coherent_device: "coherent(device) device ",
    threadgroup: "threadgroup ",
    signed: ["char", "short", "int", "long"],
    barrier: "threadgroup_barrier(mem_flags::mem_threadgroup);",
    device_barrier: "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    coherent_barrier: "device_fence(); threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); device_fence();",
    precise: "precise::",
    compare_and_swap_16: "compare_and_swap_16",
    program: "program",
    programs: "programs",
};

static CUDA: Keywords = Keywords {
    name: "CUDA",
    inline: "__device__ __forceinline__",
    device: "",
    coherent_device: "",
    threadgroup: "__shared__ ",
    signed: ["schar", "short", "int", "slong"],
    barrier: "__syncthreads();",
    device_barrier: "__threadfence(); __syncthreads();",
    coherent_barrier: "__threadfence(); __syncthreads();",
    precise: "",
    compare_and_swap_16: "atomicCAS",
    program: "blockIdx",
    programs: "gridDim",
};

impl Dialect {
    pub(crate) fn keywords(self) -> &'static Keywords {
        match self {
            Dialect::Metal => &METAL,
            Dialect::Cuda => &CUDA,
        }
    }

    /// The target's name.
    pub fn name(self) -> &'static str {
        self.keywords().name
    }

    /// The type that holds a number in a register: integers without sign, half types as float.
    pub(crate) fn register(self, scalar: Scalar) -> &'static str {
        match scalar {
            Scalar::I1 => "bool",
            Scalar::I8 => "uchar",
            Scalar::I16 => "ushort",
            Scalar::I32 => "uint",
            Scalar::I64 => "ulong",
            Scalar::F16 | Scalar::BF16 | Scalar::F32 => "float",
            Scalar::F64 => "double",
        }
    }

    /// The type of a number in memory.
    pub(crate) fn storage(self, scalar: Scalar) -> &'static str {
        match scalar {
            Scalar::F16 => "half",
            Scalar::BF16 => "bfloat",
            Scalar::I1 => "uchar",
            other => self.register(other),
        }
    }

    /// The signed type of an integer's width.
    pub(crate) fn signed(self, scalar: Scalar) -> &'static str {
        self.keywords().signed[scalar.size().trailing_zeros() as usize]
    }

    /// A number read from memory, as it is held in a register.
    pub(crate) fn widen(self, scalar: Scalar, text: &str) -> String {
        match (scalar, self) {
            (Scalar::F16 | Scalar::BF16, Dialect::Metal) => format!("float({text})"),
            (Scalar::F16 | Scalar::BF16, Dialect::Cuda) => format!("to_float({text})"),
            _ => text.to_owned(),
        }
    }

    /// A half type as it is in memory, from its bits.
    pub(crate) fn stored(self, scalar: Scalar, bits: &str) -> String {
        match self {
            Dialect::Metal => format!("as_type<{}>({bits})", self.storage(scalar)),
            Dialect::Cuda => format!("{}{{{bits}}}", self.storage(scalar)),
        }
    }

    /// The bits of a half type as it is in memory.
    pub(crate) fn stored_bits(self, text: &str) -> String {
        match self {
            Dialect::Metal => format!("as_type<ushort>({text})"),
            Dialect::Cuda => format!("bits_of({text})"),
        }
    }

    /// A register's number as it is stored.
    pub(crate) fn narrow(self, scalar: Scalar, text: &str) -> String {
        match (scalar, self) {
            (Scalar::F16, Dialect::Metal) => format!("half({text})"),
            (Scalar::BF16, Dialect::Metal) => format!("bfloat({text})"),
            (Scalar::F16, Dialect::Cuda) => format!("to_half({text})"),
            (Scalar::BF16, Dialect::Cuda) => format!("to_bfloat({text})"),
            _ => text.to_owned(),
        }
    }

    /// The same bits as another type of the same size.
    pub(crate) fn bits(self, from: Scalar, to: Scalar, text: &str) -> String {
        let half = |scalar| matches!(scalar, Scalar::F16 | Scalar::BF16);
        let (from_bits, to_bits) = match self {
            Dialect::Metal => {
                let source = self.narrow(from, text);
                let target = if half(to) { self.storage(to) } else { self.register(to) };
                let value = format!("as_type<{target}>({source})");
                return if half(to) { format!("float({value})") } else { value };
            }
            Dialect::Cuda => (cuda_to_integer(from), cuda_from_integer(to)),
        };
        let integer = if from_bits.is_empty() { text.to_owned() } else { format!("{from_bits}({text})") };
        if to_bits.is_empty() { integer } else { format!("{to_bits}({integer})") }
    }

    /// The value of the thread whose index differs by exclusive or with `mask`, in the same simdgroup.
    pub(crate) fn shuffle_xor(self, scalar: Scalar, text: &str, mask: usize) -> String {
        match (self, scalar) {
            (Dialect::Metal, Scalar::I1) => format!("bool(simd_shuffle_xor(uint({text}), {mask}))"),
            (Dialect::Metal, _) => format!("simd_shuffle_xor({text}, {mask})"),
            (Dialect::Cuda, Scalar::F32 | Scalar::F16 | Scalar::BF16 | Scalar::I32 | Scalar::I64 | Scalar::F64) => {
                format!("__shfl_xor_sync(0xffffffffu, {text}, {mask})")
            }
            (Dialect::Cuda, _) => {
                format!("{}(__shfl_xor_sync(0xffffffffu, uint({text}), {mask}))", self.register(scalar))
            }
        }
    }

    /// What stands before everything else, with tensor operations or without.
    pub(crate) fn preamble(self, tensors: bool) -> &'static str {
        match self {
            Dialect::Metal if tensors => METAL_4_PREAMBLE,
            Dialect::Metal => "#include <metal_stdlib>\nusing namespace metal;\n",
            Dialect::Cuda => CUDA_PREAMBLE,
        }
    }
}

const METAL_4_PREAMBLE: &str = "#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
";

fn cuda_to_integer(from: Scalar) -> &'static str {
    match from {
        Scalar::F16 => "half_bits",
        Scalar::BF16 => "bfloat_bits",
        Scalar::F32 => "__float_as_uint",
        Scalar::F64 => "(ulong)__double_as_longlong",
        _ => "",
    }
}

fn cuda_from_integer(to: Scalar) -> &'static str {
    match to {
        Scalar::F16 => "half_from_bits",
        Scalar::BF16 => "bfloat_from_bits",
        Scalar::F32 => "__uint_as_float",
        Scalar::F64 => "__longlong_as_double",
        _ => "",
    }
}

/// NVRTC has no headers of its own: the names that the rest of the text shares with Metal are made here.
const CUDA_PREAMBLE: &str = r#"typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;
typedef signed char schar;
typedef long long slong;
struct half { ushort bits; };
struct bfloat { ushort bits; };
__device__ __forceinline__ float half_from_bits(ushort bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
__device__ __forceinline__ ushort half_bits(float x) {
  ushort bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ float bfloat_from_bits(ushort bits) { return __uint_as_float(uint(bits) << 16); }
__device__ __forceinline__ ushort bfloat_bits(float x) {
  uint bits = __float_as_uint(x);
  return x != x ? ushort(bits >> 16 | 0x40) : ushort((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
__device__ __forceinline__ float to_float(half x) { return half_from_bits(x.bits); }
__device__ __forceinline__ float to_float(bfloat x) { return bfloat_from_bits(x.bits); }
__device__ __forceinline__ half to_half(float x) { half y; y.bits = half_bits(x); return y; }
__device__ __forceinline__ bfloat to_bfloat(float x) { bfloat y; y.bits = bfloat_bits(x); return y; }
"#;
