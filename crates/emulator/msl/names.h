// The namespaces `precise` and `fast`, and the names under which Apple's own headers know their functions.
namespace metal {
// Both namespaces compute alike here: the differences of Apple's fast functions cannot be shown. Each has every name as its own: a text that
// adds a function of one of these names to them would hide those that a using directive brings.
#define OPENMPS_USE(NAME) using metal::NAME;
#define OPENMPS_FUNCTIONS OPENMPS_USE(acos) OPENMPS_USE(acosh) OPENMPS_USE(asin) OPENMPS_USE(asinh) OPENMPS_USE(atan) OPENMPS_USE(atan2)  \
  OPENMPS_USE(atanh) OPENMPS_USE(ceil) OPENMPS_USE(clamp) OPENMPS_USE(copysign) OPENMPS_USE(cos) OPENMPS_USE(cosh) OPENMPS_USE(cospi)     \
  OPENMPS_USE(divide) OPENMPS_USE(exp) OPENMPS_USE(exp10) OPENMPS_USE(exp2) OPENMPS_USE(fabs) OPENMPS_USE(fdim) OPENMPS_USE(floor)        \
  OPENMPS_USE(fma) OPENMPS_USE(fmax) OPENMPS_USE(fmax3) OPENMPS_USE(fmedian3) OPENMPS_USE(fmin) OPENMPS_USE(fmin3) OPENMPS_USE(fmod)      \
  OPENMPS_USE(fract) OPENMPS_USE(frexp) OPENMPS_USE(ilogb) OPENMPS_USE(isfinite) OPENMPS_USE(isinf) OPENMPS_USE(isnan)                    \
  OPENMPS_USE(isnormal) OPENMPS_USE(ldexp) OPENMPS_USE(log) OPENMPS_USE(log10) OPENMPS_USE(log2) OPENMPS_USE(max) OPENMPS_USE(max3)       \
  OPENMPS_USE(median3) OPENMPS_USE(min) OPENMPS_USE(min3) OPENMPS_USE(mix) OPENMPS_USE(modf) OPENMPS_USE(nextafter) OPENMPS_USE(pow)      \
  OPENMPS_USE(powr) OPENMPS_USE(rint) OPENMPS_USE(round) OPENMPS_USE(rsqrt) OPENMPS_USE(saturate) OPENMPS_USE(select) OPENMPS_USE(sign)   \
  OPENMPS_USE(signbit) OPENMPS_USE(sin) OPENMPS_USE(sincos) OPENMPS_USE(sinh) OPENMPS_USE(sinpi) OPENMPS_USE(smoothstep)                  \
  OPENMPS_USE(sqrt) OPENMPS_USE(step) OPENMPS_USE(tan) OPENMPS_USE(tanh) OPENMPS_USE(tanpi) OPENMPS_USE(trunc) OPENMPS_USE(abs)           \
  OPENMPS_USE(dot) OPENMPS_USE(length) OPENMPS_USE(length_squared) OPENMPS_USE(normalize) OPENMPS_USE(distance) OPENMPS_USE(cross)
namespace precise { OPENMPS_FUNCTIONS }
namespace fast { OPENMPS_FUNCTIONS }
}  // namespace metal

