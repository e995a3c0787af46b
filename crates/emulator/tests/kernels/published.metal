// Our own text in the style of published shaders: macros and templates declare kernels, constants come with the pipeline.
#include <metal_stdlib>
#include "shared.h"
using namespace metal;

#define INSTANTIATE(NAME, FUNCTION, ...) \
  template [[host_name(NAME)]] [[kernel]] decltype(FUNCTION<__VA_ARGS__>) FUNCTION<__VA_ARGS__>;

constant bool SCALED [[function_constant(0)]];
constant float SCALE [[function_constant(1)]];
constant bool BIASED [[function_constant(2)]];
constant bool HAS_SCALE = SCALED && is_function_constant_defined(SCALE);
static constexpr constant int3 OFFSETS = {1, 2, 4};

template <uint Y> constexpr uint pieces(uint x) { return x / Y + (x % Y > 0); }
template <typename T> constexpr uint per_thread() { return pieces<8>(sizeof(T)); }

template <typename T, int N>
struct Tile {
  typedef vec<T, 2> pair;
  pair values[N];
  Tile() thread = default;
  Tile() threadgroup = default;
  METAL_FUNC thread pair& at(const short i) { return values[i]; }
  METAL_FUNC const thread pair& at(const short i) const { return values[i]; }
  static METAL_FUNC T first(thread const short& from, T otherwise) { return from > 0 ? T(from) : otherwise; }
};

// Sums by halves in threadgroup memory of a size that the template's parameter gives.
template <typename T, typename U, int SIZE, int W = per_thread<T>()>
[[kernel]] void sum(
    device const T* input,
    device U* output,
    device const U* bias [[buffer(2), function_constant(BIASED)]],
    uint i [[thread_index_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]]) {
  threadgroup U partial[SIZE], all;
  Tile<U, 2> tile;
  tile.at(1) = typename Tile<U, 2>::pair(static_cast<U>(input[group * SIZE + i]));
  thread U& value = tile.at(1)[0];
  if (HAS_SCALE) value = U(float(value) * SCALE);
  partial[i] = value;
  for (int half_size = SIZE / 2; half_size > 0; half_size /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (int(i) < half_size) partial[i] += partial[i + half_size];
  }
  if (i == 0) all = partial[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  U result = all + U(Tile<U, 2>::first(SIZE - SIZE, U(0)));
  if (BIASED) result += bias[group];
  if (i == 1) output[group] = result;
}
INSTANTIATE("sum_" "f32", sum, float, float, 64)
INSTANTIATE("sum_f16_bf16", sum, half, bfloat, 32)
template [[host_name("sum_i32")]] [[kernel]] void sum<int, int, 128>(
    device const int*, device int*, device const int*, uint, uint);

// One block of threadgroup memory for each case.
#define CASE(N)                                               \
  case N: {                                                   \
    threadgroup float turned[N];                              \
    turned[i] = data[i];                                      \
    threadgroup_barrier(mem_flags::mem_threadgroup);          \
    data[i] = turned[N - 1 - i];                              \
    break;                                                    \
  }
#define REVERSE(NAME)                                         \
  kernel void NAME(device float* data, uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) { \
    switch (n) { CASE(64) CASE(32) }                          \
  }
REVERSE(reverse)

template <typename M> void columns(device const float* from, short at, thread M& m) {
  for (int c = 0; c < 2; c++) m[c] = float2(from[at + 2 * c], from[at + 2 * c + 1]);
}
template <void (*load)(device const float*, short, thread float2x2&)>
kernel void transform(device const float* matrix, device packed_float3* points, uint i [[thread_position_in_grid]]) {
  float2x2 m;
  load(matrix, 0, m);
  float2 y = m * float2(points[i].x, points[i].y);
  points[i] = packed_float3(y, shared_offset(points[i].z) + OFFSETS.z);
}
typedef decltype(transform<columns>) transform_t;
template [[host_name("transform.columns")]] kernel transform_t transform<columns>;

kernel void exponential(device const bfloat* x, device float* y, uint i [[thread_position_in_grid]]) { y[i] = exp(x[i]); }

template <typename T> kernel void tenths(device T* x, constant float& by, uint i [[thread_position_in_grid]]) { x[i] = static_cast<T>(by * 0.1); }
INSTANTIATE("tenths", tenths, half)

// Reads through a null pointer what nobody uses, as a sort without indices does.
template <typename T, bool INDEXED> kernel void doubled(device T* x, uint i [[thread_position_in_grid]]) {
  device const uint* indices = INDEXED ? (device const uint*)x : nullptr;
  uint index = indices[i];
  x[i] = INDEXED ? T(index) : x[i] * 2;
}
INSTANTIATE("doubled", doubled, float, false)
