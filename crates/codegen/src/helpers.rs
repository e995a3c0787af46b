//! Functions that neither language, or only one of them, has: written into the text where they are used.

use crate::dialect::Dialect;
use openmps_tile::Scalar;
use std::collections::BTreeSet;

/// A function in the C that both languages share.
pub(crate) struct Helper {
    name: &'static str,
    /// Those that it calls.
    needs: &'static [&'static str],
    text: &'static str,
}

impl Helper {
    /// The text in a language.
    pub fn text(&self, dialect: Dialect) -> String {
        let words = dialect.keywords();
        let text = self.text.replace("INLINE", words.inline).replace("DEVICE ", words.device);
        let sum = |scalar| {
            let old = dialect.bits(Scalar::I16, scalar, "old");
            dialect.bits(scalar, Scalar::I16, &format!("{old} + value"))
        };
        let text = text.replace("SUM_OF_HALVES", &sum(Scalar::F16)).replace("SUM_OF_BFLOATS", &sum(Scalar::BF16));
        text.replace("SWAP_16", words.compare_and_swap_16).replace("precise::", words.precise)
    }
}

static HELPERS: &[Helper] = &[
    Helper {
        name: "exponential_minus_1",
        needs: &[],
        text: "// e^x - 1: a series near zero, where the difference would cancel; the sum would lose the sign of zero itself.
INLINE float exponential_minus_1(float x) {
  float p = fma(1.984127e-4f, x, 1.3888889e-3f);
  p = fma(p, x, 8.333334e-3f);
  p = fma(p, x, 4.1666668e-2f);
  p = fma(p, x, 1.6666667e-1f);
  p = fma(p, x, 0.5f);
  if (x == 0.0f) return x;
  return fabs(x) < 0.35f ? fma(p, x * x, x) : precise::exp(x) - 1.0f;
}
",
    },
    Helper {
        name: "logarithm_of_1_plus",
        needs: &[],
        text: "// log(1 + x): the rounding of 1 + x is corrected by the ratio of x to what was really added.
INLINE float logarithm_of_1_plus(float x) {
  float sum = 1.0f + x;
  if (sum == 1.0f) return x;
  float logarithm = precise::log(sum);
  return sum - 1.0f == x || x <= -1.0f ? logarithm : logarithm * (x / (sum - 1.0f));
}
",
    },
    Helper {
        name: "error_function",
        needs: &[],
        text: "// The error function: a polynomial near zero, 1 - e^q(x) beyond.
INLINE float error_function(float x) {
  float t = fabs(x);
  float s = x * x;
  if (x != x) return x;
  if (t > 4.0f) return x < 0.0f ? -1.0f : 1.0f;
  if (t > 0.9277344f) {
    float r = fma(-1.7285347e-5f, t, 3.8319713e-4f);
    float u = fma(-3.8839644e-3f, t, 2.4254622e-2f);
    r = fma(r, s, u);
    r = fma(r, t, -1.0677788e-1f);
    r = fma(r, t, -6.348467e-1f);
    r = fma(r, t, -1.2871751e-1f);
    r = fma(r, t, -t);
    float y = 1.0f - precise::exp(r);
    return x < 0.0f ? -y : y;
  }
  float p = fma(-5.967617e-4f, s, 4.9911942e-3f);
  p = fma(p, s, -2.6768135e-2f);
  p = fma(p, s, 1.1281993e-1f);
  p = fma(p, s, -3.7612534e-1f);
  p = fma(p, s, 1.2837917e-1f);
  return fma(p, x, x);
}
",
    },
    Helper {
        name: "quotient",
        needs: &[],
        text: "// x / y; 0 where y is 0, and what wraps where y is -1. Without branches, of which compilers make trees.
template <typename T> INLINE T quotient(T x, T y) {
  T by = y == 0 || y == -1 ? T(1) : y;
  T whole = x / by;
  return y == 0 ? T(0) : y == -1 ? T(0 - x) : whole;
}
",
    },
    Helper {
        name: "rest",
        needs: &[],
        text: "// x % y; 0 where y is 0 or -1. Without branches, of which compilers make trees.
template <typename T> INLINE T rest(T x, T y) {
  T by = y == 0 || y == -1 ? T(1) : y;
  return x % by;
}
",
    },
    Helper {
        name: "compare_and_swap",
        needs: &[],
        text: "// What was there, whether it was replaced or not.
inline uint compare_and_swap(device atomic_uint* place, uint expected, uint value) {
  uint old = expected;
  while (!atomic_compare_exchange_weak_explicit(place, &old, value, memory_order_relaxed, memory_order_relaxed)) {
    if (old != expected) return old;
  }
  return expected;
}
",
    },
    Helper {
        name: "compare_and_swap_16",
        needs: &["compare_and_swap"],
        text: "// Metal exchanges 32 bits at a time: of the word around the place the other half stays as it is.
inline ushort compare_and_swap_16(device ushort* place, ushort expected, ushort value) {
  device atomic_uint* around = (device atomic_uint*)((ulong)place & ~3ul);
  uint shift = uint((ulong)place & 2) * 8;
  uint word = atomic_load_explicit(around, memory_order_relaxed);
  while (ushort(word >> shift) == expected) {
    uint changed = (word & ~(0xffffu << shift)) | uint(value) << shift;
    uint seen = compare_and_swap(around, word, changed);
    if (seen == word) return expected;
    word = seen;
  }
  return ushort(word >> shift);
}
",
    },
    Helper {
        name: "exchange_16",
        needs: &[],
        text: "// What was there.
INLINE ushort exchange_16(DEVICE ushort* place, ushort value) {
  ushort old = 0, seen = 0;
  do {
    old = seen;
    seen = SWAP_16(place, old, value);
  } while (seen != old);
  return old;
}
",
    },
    Helper {
        name: "add_half",
        needs: &[],
        text: "// Adds, rounded once; what was there. Compared are bits: NaN is equal to itself.
INLINE ushort add_half(DEVICE ushort* place, float value) {
  ushort old = 0, seen = 0;
  do {
    old = seen;
    seen = SWAP_16(place, old, SUM_OF_HALVES);
  } while (seen != old);
  return old;
}
",
    },
    Helper {
        name: "add_bfloat",
        needs: &[],
        text: "// The same of bfloat16.
INLINE ushort add_bfloat(DEVICE ushort* place, float value) {
  ushort old = 0, seen = 0;
  do {
    old = seen;
    seen = SWAP_16(place, old, SUM_OF_BFLOATS);
  } while (seen != old);
  return old;
}
",
    },
    Helper {
        name: "device_fence",
        needs: &[],
        text: "// Orders this thread's memory operations for all threads of the device: MSL 3.2.
inline void device_fence() { atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); }
",
    },
    Helper {
        name: "packed",
        needs: &[],
        text: "// Half types in registers as they are in memory, two in each: a register of their own would be half empty.
template <typename T, int N> struct packed {
  uint words[N / 2];
  struct reference {
    uint& word;
    uint shift;
    INLINE void operator=(T x) { word = (word & (0xffff0000u >> shift)) | uint(x.bits) << shift; }
    INLINE void operator=(const reference& other) { *this = T(other); }
    INLINE operator T() const { return T{ushort(word >> shift)}; }
  };
  INLINE reference operator[](uint k) { return reference{words[k / 2], (k & 1) * 16}; }
};
INLINE ushort bits_of(half x) { return x.bits; }
INLINE ushort bits_of(bfloat x) { return x.bits; }
",
    },
    Helper {
        name: "half_pair",
        needs: &[],
        text: "// Two numbers as half types in one register, the first one low.
INLINE uint half_pair(float x, float y) {
  uint pair;
  asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(pair) : \"f\"(y), \"f\"(x));
  return pair;
}
INLINE uint bfloat_pair(float x, float y) {
  uint pair;
  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(pair) : \"f\"(y), \"f\"(x));
  return pair;
}
",
    },
    Helper {
        name: "shared_address",
        needs: &[],
        text: "// A place in threadgroup memory, as instructions name it.
INLINE uint shared_address(const void* place) {
  uint address;
  asm(\"{ .reg .u64 shared; cvta.to.shared.u64 shared, %1; cvt.u32.u64 %0, shared; }\" : \"=r\"(address) : \"l\"(place));
  return address;
}
",
    },
    Helper {
        name: "matrix_descriptor",
        needs: &["shared_address"],
        text: "// A factor in threadgroup memory as wgmma names it: bytes from one core matrix to the next along the depth, and along the other axis.
INLINE ulong matrix_descriptor(const void* first, uint depth_step, uint other_step) {
  return ulong(shared_address(first) >> 4) | ulong(depth_step >> 4) << 16 | ulong(other_step >> 4) << 32;
}
",
    },
    Helper {
        name: "simd_shuffle_xor_64",
        needs: &[],
        text: "// Metal exchanges 32 bits at a time.
inline ulong simd_shuffle_xor_64(ulong x, ushort mask) {
  uint low = simd_shuffle_xor(uint(x), mask);
  uint high = simd_shuffle_xor(uint(x >> 32), mask);
  return ulong(high) << 32 | low;
}
",
    },
];

/// Whether this is one of our functions.
pub(crate) fn exists(name: &str) -> bool {
    HELPERS.iter().any(|helper| helper.name == name)
}

/// These functions and those that they call, the latter first.
pub(crate) fn with_dependencies(names: &BTreeSet<&'static str>) -> Vec<&'static Helper> {
    let needed: BTreeSet<&str> = (HELPERS.iter().filter(|helper| names.contains(helper.name)))
        .flat_map(|helper| helper.needs.iter().copied().chain([helper.name]))
        .collect();
    HELPERS.iter().filter(|helper| needed.contains(helper.name)).collect()
}
