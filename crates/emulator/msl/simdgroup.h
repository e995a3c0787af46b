// Operations over the 32 lanes of a simdgroup. Each lane leaves its value and stops; when all that can come have come, `resolve` runs once
// for all of them, and each lane takes its result. Lanes that did not come do not take part.
namespace openmps {
template <class T> METAL_FUNC __global T& deposited(uint lane) { return *(__global T*)&openmps_frame.deposits[lane][0]; }
template <class T> METAL_FUNC __global T& result(uint lane) { return *(__global T*)&openmps_frame.results[lane][0]; }
template <class T> METAL_FUNC void collect(T value, void (*resolve)(uint), uint line) {
  static_assert(sizeof(T) <= 32, "a value of more than 32 bytes in a simdgroup operation");
  deposited<T>(lane()) = value;
  stop(stop_collective, line, here(), resolve);
}
// Of a matrix operation, which is not defined unless all 32 lanes come.
template <class T> METAL_FUNC void collect_everyone(T value, void (*resolve)(uint), uint line) {
  static_assert(sizeof(T) <= 32, "a value of more than 32 bytes in a simdgroup operation");
  deposited<T>(lane()) = value;
  stop(stop_everyone, line, here(), resolve);
}
template <class T> void keep(uint) { for (uint i = 0; i < 32; i++) result<T>(i) = deposited<T>(i); }
// Sums and the like go by halves, as wide hardware does: lane i with lane i + 16, then i + 8, ...
template <class F, class T> void reduce(uint active) {
  T partial[32];
  for (uint i = 0; i < 32; i++) partial[i] = active >> i & 1 ? (T)deposited<T>(i) : F::template identity<T>();
  for (uint width = 16; width > 0; width /= 2)
    for (uint i = 0; i < width; i++) partial[i] = F::apply(partial[i], partial[i + width]);
  for (uint i = 0; i < 32; i++) result<T>(i) = partial[0];
}
// Over each four lanes, which are a quadgroup.
template <class F, class T> void reduce_quads(uint active) {
  for (uint first = 0; first < 32; first += 4) {
    T partial = F::template identity<T>();
    for (uint i = first; i < first + 4; i++)
      if (active >> i & 1) partial = F::apply(partial, (T)deposited<T>(i));
    for (uint i = first; i < first + 4; i++) result<T>(i) = partial;
  }
}
template <class F, class T, bool INCLUSIVE> void scan(uint active) {
  T sum = F::template identity<T>();
  for (uint i = 0; i < 32; i++) {
    if (!INCLUSIVE) result<T>(i) = sum;
    if (active >> i & 1) sum = F::apply(sum, (T)deposited<T>(i));
    if (INCLUSIVE) result<T>(i) = sum;
  }
}
template <class T> struct component { typedef T type; };
template <class T, int N> struct component<metal::vec<T, N>> { typedef T type; };
template <class T> using component_t = typename component<T>::type;
#define OPENMPS_REDUCTION(NAME, IDENTITY, EXPRESSION)                                                                                       \
  struct NAME {                                                                                                                             \
    template <class T> static METAL_FUNC T identity() { return (T)IDENTITY; }                                                               \
    template <class T> static METAL_FUNC T apply(T a, T b) { return (T)(EXPRESSION); }                                                      \
  };
// What max and min start from: infinities where there are some.
template <class T> METAL_FUNC T lowest() {
  if constexpr (metal::is_floating_point_v<T>) return (T)-__builtin_inff();
  else return metal::numeric_limits<T>::lowest();
}
template <class T> METAL_FUNC T highest() {
  if constexpr (metal::is_floating_point_v<T>) return (T)__builtin_inff();
  else return metal::numeric_limits<T>::max();
}
// The sum starts from -0.0, which changes no value.
template <class T> METAL_FUNC T nothing() {
  if constexpr (metal::is_floating_point_v<T>) return (T)-0.0f;
  else return (T)0;
}
OPENMPS_REDUCTION(add, nothing<component_t<T>>(), a + b)
OPENMPS_REDUCTION(add_from_zero, 0, a + b)
OPENMPS_REDUCTION(multiply, 1, a * b)
OPENMPS_REDUCTION(maximum, lowest<component_t<T>>(), metal::max(a, b))
OPENMPS_REDUCTION(minimum, highest<component_t<T>>(), metal::min(a, b))
OPENMPS_REDUCTION(bit_and, ~(component_t<T>)0, a & b)
OPENMPS_REDUCTION(bit_or, 0, a | b)
OPENMPS_REDUCTION(bit_xor, 0, a ^ b)
}  // namespace openmps