// Published kernels give bfloat the functions that it lacks by way of these names, which Apple does not document: a text of one's own is refused.
#if EMULATOR_BFLOAT_FUNCTIONS
#define __METAL_MAYBE_FAST_MATH__ 0
#define __METAL_PRECISE_MATH__ 0
#define __METAL_FAST_MATH__ 0
#define OPENMPS_BUILTIN1(NAME) template <class T> METAL_FUNC T __metal_##NAME(T x, int = 0) { return metal::NAME(x); }
#define OPENMPS_BUILTIN2(NAME) template <class T> METAL_FUNC T __metal_##NAME(T x, T y, int = 0) { return metal::NAME(x, y); }
#define OPENMPS_BUILTIN3(NAME) template <class T> METAL_FUNC T __metal_##NAME(T x, T y, T z, int = 0) { return metal::NAME(x, y, z); }
OPENMPS_BUILTIN1(acos) OPENMPS_BUILTIN1(acosh) OPENMPS_BUILTIN1(asin) OPENMPS_BUILTIN1(asinh) OPENMPS_BUILTIN1(atan)
OPENMPS_BUILTIN1(atanh) OPENMPS_BUILTIN1(ceil) OPENMPS_BUILTIN1(cos) OPENMPS_BUILTIN1(cosh) OPENMPS_BUILTIN1(cospi)
OPENMPS_BUILTIN1(exp) OPENMPS_BUILTIN1(exp10) OPENMPS_BUILTIN1(exp2) OPENMPS_BUILTIN1(fabs) OPENMPS_BUILTIN1(floor)
OPENMPS_BUILTIN1(fract) OPENMPS_BUILTIN1(log) OPENMPS_BUILTIN1(log10) OPENMPS_BUILTIN1(log2) OPENMPS_BUILTIN1(rint)
OPENMPS_BUILTIN1(round) OPENMPS_BUILTIN1(rsqrt) OPENMPS_BUILTIN1(sin) OPENMPS_BUILTIN1(sinh) OPENMPS_BUILTIN1(sinpi)
OPENMPS_BUILTIN1(sqrt) OPENMPS_BUILTIN1(tan) OPENMPS_BUILTIN1(tanh) OPENMPS_BUILTIN1(tanpi) OPENMPS_BUILTIN1(trunc)
OPENMPS_BUILTIN2(atan2) OPENMPS_BUILTIN2(divide) OPENMPS_BUILTIN2(fdim) OPENMPS_BUILTIN2(fmax) OPENMPS_BUILTIN2(fmin)
OPENMPS_BUILTIN2(fmod) OPENMPS_BUILTIN2(nextafter) OPENMPS_BUILTIN2(pow) OPENMPS_BUILTIN2(powr)
OPENMPS_BUILTIN3(fma) OPENMPS_BUILTIN3(fmax3) OPENMPS_BUILTIN3(fmedian3) OPENMPS_BUILTIN3(fmin3)
METAL_FUNC float __metal_ldexp(float x, int e, int = 0) { return metal::ldexp(x, e); }
METAL_FUNC float __metal_frexp(float x, thread int* e) { return metal::frexp(x, *e); }
METAL_FUNC ushort __metal_get_simdgroup_size(ushort) { return 32; }
METAL_FUNC ushort __metal_get_thread_index_in_simdgroup(ushort) { return (ushort)openmps::lane(); }
#define OPENMPS_SIMD_BUILTIN1(NAME) template <class T> METAL_FUNC T __metal_##NAME(T x) { return metal::NAME(x); }
#define OPENMPS_SIMD_BUILTIN2(NAME) template <class T> METAL_FUNC T __metal_##NAME(T x, ushort by) { return metal::NAME(x, by); }
#define OPENMPS_SIMD_BUILTIN3(NAME) template <class T> METAL_FUNC T __metal_##NAME(T x, T fill, ushort by, ushort) { return metal::NAME(x, fill, by); }
OPENMPS_SIMD_BUILTIN1(simd_sum) OPENMPS_SIMD_BUILTIN1(simd_product) OPENMPS_SIMD_BUILTIN1(simd_max) OPENMPS_SIMD_BUILTIN1(simd_min)
OPENMPS_SIMD_BUILTIN1(simd_prefix_inclusive_sum) OPENMPS_SIMD_BUILTIN1(simd_prefix_exclusive_sum)
OPENMPS_SIMD_BUILTIN1(simd_prefix_inclusive_product) OPENMPS_SIMD_BUILTIN1(simd_prefix_exclusive_product)
OPENMPS_SIMD_BUILTIN2(simd_broadcast) OPENMPS_SIMD_BUILTIN2(simd_shuffle) OPENMPS_SIMD_BUILTIN2(simd_shuffle_xor)
OPENMPS_SIMD_BUILTIN2(simd_shuffle_up) OPENMPS_SIMD_BUILTIN2(simd_shuffle_down) OPENMPS_SIMD_BUILTIN2(simd_shuffle_rotate_up)
OPENMPS_SIMD_BUILTIN2(simd_shuffle_rotate_down)
OPENMPS_SIMD_BUILTIN3(simd_shuffle_and_fill_up) OPENMPS_SIMD_BUILTIN3(simd_shuffle_and_fill_down)
namespace metal {
template <class... A> struct _disjunction : bool_constant<((bool)A::value || ...)> {};
}
// There is none of floats: it may be named in a text, not called.
template <class T> T __metal_simd_xor(T x);
#endif
