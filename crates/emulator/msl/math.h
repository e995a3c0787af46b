// Functions on numbers, by component for vectors. half goes through float and is rounded once. bfloat has none here, as in Metal's own
// library: a kernel converts to float first.
namespace metal {
namespace detail {
METAL_FUNC float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
METAL_FUNC float exp10(float x) { return __builtin_powf(10.0f, x); }
METAL_FUNC float fract(float x) { return __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f); }
METAL_FUNC float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == x ? x : 0.0f; }
METAL_FUNC float saturate(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }
// Multiples of pi are reduced exactly before the libm function sees them.
METAL_FUNC float reduced(float x) { return x - 2.0f * __builtin_rintf(x * 0.5f); }
METAL_FUNC float sinpi(float x) { return __builtin_sinf(reduced(x) * M_PI_F); }
METAL_FUNC float cospi(float x) { return __builtin_cosf(reduced(x) * M_PI_F); }
METAL_FUNC float tanpi(float x) { return __builtin_tanf((x - __builtin_rintf(x)) * M_PI_F); }
METAL_FUNC float step(float edge, float x) { return x < edge ? 0.0f : 1.0f; }
METAL_FUNC float mix(float x, float y, float a) { return x + (y - x) * a; }
METAL_FUNC float clamp(float x, float low, float high) { return __builtin_fminf(__builtin_fmaxf(x, low), high); }
METAL_FUNC float smoothstep(float low, float high, float x) {
  float t = clamp((x - low) / (high - low), 0.0f, 1.0f);
  return t * t * (3.0f - 2.0f * t);
}
METAL_FUNC float powr(float x, float y) { return x < 0.0f ? __builtin_nanf("") : __builtin_powf(x, y); }
METAL_FUNC float median3(float a, float b, float c) {
  return __builtin_fmaxf(__builtin_fminf(a, b), __builtin_fminf(__builtin_fmaxf(a, b), c));
}
METAL_FUNC float max3(float a, float b, float c) { return __builtin_fmaxf(__builtin_fmaxf(a, b), c); }
METAL_FUNC float min3(float a, float b, float c) { return __builtin_fminf(__builtin_fminf(a, b), c); }
}  // namespace detail

// A function on scalars, by component. Scalar arguments beside a vector are spread.
#define OPENMPS_LIFT1(NAME)                                                                                                                 \
  template <class A, class V = detail::vector_t<A>> METAL_FUNC auto NAME(const A& a) {                                                     \
    V x = a;                                                                                                                                \
    vec<decltype(NAME(x.data[0])), detail::vector_of<V>::size> result((detail::bare_result<decltype(NAME(x.data[0]))>)0);                 \
    for (int i = 0; i < detail::vector_of<V>::size; i++) result.data[i] = NAME(x.data[i]);                                                 \
    return result;                                                                                                                          \
  }
#define OPENMPS_LIFT2(NAME)                                                                                                                 \
  template <class A, class B, class V = detail::common_t<A, B>> METAL_FUNC V NAME(const A& a, const B& b) {                                \
    V x = (V)a, y = (V)b;                                                                                                                   \
    for (int i = 0; i < detail::vector_of<V>::size; i++) x.data[i] = NAME(x.data[i], y.data[i]);                                           \
    return x;                                                                                                                               \
  }
#define OPENMPS_LIFT3(NAME)                                                                                                                 \
  template <class A, class B, class C, class V = detail::common3_t<A, B, C>>                                                               \
  METAL_FUNC V NAME(const A& a, const B& b, const C& c) {                                                                                   \
    V x = (V)a, y = (V)b, z = (V)c;                                                                                                         \
    for (int i = 0; i < detail::vector_of<V>::size; i++) x.data[i] = NAME(x.data[i], y.data[i], z.data[i]);                                \
    return x;                                                                                                                               \
  }
namespace detail {
template <class T> using bare_result = T;
template <bool, class A, class B, class C> struct common3_of {};
template <class A, class B, class C> struct common3_of<true, A, B, C> {
  typedef typename conditional_t<vector_of<A>::is_vector, vector_of<A>, conditional_t<vector_of<B>::is_vector, vector_of<B>, vector_of<C>>>::type type;
};
template <class A, class B, class C>
using common3_t = typename common3_of<vector_of<A>::is_vector || vector_of<B>::is_vector || vector_of<C>::is_vector, A, B, C>::type;
}  // namespace detail