namespace metal {
#define OPENMPS_LINE uint line = __builtin_LINE()
#define OPENMPS_LANES(EXPRESSION)                                                                                                           \
  uint self = openmps::lane();                                                                                                            \
  openmps::collect<T>(value, openmps::keep<T>, line);                                                                                   \
  return openmps::result<T>((EXPRESSION)&31)
namespace detail {
// bfloat has no simdgroup functions in Metal's library.
template <class T> inline constexpr bool simd_type = !is_same_v<openmps::component_t<T>, bfloat> && !is_same_v<openmps::component_t<T>, bool>;
}
template <class T> struct __is_valid_simdgroup_type { static constexpr bool value = is_arithmetic_v<openmps::component_t<T>> && detail::simd_type<T> && sizeof(openmps::component_t<T>) < 8; };
#define OPENMPS_SIMD template <class T, class = enable_if_t<detail::simd_type<T>>> METAL_FUNC
OPENMPS_SIMD T simd_shuffle(T value, ushort from, OPENMPS_LINE) { OPENMPS_LANES(from); }
OPENMPS_SIMD T simd_broadcast(T value, ushort from, OPENMPS_LINE) { OPENMPS_LANES(from); }
OPENMPS_SIMD T simd_shuffle_xor(T value, ushort mask, OPENMPS_LINE) { OPENMPS_LANES(self ^ mask); }
// Where the source lies outside, a lane keeps its own value.
OPENMPS_SIMD T simd_shuffle_up(T value, ushort by, OPENMPS_LINE) { OPENMPS_LANES(self >= by ? self - by : self); }
OPENMPS_SIMD T simd_shuffle_down(T value, ushort by, OPENMPS_LINE) { OPENMPS_LANES(self + by < 32 ? self + by : self); }
OPENMPS_SIMD T simd_shuffle_rotate_up(T value, ushort by, OPENMPS_LINE) { OPENMPS_LANES(self - by); }
OPENMPS_SIMD T simd_shuffle_rotate_down(T value, ushort by, OPENMPS_LINE) { OPENMPS_LANES(self + by); }
// Where the source lies outside, the lane takes from the other end of `fill`.
OPENMPS_SIMD T simd_shuffle_and_fill_up(T value, T fill, ushort by, OPENMPS_LINE) {
  uint self = openmps::lane();
  T inside = simd_shuffle_rotate_up(value, by, line), outside = simd_shuffle_rotate_up(fill, by, line);
  return self >= by ? inside : outside;
}
OPENMPS_SIMD T simd_shuffle_and_fill_down(T value, T fill, ushort by, OPENMPS_LINE) {
  uint self = openmps::lane();
  T inside = simd_shuffle_rotate_down(value, by, line), outside = simd_shuffle_rotate_down(fill, by, line);
  return self + by < 32 ? inside : outside;
}
OPENMPS_SIMD T simd_broadcast_first(T value, OPENMPS_LINE) {
  openmps::collect<T>(value, openmps::keep<T>, line);
  return openmps::result<T>(__builtin_ctz(openmps_frame.active));
}
OPENMPS_SIMD T quad_shuffle(T value, ushort from, OPENMPS_LINE) { OPENMPS_LANES((self & ~3u) + (from & 3)); }
OPENMPS_SIMD T quad_broadcast(T value, ushort from, OPENMPS_LINE) { OPENMPS_LANES((self & ~3u) + (from & 3)); }
OPENMPS_SIMD T quad_shuffle_xor(T value, ushort mask, OPENMPS_LINE) { OPENMPS_LANES(self ^ (mask & 3)); }
#define OPENMPS_SIMD_REDUCE(NAME, F)                                                                                                        \
  OPENMPS_SIMD T NAME(T value, OPENMPS_LINE) {                                                                                              \
    uint self = openmps::lane();                                                                                                          \
    openmps::collect<T>(value, F, line);                                                                                                  \
    return openmps::result<T>(self);                                                                                                      \
  }
#define OPENMPS_FOLD(F) (openmps::reduce<openmps::F, T>)
OPENMPS_SIMD_REDUCE(simd_sum, OPENMPS_FOLD(add)) OPENMPS_SIMD_REDUCE(simd_product, OPENMPS_FOLD(multiply))
OPENMPS_SIMD_REDUCE(simd_max, OPENMPS_FOLD(maximum)) OPENMPS_SIMD_REDUCE(simd_min, OPENMPS_FOLD(minimum))
OPENMPS_SIMD_REDUCE(simd_and, OPENMPS_FOLD(bit_and)) OPENMPS_SIMD_REDUCE(simd_or, OPENMPS_FOLD(bit_or))
OPENMPS_SIMD_REDUCE(simd_xor, OPENMPS_FOLD(bit_xor))
OPENMPS_SIMD_REDUCE(simd_prefix_inclusive_sum, (openmps::scan<openmps::add, T, true>))
OPENMPS_SIMD_REDUCE(simd_prefix_exclusive_sum, (openmps::scan<openmps::add_from_zero, T, false>))
OPENMPS_SIMD_REDUCE(simd_prefix_inclusive_product, (openmps::scan<openmps::multiply, T, true>))
OPENMPS_SIMD_REDUCE(simd_prefix_exclusive_product, (openmps::scan<openmps::multiply, T, false>))

#define OPENMPS_QUAD(F) (openmps::reduce_quads<openmps::F, T>)
OPENMPS_SIMD_REDUCE(quad_sum, OPENMPS_QUAD(add)) OPENMPS_SIMD_REDUCE(quad_product, OPENMPS_QUAD(multiply))
OPENMPS_SIMD_REDUCE(quad_max, OPENMPS_QUAD(maximum)) OPENMPS_SIMD_REDUCE(quad_min, OPENMPS_QUAD(minimum))
OPENMPS_SIMD_REDUCE(quad_and, OPENMPS_QUAD(bit_and)) OPENMPS_SIMD_REDUCE(quad_or, OPENMPS_QUAD(bit_or))
OPENMPS_SIMD_REDUCE(quad_xor, OPENMPS_QUAD(bit_xor))
OPENMPS_SIMD T quad_shuffle_up(T value, ushort by, OPENMPS_LINE) { OPENMPS_LANES((self & 3) >= by ? self - by : self); }
OPENMPS_SIMD T quad_shuffle_down(T value, ushort by, OPENMPS_LINE) { OPENMPS_LANES((self & 3) + by < 4 ? self + by : self); }

struct simd_vote {
  typedef ulong vote_t;
  ulong votes;
  simd_vote() = default;
  explicit METAL_FUNC simd_vote(ulong votes) : votes(votes) {}
  explicit METAL_FUNC operator vote_t() const { return votes; }
  METAL_FUNC bool all() const { return (uint)votes == ~0u; }
  METAL_FUNC bool any() const { return votes != 0; }
};
METAL_FUNC simd_vote simd_ballot(bool value, OPENMPS_LINE) {
  uint self = openmps::lane();
  openmps::collect<uint>(value ? 1u << self : 0u, openmps::reduce<openmps::bit_or, uint>, line);
  return simd_vote(openmps::result<uint>(self));
}
METAL_FUNC simd_vote simd_active_threads_mask(OPENMPS_LINE) { return simd_ballot(true, line); }
METAL_FUNC bool simd_any(bool value, OPENMPS_LINE) { return (ulong)simd_ballot(value, line) != 0; }
METAL_FUNC bool simd_all(bool value, OPENMPS_LINE) { return (ulong)simd_ballot(!value, line) == 0; }
METAL_FUNC bool simd_is_first(OPENMPS_LINE) {
  uint self = openmps::lane();
  return (uint)__builtin_ctzl((ulong)simd_ballot(true, line)) == self;
}
}  // namespace metal
