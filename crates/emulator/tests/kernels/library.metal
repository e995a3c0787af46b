// What published kernels ask of the library beyond numbers: uniform values, quadgroups, conversions, objects in every address space.
#include <metal_stdlib>
#include <metal_uniform>
using namespace metal;

namespace metal {
namespace precise {
// Beside the functions of float, which must stay in sight.
METAL_FUNC bfloat sqrt(bfloat x) { return static_cast<bfloat>(__metal_sqrt(static_cast<float>(x), __METAL_PRECISE_MATH__)); }
}
}

struct journal {
  constexpr journal(constant char*, constant char*) constant {}
  void note(constant char*, int) const constant {}
};
constant journal notes("library", "test");

template <class T> struct pair {
  T a, b;
  constexpr pair(T a, T b) thread : a(a), b(b) {}
  constexpr pair() threadgroup : a(0), b(0) {}
  constexpr pair() thread : a(0), b(0) {}
  template <class U, class = enable_if_t<is_convertible_v<U, T>>> constexpr pair(U x) thread : a(x), b(x) {}
  template <class U, class = enable_if_t<is_convertible_v<U, T>>> constexpr pair(U x) constant : a(x), b(x) {}
  constexpr T sum() const thread { return a + b; }
  constexpr T sum() const threadgroup { return a + b; }
  constexpr T sum() const device { return a + b; }
  constexpr T sum() const constant { return a + b; }
};
template <class T> struct limits { static constexpr constant pair<T> none = pair<T>(-1, -2); };
template <int N> struct steps { METAL_FUNC constexpr operator int() const thread { return N; } };

template <class T, int N> void load(T values[N], device const T* from) {
  for (int i = 0; i < N; i++) values[i] = from[i];
}

// Pairs that are read behind the end are the constant one.
template <class T> [[kernel]] void pairs(device const pair<T>* x, device T* y, constant int& count, uint i [[thread_position_in_grid]]) {
  threadgroup pair<T> shared[4] = {0};
  pair<T> one = (int)i < count ? x[i] : limits<T>::none;
  shared[i] = one;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  pair<T> other = i > 0 ? shared[i - 1] : pair<T>(7);
  device const pair<T>* p = x;
  p += steps<1>{};
  p -= steps<1>{};
  pair<T> local[2];
  load<pair<T>, 2>(local, p);
  notes.note("pairs", count);
  y[i] = one.sum() + 100 * other.sum() + 10000 * (local[1].sum() + p->sum() + limits<T>::none.sum());
}
template [[host_name("pairs_int")]] [[kernel]] decltype(pairs<int>) pairs<int>;

kernel void quads(device const int* x [[buffer(0)]], device int* y [[buffer(1)]], constant const long strides[2] [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) {
  const uniform<int> four = make_uniform(4), two = four / make_uniform(2);
  int v = x[i * strides[0]];
  y[i * strides[1]] = quad_sum(v) * two + quad_max(v) - quad_shuffle_up(v, 1) + quad_shuffle_down(v, 2);
}

kernel void roots(device const bfloat* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = precise::sqrt((float)x[i]) + (float)precise::sqrt(x[i]) + (is_convertible_v<float, bfloat> ? 100.0f : 0.0f) + simd_max((float)x[i]);
}