// A function of bfloat is refused, or computed as float, as crates/emulator/src/options.rs says.
#if EMULATOR_BFLOAT_FUNCTIONS
#define OPENMPS_BFLOAT1(NAME) template <class T, class = enable_if_t<is_same_v<T, bfloat>>> METAL_FUNC float NAME(T x) { return NAME((float)x); }
#define OPENMPS_BFLOAT2(NAME) \
  template <class T, class = enable_if_t<is_same_v<T, bfloat>>> METAL_FUNC float NAME(T x, T y) { return NAME((float)x, (float)y); }
#define OPENMPS_BFLOAT3(NAME) \
  template <class T, class = enable_if_t<is_same_v<T, bfloat>>> METAL_FUNC float NAME(T x, T y, T z) { return NAME((float)x, (float)y, (float)z); }
#else
#define OPENMPS_BFLOAT1(NAME) bfloat NAME(bfloat) = delete;
#define OPENMPS_BFLOAT2(NAME) bfloat NAME(bfloat, bfloat) = delete;
#define OPENMPS_BFLOAT3(NAME) bfloat NAME(bfloat, bfloat, bfloat) = delete;
#endif
#define OPENMPS_F1(NAME, F)                                                                                                                 \
  METAL_FUNC float NAME(float x) { return F(x); }                                                                                           \
  METAL_FUNC half NAME(half x) { return (half)F((float)x); }                                                                                \
  OPENMPS_BFLOAT1(NAME)                                                                                                                     \
  OPENMPS_LIFT1(NAME)
#define OPENMPS_F2(NAME, F)                                                                                                                 \
  METAL_FUNC float NAME(float x, float y) { return F(x, y); }                                                                               \
  METAL_FUNC half NAME(half x, half y) { return (half)F((float)x, (float)y); }                                                              \
  OPENMPS_BFLOAT2(NAME)                                                                                                                     \
  OPENMPS_LIFT2(NAME)
#define OPENMPS_F3(NAME, F)                                                                                                                 \
  METAL_FUNC float NAME(float x, float y, float z) { return F(x, y, z); }                                                                   \
  METAL_FUNC half NAME(half x, half y, half z) { return (half)F((float)x, (float)y, (float)z); }                                            \
  OPENMPS_BFLOAT3(NAME)                                                                                                                     \
  OPENMPS_LIFT3(NAME)
OPENMPS_F1(acos, __builtin_acosf) OPENMPS_F1(acosh, __builtin_acoshf) OPENMPS_F1(asin, __builtin_asinf) OPENMPS_F1(asinh, __builtin_asinhf)
OPENMPS_F1(atan, __builtin_atanf) OPENMPS_F1(atanh, __builtin_atanhf) OPENMPS_F1(ceil, __builtin_ceilf) OPENMPS_F1(cos, __builtin_cosf)
OPENMPS_F1(cosh, __builtin_coshf) OPENMPS_F1(cospi, detail::cospi) OPENMPS_F1(exp, __builtin_expf) OPENMPS_F1(exp2, __builtin_exp2f)
OPENMPS_F1(exp10, detail::exp10) OPENMPS_F1(fabs, __builtin_fabsf) OPENMPS_F1(floor, __builtin_floorf) OPENMPS_F1(fract, detail::fract)
OPENMPS_F1(log, __builtin_logf) OPENMPS_F1(log2, __builtin_log2f) OPENMPS_F1(log10, __builtin_log10f) OPENMPS_F1(rint, __builtin_rintf)
OPENMPS_F1(round, __builtin_roundf) OPENMPS_F1(rsqrt, detail::rsqrt) OPENMPS_F1(saturate, detail::saturate) OPENMPS_F1(sign, detail::sign)
OPENMPS_F1(sin, __builtin_sinf) OPENMPS_F1(sinh, __builtin_sinhf) OPENMPS_F1(sinpi, detail::sinpi) OPENMPS_F1(sqrt, __builtin_sqrtf)
OPENMPS_F1(tan, __builtin_tanf) OPENMPS_F1(tanh, __builtin_tanhf) OPENMPS_F1(tanpi, detail::tanpi) OPENMPS_F1(trunc, __builtin_truncf)
OPENMPS_F2(atan2, __builtin_atan2f) OPENMPS_F2(copysign, __builtin_copysignf) OPENMPS_F2(fdim, __builtin_fdimf)
OPENMPS_F2(fmax, __builtin_fmaxf) OPENMPS_F2(fmin, __builtin_fminf) OPENMPS_F2(fmod, __builtin_fmodf) OPENMPS_F2(pow, __builtin_powf)
OPENMPS_F2(powr, detail::powr) OPENMPS_F2(step, detail::step) OPENMPS_F2(max, __builtin_fmaxf) OPENMPS_F2(min, __builtin_fminf)
OPENMPS_F3(fma, __builtin_fmaf) OPENMPS_F3(mix, detail::mix) OPENMPS_F3(clamp, detail::clamp)
OPENMPS_F3(smoothstep, detail::smoothstep) OPENMPS_F3(median3, detail::median3) OPENMPS_F3(max3, detail::max3)
OPENMPS_F3(min3, detail::min3) OPENMPS_F3(fmax3, detail::max3) OPENMPS_F3(fmin3, detail::min3) OPENMPS_F3(fmedian3, detail::median3)
METAL_FUNC float abs(float x) { return __builtin_fabsf(x); }
OPENMPS_BFLOAT1(abs)
METAL_FUNC half abs(half x) { return (half)__builtin_fabsf((float)x); }
METAL_FUNC float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }
METAL_FUNC float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
METAL_FUNC half ldexp(half x, int e) { return (half)__builtin_ldexpf((float)x, e); }
METAL_FUNC int ilogb(float x) { return __builtin_ilogbf(x); }
METAL_FUNC float divide(float x, float y) { return x / y; }
METAL_FUNC half divide(half x, half y) { return x / y; }
METAL_FUNC float sincos(float x, thread float& c) { c = cos(x); return sin(x); }
METAL_FUNC float modf(float x, thread float& whole) { whole = trunc(x); return copysign(__builtin_isinf(x) ? 0.0f : x - whole, x); }
METAL_FUNC float frexp(float x, thread int& e) {
  int exponent = 0;
  if (x != 0.0f && !__builtin_isnan(x) && !__builtin_isinf(x)) exponent = ilogb(x) + 1;
  e = exponent;
  return __builtin_ldexpf(x, -exponent);
}

