// Vectors of two to four components, with all constructors, swizzles that can be read and assigned, operators by component and
// comparisons that give vectors of bool; packed vectors; as_type.
namespace metal {
template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;
template <class T, int N, int A, int B, int C, int D> struct swizzle;

namespace detail {
// The vector that a type stands for: vec itself, a swizzle, a packed vector.
template <class T> struct plain_vector_of { enum { size = 1, is_vector = 0 }; };
template <class T, int N> struct plain_vector_of<vec<T, N>> { enum { size = N, is_vector = 1 }; typedef vec<T, N> type; };
template <class T, int N, int A, int B, int C, int D> struct plain_vector_of<swizzle<T, N, A, B, C, D>> {
  enum { size = C < 0 ? 2 : D < 0 ? 3 : 4, is_vector = 1 };
  typedef vec<T, size> type;
};
template <class T, int N> struct plain_vector_of<packed_vec<T, N>> { enum { size = N, is_vector = 1 }; typedef vec<T, N> type; };
template <class T> struct vector_of : plain_vector_of<remove_space_t<T>> {};
template <class T> using vector_t = typename vector_of<T>::type;
// The vector that an operation on two gives: the scalar follows the vector, two vectors must be alike.
template <class A, class B, bool VA = vector_of<A>::is_vector, bool VB = vector_of<B>::is_vector> struct common {};
template <class A, class B> struct common<A, B, true, false> : enable_if<is_arithmetic_v<remove_space_t<B>>, vector_t<A>> {};
template <class A, class B> struct common<A, B, false, true> : enable_if<is_arithmetic_v<remove_space_t<A>>, vector_t<B>> {};
template <class A, class B> struct common<A, B, true, true> : enable_if<is_same_v<vector_t<A>, vector_t<B>>, vector_t<A>> {};
template <class A, class B> using common_t = typename common<A, B>::type;
template <class... A> struct total { enum { size = 0 }; };
template <class A, class... R> struct total<A, R...> { enum { size = vector_of<A>::size + total<R...>::size }; };
}  // namespace detail

template <class T, int N, int A, int B, int C, int D> struct swizzle {
  T storage[N == 3 ? 4 : N];
  enum { size = C < 0 ? 2 : D < 0 ? 3 : 4 };
  METAL_FUNC operator vec<T, size>() const {
    vec<T, size> result;
    result.data[0] = storage[A];
    result.data[1] = storage[B];
    if constexpr (C >= 0) result.data[2] = storage[C];
    if constexpr (D >= 0) result.data[3] = storage[D];
    return result;
  }
  METAL_FUNC void put(vec<T, size> value) {
    static_assert(A != B && A != C && A != D && B != C && B != D && (C < 0 || C != D), "a component is assigned twice");
    storage[A] = value.data[0];
    storage[B] = value.data[1];
    if constexpr (C >= 0) storage[C] = value.data[2];
    if constexpr (D >= 0) storage[D] = value.data[3];
  }
  METAL_FUNC void operator=(const swizzle& other) { put((vec<T, size>)other); }
  METAL_FUNC void operator=(const vec<T, size>& other) { put(other); }
  METAL_FUNC T operator[](uint i) const { return ((vec<T, size>)*this).data[i]; }
};


// OPENMPS_SWIZZLES_N: the swizzles of N components as members; written by crates/emulator/src/prelude.rs.
// Copies components. What is counted is one access of the whole vector, as a GPU makes it.
#if EMULATOR_COUNTED
#define OPENMPS_COPY(STORED)                                                                                                                \
  if constexpr (is_same_v<T, bool>) {                                                                                                       \
    for (int i = 0; i < STORED; i++) data[i] = other.data[i];                                                                               \
  } else if (__builtin_is_constant_evaluated()) {                                                                                           \
    for (int i = 0; i < STORED; i++) data[i] = other.data[i];                                                                               \
  } else {                                                                                                                                  \
    typedef T whole __attribute__((ext_vector_type(STORED)));                                                                               \
    *(whole*)data = *(const whole*)other.data;                                                                 \
  }
#else
#define OPENMPS_COPY(STORED) \
  for (int i = 0; i < STORED; i++) data[i] = other.data[i];
#endif
#define OPENMPS_VECTOR(N, STORED, NAMES, COLOURS)                                                                                           \
  template <class T> struct alignas(sizeof(T) * STORED) vec<T, N> {                                                                         \
    union {                                                                                                                                 \
      T data[STORED];                                                                                                                       \
      struct { T NAMES; };                                                                                                                  \
      struct { T COLOURS; };                                                                                                                \
      OPENMPS_SWIZZLES_##N                                                                                                                  \
    };                                                                                                                                      \
    vec() = default;                                                                                                                        \
    METAL_FUNC constexpr vec(const vec& other) : data{} { OPENMPS_COPY(STORED) }                                                           \
    METAL_FUNC void operator=(const vec& other) { OPENMPS_COPY(STORED) }                                                                   \
    METAL_FUNC void operator=(const vec& other) volatile { for (int i = 0; i < STORED; i++) data[i] = other.data[i]; }                                                          \
    template <class S, class = enable_if_t<is_arithmetic_v<S>>> METAL_FUNC constexpr vec(S s) : data{} {                                    \
      for (int i = 0; i < STORED; i++) data[i] = (T)s;                                                                                      \
    }                                                                                                                                       \
    template <class A, class = enable_if_t<detail::vector_of<A>::is_vector && detail::vector_of<A>::size == N>, class = void>             \
    explicit METAL_FUNC constexpr vec(const A& a) : data{} {                                                                                \
      detail::vector_t<A> from = a;                                                                                                        \
      for (int i = 0; i < N; i++) data[i] = (T)from.data[i];                                                                                \
      if (N < STORED) data[STORED - 1] = (T)0;                                                                                              \
    }                                                                                                                                       \
    template <class A, class B, class... R, class = enable_if_t<detail::total<A, B, R...>::size == N>>                                     \
    METAL_FUNC constexpr vec(const A& a, const B& b, const R&... rest) : data{} {                                                           \
      int at = 0;                                                                                                                           \
      append(at, a), append(at, b);                                                                                                         \
      (append(at, rest), ...);                                                                                                              \
      if (N < STORED) data[STORED - 1] = (T)0;                                                                                              \
    }                                                                                                                                       \
    METAL_FUNC T& operator[](uint i) { return data[i]; }                                                                                    \
    METAL_FUNC thread T& operator[](uint i) thread { return data[i]; }                                                                      \
    METAL_FUNC threadgroup T& operator[](uint i) threadgroup { return data[i]; }                                                            \
    METAL_FUNC T operator[](uint i) const { return data[i]; }                                                                               \
                                                                                                                                            \
   private:                                                                                                                                 \
    template <class A> METAL_FUNC constexpr void append(thread int& at, const A& a) {                                                       \
      if constexpr (detail::vector_of<A>::is_vector) {                                                                                     \
        detail::vector_t<A> from = a;                                                                                                      \
        for (int i = 0; i < detail::vector_of<A>::size; i++) data[at++] = (T)from.data[i];                                                 \
      } else {                                                                                                                              \
        data[at++] = (T)a;                                                                                                                  \
      }                                                                                                                                     \
    }                                                                                                                                       \
  };
#define OPENMPS_LIST2(a, b) a, b
#define OPENMPS_LIST3(a, b, c) a, b, c
#define OPENMPS_LIST4(a, b, c, d) a, b, c, d
OPENMPS_VECTOR(2, 2, OPENMPS_LIST2(x, y), OPENMPS_LIST2(r, g))
OPENMPS_VECTOR(3, 4, OPENMPS_LIST3(x, y, z), OPENMPS_LIST3(r, g, b))
OPENMPS_VECTOR(4, 4, OPENMPS_LIST4(x, y, z, w), OPENMPS_LIST4(r, g, b, a))

// Without padding, aligned like one component.
#define OPENMPS_PACKED(N, NAMES, COLOURS)                                                                                                   \
  template <class T> struct packed_vec<T, N> {                                                                                              \
    union {                                                                                                                                 \
      T data[N];                                                                                                                            \
      struct { T NAMES; };                                                                                                                  \
      struct { T COLOURS; };                                                                                                                \
    };                                                                                                                                      \
    packed_vec() = default;                                                                                                                 \
    METAL_FUNC packed_vec(vec<T, N> from) { for (int i = 0; i < N; i++) data[i] = from.data[i]; }                                           \
    template <class A, class B, class... R> METAL_FUNC packed_vec(A a, B b, R... rest) : packed_vec(vec<T, N>(a, b, rest...)) {}            \
    METAL_FUNC operator vec<T, N>() const {                                                                                                 \
      vec<T, N> result((T)0);                                                                                                               \
      for (int i = 0; i < N; i++) result.data[i] = data[i];                                                                                 \
      return result;                                                                                                                        \
    }                                                                                                                                       \
    METAL_FUNC T& operator[](uint i) { return data[i]; }                                                                                    \
    METAL_FUNC T operator[](uint i) const { return data[i]; }                                                                               \
  };
OPENMPS_PACKED(2, OPENMPS_LIST2(x, y), OPENMPS_LIST2(r, g))
OPENMPS_PACKED(3, OPENMPS_LIST3(x, y, z), OPENMPS_LIST3(r, g, b))
OPENMPS_PACKED(4, OPENMPS_LIST4(x, y, z, w), OPENMPS_LIST4(r, g, b, a))
#define OPENMPS_BINARY(OP)                                                                                                                  \
  template <class A, class B, class V = detail::common_t<A, B>> METAL_FUNC V operator OP(const A& a, const B& b) {                         \
    V x = (V)a, y = (V)b;                                                                                                                   \
    for (int i = 0; i < detail::vector_of<V>::size; i++) x.data[i] = x.data[i] OP y.data[i];                                               \
    return x;                                                                                                                               \
  }                                                                                                                                         \
  template <class A, class B, class V = detail::common_t<A, B>> METAL_FUNC A& operator OP##=(A & a, const B& b) {                          \
    a = (V)a OP(V) b;                                                                                                                       \
    return a;                                                                                                                               \
  }
