//! Enumerations that Triton's front end hands over, each with the words that TTIR has for its members.

use pyo3::prelude::*;

/// Enumerations by the names that Triton's Python files use.
macro_rules! words {
    ($($class:ident $name:literal { $($member:ident = $number:literal $word:literal),* $(,)? })*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            #[pyclass(name = $name, module = "triton._C.libtriton.ir", eq, hash, frozen, from_py_object)]
            #[derive(Clone, Copy, PartialEq, Eq, Hash)]
            pub enum $class { $(#[doc = $word] $member = $number),* }

            impl $class {
                /// The word in a text.
                pub fn word(self) -> &'static str {
                    match self { $($class::$member => $word),* }
                }
            }
        )*

        pub fn register(ir: &Bound<'_, PyModule>) -> PyResult<()> {
            $(ir.add_class::<$class>()?;)*
            ir.add_class::<PaddingOption>()
        }
    };
}

words! {
    CacheModifier "CACHE_MODIFIER" { NONE = 1 "none", CA = 2 "ca", CG = 3 "cg", WB = 4 "wb", CS = 5 "cs", WT = 6 "wt", CV = 7 "cv" }
    EvictionPolicy "EVICTION_POLICY" { NORMAL = 1 "evict_normal", EVICT_FIRST = 2 "evict_first", EVICT_LAST = 3 "evict_last" }
    PropagateNan "PROPAGATE_NAN" { NONE = 0 "none", ALL = 65535 "all" }
    RoundingMode "ROUNDING_MODE" { RTZ = 0 "rtz", RTNE = 1 "rtne" }
    InputPrecision "INPUT_PRECISION" { TF32 = 0 "tf32", TF32x3 = 1 "tf32x3", IEEE = 2 "ieee", BF16x3 = 3 "bf16x3", BF16x6 = 4 "bf16x6" }
    MemorySemantic "MEM_SEMANTIC" { RELAXED = 1 "relaxed", ACQUIRE = 2 "acquire", RELEASE = 3 "release", ACQUIRE_RELEASE = 4 "acq_rel" }
    SyncScope "MEM_SYNC_SCOPE" { GPU = 1 "gpu", CTA = 2 "cta", SYSTEM = 3 "sys" }
    AtomicOperation "ATOMIC_OP" {
        AND = 1 "and", OR = 2 "or", XOR = 3 "xor", ADD = 4 "add", FADD = 5 "fadd", MAX = 6 "max", MIN = 7 "min", UMAX = 8 "umax",
        UMIN = 9 "umin", XCHG = 10 "exch",
    }
    DescriptorReduction "DESCRIPTOR_REDUCE_KIND" {
        ADD = 1 "add", MIN = 2 "min", MAX = 3 "max", INC = 4 "inc", DEC = 5 "dec", AND = 6 "and", OR = 7 "or", XOR = 8 "xor",
    }
    ScaledForm "ScaleDotElemTypeTY" {
        E4M3 = 0 "e4m3", E5M2 = 1 "e5m2", E2M3 = 2 "e2m3", E3M2 = 3 "e3m2", E2M1 = 4 "e2m1", BF16 = 5 "bf16", FP16 = 6 "fp16",
    }
}

/// `PADDING_OPTION`, whose members are written as numbers.
#[allow(non_camel_case_types)]
#[pyclass(name = "PADDING_OPTION", module = "triton._C.libtriton.ir", eq, hash, frozen, from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum PaddingOption {
    PAD_ZERO = 1,
    PAD_NAN = 2,
}