#define OPENMPS_TEST(NAME, F)                                                                                                               \
  METAL_FUNC bool NAME(float x) { return F(x); }                                                                                            \
  METAL_FUNC bool NAME(half x) { return F((float)x); }                                                                                      \
  OPENMPS_LIFT1(NAME)
OPENMPS_TEST(isnan, __builtin_isnan) OPENMPS_TEST(isinf, __builtin_isinf) OPENMPS_TEST(isfinite, __builtin_isfinite)
OPENMPS_TEST(signbit, __builtin_signbit)
METAL_FUNC bool isnormal(float x) { return __builtin_isnormal(x); }
METAL_FUNC bool isnormal(half x) { half m = (half)__builtin_fabsf((float)x); return m >= (half)0x1p-14f && m <= (half)65504.0f; }
OPENMPS_LIFT1(isnormal)

// select(a, b, c) is c ? b : a.
template <class T, class = enable_if_t<is_arithmetic_v<T>>> METAL_FUNC T select(T a, T b, bool c) { return c ? b : a; }
template <class T, int N> METAL_FUNC vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  for (int i = 0; i < N; i++) a.data[i] = c.data[i] ? b.data[i] : a.data[i];
  return a;
}
template <int N> METAL_FUNC bool any(vec<bool, N> x) { bool r = false; for (int i = 0; i < N; i++) r = r || x.data[i]; return r; }
template <int N> METAL_FUNC bool all(vec<bool, N> x) { bool r = true; for (int i = 0; i < N; i++) r = r && x.data[i]; return r; }
METAL_FUNC bool any(bool x) { return x; }
METAL_FUNC bool all(bool x) { return x; }

// Geometry.
template <class A, class B, class V = detail::common_t<A, B>> METAL_FUNC auto dot(const A& a, const B& b) {
  V x = (V)a, y = (V)b;
  auto sum = x.data[0] * y.data[0];
  for (int i = 1; i < detail::vector_of<V>::size; i++) sum += x.data[i] * y.data[i];
  return sum;
}
template <class A, class V = detail::vector_t<A>> METAL_FUNC auto length_squared(const A& a) { return dot(a, a); }
template <class A, class V = detail::vector_t<A>> METAL_FUNC auto length(const A& a) { return sqrt(dot(a, a)); }
template <class A, class V = detail::vector_t<A>> METAL_FUNC V normalize(const A& a) { return (V)a / length(a); }
template <class A, class B, class V = detail::common_t<A, B>> METAL_FUNC auto distance(const A& a, const B& b) { return length((V)a - (V)b); }
template <class T> METAL_FUNC vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) { return a.yzx * b.zxy - a.zxy * b.yzx; }
}  // namespace metal