OPENMPS_BINARY(+) OPENMPS_BINARY(-) OPENMPS_BINARY(*) OPENMPS_BINARY(/) OPENMPS_BINARY(%)
OPENMPS_BINARY(&) OPENMPS_BINARY(|) OPENMPS_BINARY(^) OPENMPS_BINARY(<<) OPENMPS_BINARY(>>)
#define OPENMPS_COMPARE(OP)                                                                                                                 \
  template <class A, class B, class V = detail::common_t<A, B>>                                                                            \
  METAL_FUNC vec<bool, detail::vector_of<V>::size> operator OP(const A& a, const B& b) {                                                   \
    V x = (V)a, y = (V)b;                                                                                                                   \
    vec<bool, detail::vector_of<V>::size> result(false);                                                                                   \
    for (int i = 0; i < detail::vector_of<V>::size; i++) result.data[i] = x.data[i] OP y.data[i];                                          \
    return result;                                                                                                                          \
  }
OPENMPS_COMPARE(==) OPENMPS_COMPARE(!=) OPENMPS_COMPARE(<) OPENMPS_COMPARE(<=) OPENMPS_COMPARE(>) OPENMPS_COMPARE(>=)
OPENMPS_COMPARE(&&) OPENMPS_COMPARE(||)
#define OPENMPS_PREFIX(OP)                                                                                                                  \
  template <class A, class V = detail::vector_t<A>> METAL_FUNC V operator OP(const A& a) {                                                 \
    V x = a;                                                                                                                                \
    for (int i = 0; i < detail::vector_of<V>::size; i++) x.data[i] = OP x.data[i];                                                         \
    return x;                                                                                                                               \
  }
