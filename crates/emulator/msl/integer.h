// Functions on integers of every width, by component for vectors.
namespace metal {
#define OPENMPS_INTEGERS(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define OPENMPS_ORDER(T)                                                                                                                    \
  METAL_FUNC T max(T a, T b) { return a > b ? a : b; }                                                                                      \
  METAL_FUNC T min(T a, T b) { return a < b ? a : b; }                                                                                      \
  METAL_FUNC T clamp(T x, T low, T high) { return min(max(x, low), high); }                                                                 \
  METAL_FUNC T max3(T a, T b, T c) { return max(max(a, b), c); }                                                                            \
  METAL_FUNC T min3(T a, T b, T c) { return min(min(a, b), c); }                                                                            \
  METAL_FUNC T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }                                                         \
  METAL_FUNC T abs(T x) { return x < (T)0 ? (T)-(make_unsigned_t<T>)x : x; }                                                                \
  METAL_FUNC make_unsigned_t<T> absdiff(T a, T b) {                                                                                         \
    return a > b ? (make_unsigned_t<T>)((make_unsigned_t<T>)a - (make_unsigned_t<T>)b)                                                      \
                 : (make_unsigned_t<T>)((make_unsigned_t<T>)b - (make_unsigned_t<T>)a);                                                     \
  }                                                                                                                                         \
  METAL_FUNC T addsat(T a, T b) {                                                                                                           \
    T r;                                                                                                                                    \
    return !__builtin_add_overflow(a, b, &r) ? r : b < (T)0 ? numeric_limits<T>::min() : numeric_limits<T>::max();                          \
  }                                                                                                                                         \
  METAL_FUNC T subsat(T a, T b) {                                                                                                           \
    T r;                                                                                                                                    \
    if (!__builtin_sub_overflow(a, b, &r)) return r;                                                                                        \
    return is_signed_integer_v<T> && b < (T)0 ? numeric_limits<T>::max() : numeric_limits<T>::min();                                        \
  }                                                                                                                                         \
  METAL_FUNC T hadd(T a, T b) { return (T)(((__int128)a + (__int128)b) >> 1); }                                                               \
  METAL_FUNC T rhadd(T a, T b) { return (T)(((__int128)a + (__int128)b + 1) >> 1); }                                                          \
  METAL_FUNC T mulhi(T a, T b) {                                                                                                            \
    if constexpr (is_signed_integer_v<T>) return (T)((__int128)a * (__int128)b >> (sizeof(T) * 8));                                         \
    else return (T)((unsigned __int128)a * (unsigned __int128)b >> (sizeof(T) * 8));                                                        \
  }                                                                                                                                         \
  METAL_FUNC T madhi(T a, T b, T c) { return (T)((make_unsigned_t<T>)mulhi(a, b) + (make_unsigned_t<T>)c); }                                \
  METAL_FUNC T madsat(T a, T b, T c) {                                                                                                      \
    if constexpr (is_signed_integer_v<T>) {                                                                                                 \
      __int128 sum = (__int128)a * (__int128)b + (__int128)c, low = numeric_limits<T>::min(), high = numeric_limits<T>::max();              \
      return (T)(sum < low ? low : sum > high ? high : sum);                                                                                \
    } else {                                                                                                                                \
      unsigned __int128 sum = (unsigned __int128)a * (unsigned __int128)b + c, high = numeric_limits<T>::max();                             \
      return (T)(sum > high ? high : sum);                                                                                                  \
    }                                                                                                                                       \
  }                                                                                                                                         \
  METAL_FUNC T popcount(T x) { return (T)__builtin_popcountl((ulong)(make_unsigned_t<T>)x); }                                               \
  METAL_FUNC T clz(T x) { return (T)(x ? __builtin_clzl((ulong)(make_unsigned_t<T>)x) - (64 - (int)sizeof(T) * 8) : (int)sizeof(T) * 8); }  \
  METAL_FUNC T ctz(T x) { return (T)(x ? __builtin_ctzl((ulong)(make_unsigned_t<T>)x) : (int)sizeof(T) * 8); }                              \
  METAL_FUNC T rotate(T x, T by) {                                                                                                          \
    uint n = (uint)by & (sizeof(T) * 8 - 1);                                                                                                \
    make_unsigned_t<T> u = (make_unsigned_t<T>)x;                                                                                           \
    return n ? (T)(make_unsigned_t<T>)(u << n | u >> (sizeof(T) * 8 - n)) : x;                                                              \
  }                                                                                                                                         \
  METAL_FUNC T reverse_bits(T x) { return (T)(make_unsigned_t<T>)(__builtin_bitreverse64((ulong)(make_unsigned_t<T>)x) >> (64 - sizeof(T) * 8)); } \
  METAL_FUNC T extract_bits(T x, uint offset, uint bits) {                                                                                  \
    if (bits == 0) return (T)0;                                                                                                             \
    uint left = sizeof(T) * 8 - offset - bits;                                                                                              \
    return (T)((T)((make_unsigned_t<T>)x << left) >> (left + offset));                                                                      \
  }                                                                                                                                         \
  METAL_FUNC T insert_bits(T base, T insert, uint offset, uint bits) {                                                                      \
    ulong mask = (bits >= 64 ? ~0ul : (1ul << bits) - 1) << offset;                                                                         \
    return (T)(((ulong)base & ~mask) | (((ulong)insert << offset) & mask));                                                                       \
  }
OPENMPS_INTEGERS(OPENMPS_ORDER)
#undef OPENMPS_ORDER
METAL_FUNC int mad24(int a, int b, int c) { return a * b + c; }
METAL_FUNC uint mad24(uint a, uint b, uint c) { return a * b + c; }
METAL_FUNC int mul24(int a, int b) { return a * b; }
METAL_FUNC uint mul24(uint a, uint b) { return a * b; }
OPENMPS_LIFT1(abs) OPENMPS_LIFT1(popcount) OPENMPS_LIFT1(clz) OPENMPS_LIFT1(ctz) OPENMPS_LIFT1(reverse_bits)
OPENMPS_LIFT2(absdiff) OPENMPS_LIFT2(addsat) OPENMPS_LIFT2(subsat) OPENMPS_LIFT2(hadd) OPENMPS_LIFT2(rhadd) OPENMPS_LIFT2(mulhi)
OPENMPS_LIFT2(rotate)
}  // namespace metal