OPENMPS_PREFIX(-) OPENMPS_PREFIX(+) OPENMPS_PREFIX(~) OPENMPS_PREFIX(!)

#define OPENMPS_NAMES(T)                                                                                                                    \
  typedef vec<T, 2> T##2;                                                                                                                   \
  typedef vec<T, 3> T##3;                                                                                                                   \
  typedef vec<T, 4> T##4;                                                                                                                   \
  typedef packed_vec<T, 2> packed_##T##2;                                                                                                   \
  typedef packed_vec<T, 3> packed_##T##3;                                                                                                   \
  typedef packed_vec<T, 4> packed_##T##4;
#define OPENMPS_EVERY_NAME                                                                                                                  \
  OPENMPS_NAMES(bool) OPENMPS_NAMES(char) OPENMPS_NAMES(uchar) OPENMPS_NAMES(short) OPENMPS_NAMES(ushort) OPENMPS_NAMES(int)                \
  OPENMPS_NAMES(uint) OPENMPS_NAMES(long) OPENMPS_NAMES(ulong) OPENMPS_NAMES(half) OPENMPS_NAMES(bfloat) OPENMPS_NAMES(float)
OPENMPS_EVERY_NAME
}  // namespace metal
// Vector names need no namespace in this language.
using metal::vec;
using metal::packed_vec;
OPENMPS_EVERY_NAME

namespace metal {
template <class T> struct vec_elements { enum { value = detail::vector_of<T>::size }; };
// An array that is a value.
template <class T, size_t N> struct array {
  T elements[N];
  METAL_FUNC T& operator[](size_t i) { return elements[i]; }
  METAL_FUNC const T& operator[](size_t i) const { return elements[i]; }
  static constexpr METAL_FUNC size_t size() { return N; }
};
}  // namespace metal

// The same bits as another type of the same size.
template <class T, class S> METAL_FUNC T as_type(S from) {
  static_assert(sizeof(T) == sizeof(S), "as_type: the types differ in size");
  T result;
  __builtin_memcpy((thread void*)&result, (const thread void*)&from, sizeof(T));
  return result;
}
namespace metal { using ::as_type; }
