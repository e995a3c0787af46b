// The words of the Metal Shading Language on top of clang's "C++ for OpenCL": address spaces and scalar types. `device` is a subset of
// OpenCL's global space and `constant` the whole of it, so both convert to references of member functions and stay distinct for overloads.
// device to constant would convert silently; crates/emulator/src/address_space.rs looks for it in the syntax tree.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_non_portable_kernel_param_types : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#define device __attribute__((opencl_global_device))
// MSL 3.2. Every thread here sees device memory at once.
#define coherent(scope)
#define constant const __global
#define threadgroup __local
#define thread __private
#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST __attribute__((const))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __bf16 bfloat;
typedef ulong size_t;
typedef long ptrdiff_t;
typedef ulong uintptr_t;
typedef long intptr_t;
typedef signed char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

namespace metal {
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t; using ::int64_t; using ::uint64_t;
using ::size_t; using ::ptrdiff_t;

template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class T, T V> struct integral_constant {
  typedef T value_type;
  typedef integral_constant type;
  static constexpr T value = V;
  METAL_FUNC constexpr operator T() const { return V; }
  METAL_FUNC constexpr T operator()() const { return V; }
};
template <bool V> using bool_constant = integral_constant<bool, V>;
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
// A type without its address space and const: what is deduced for a reference parameter has the argument's.
template <class T> struct remove_space { typedef T type; };
template <class T> struct remove_space<const T> : remove_space<T> {};
template <class T> struct remove_space<volatile T> : remove_space<T> {};
template <class T> struct remove_space<const volatile T> : remove_space<T> {};
#define OPENMPS_REMOVE_SPACE(SPACE) \
  template <class T> struct remove_space<SPACE T> : remove_space<T> {}; \
  template <class T> struct remove_space<const SPACE T> : remove_space<T> {}; \
  template <class T> struct remove_space<volatile SPACE T> : remove_space<T> {}; \
  template <class T> struct remove_space<const volatile SPACE T> : remove_space<T> {};
OPENMPS_REMOVE_SPACE(thread) OPENMPS_REMOVE_SPACE(threadgroup) OPENMPS_REMOVE_SPACE(device) OPENMPS_REMOVE_SPACE(__global) OPENMPS_REMOVE_SPACE(__generic)
template <class T> using remove_space_t = typename remove_space<T>::type;
// What Metal has of it: const stays.
template <class T> struct remove_addrspace { typedef T type; };
template <class T> struct remove_addrspace<thread T> { typedef T type; };
template <class T> struct remove_addrspace<threadgroup T> { typedef T type; };
template <class T> struct remove_addrspace<device T> { typedef T type; };
template <class T> struct remove_addrspace<__global T> { typedef T type; };
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv : remove_volatile<typename remove_const<T>::type> {};
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class A, class B> struct is_same { enum { value = 0 }; };
template <class A> struct is_same<A, A> { enum { value = 1 }; };
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T> inline constexpr bool is_floating_point_v = is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, half> || is_same_v<remove_cv_t<T>, bfloat>;
template <class T> inline constexpr bool is_signed_integer_v =
    is_same_v<remove_cv_t<T>, char> || is_same_v<remove_cv_t<T>, signed char> || is_same_v<remove_cv_t<T>, short> || is_same_v<remove_cv_t<T>, int> || is_same_v<remove_cv_t<T>, long> || is_same_v<remove_cv_t<T>, long long>;
template <class T> inline constexpr bool is_unsigned_integer_v = is_same_v<remove_cv_t<T>, uchar> || is_same_v<remove_cv_t<T>, ushort> || is_same_v<remove_cv_t<T>, uint> ||
    is_same_v<remove_cv_t<T>, ulong> || is_same_v<remove_cv_t<T>, unsigned long long>;
template <class T> inline constexpr bool is_integral_v = is_signed_integer_v<T> || is_unsigned_integer_v<T> || is_same_v<remove_cv_t<T>, bool>;
template <class T> inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T> inline constexpr bool is_signed_v = is_signed_integer_v<T> || is_floating_point_v<T>;
template <class T> inline constexpr bool is_unsigned_v = is_unsigned_integer_v<T> || is_same_v<T, bool>;
// Only a cast makes bfloat of another number, or half of bfloat.
template <class A, class B>
inline constexpr bool is_convertible_v = __is_convertible(A, B) && !(is_same_v<B, bfloat> && is_floating_point_v<A> && !is_same_v<A, bfloat>) &&
    !(is_same_v<A, bfloat> && is_same_v<B, half>);
template <class A, class B> struct is_convertible { enum { value = is_convertible_v<A, B> }; };
template <class T> struct is_floating_point { enum { value = is_floating_point_v<T> }; };
template <class T> struct is_integral { enum { value = is_integral_v<T> }; };
template <class T> struct is_arithmetic { enum { value = is_arithmetic_v<T> }; };
template <class T> struct make_unsigned { typedef T type; };
template <> struct make_unsigned<char> { typedef uchar type; };
template <> struct make_unsigned<signed char> { typedef uchar type; };
template <> struct make_unsigned<short> { typedef ushort type; };
template <> struct make_unsigned<int> { typedef uint type; };
template <> struct make_unsigned<long> { typedef ulong type; };
template <> struct make_unsigned<long long> { typedef unsigned long long type; };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;

// What every limit comes from: published kernels give types of their own limits by a specialization of this one.
template <class T> struct _numeric_limits_impl;
template <class T> struct numeric_limits : _numeric_limits_impl<T> {};
#define OPENMPS_INTEGER_LIMITS(T, LOW, HIGH, DIGITS)                                                                                        \
  template <> struct _numeric_limits_impl<T> {                                                                                                   \
    static constexpr METAL_FUNC T min() { return LOW; }                                                                                     \
    static constexpr METAL_FUNC T max() { return HIGH; }                                                                                    \
    static constexpr METAL_FUNC T lowest() { return LOW; }                                                                                  \
    static constexpr int digits = DIGITS;                                                                                                   \
  };
OPENMPS_INTEGER_LIMITS(bool, false, true, 1)
OPENMPS_INTEGER_LIMITS(char, -128, 127, 7)
OPENMPS_INTEGER_LIMITS(signed char, -128, 127, 7)
OPENMPS_INTEGER_LIMITS(uchar, 0, 255, 8)
OPENMPS_INTEGER_LIMITS(short, -32768, 32767, 15)
OPENMPS_INTEGER_LIMITS(ushort, 0, 65535, 16)
OPENMPS_INTEGER_LIMITS(int, -__INT_MAX__ - 1, __INT_MAX__, 31)
OPENMPS_INTEGER_LIMITS(uint, 0, ~0u, 32)
OPENMPS_INTEGER_LIMITS(long, -__LONG_MAX__ - 1, __LONG_MAX__, 63)
OPENMPS_INTEGER_LIMITS(ulong, 0, ~0ul, 64)
#define OPENMPS_FLOAT_LIMITS(T, MIN, MAX, EPSILON, DIGITS)                                                                                  \
  template <> struct _numeric_limits_impl<T> {                                                                                                   \
    static constexpr METAL_FUNC T min() { return (T)MIN; }                                                                                  \
    static constexpr METAL_FUNC T max() { return (T)MAX; }                                                                                  \
    static constexpr METAL_FUNC T lowest() { return (T)-MAX; }                                                                              \
    static constexpr METAL_FUNC T epsilon() { return (T)EPSILON; }                                                                          \
    static constexpr METAL_FUNC T infinity() { return (T)__builtin_inff(); }                                                                \
    static constexpr METAL_FUNC T quiet_NaN() { return (T)__builtin_nanf(""); }                                                             \
    static constexpr int digits = DIGITS;                                                                                                   \
  };
OPENMPS_FLOAT_LIMITS(float, 0x1p-126f, __FLT_MAX__, 0x1p-23f, 24)
OPENMPS_FLOAT_LIMITS(half, 0x1p-14f, 65504.0f, 0x1p-10f, 11)
OPENMPS_FLOAT_LIMITS(bfloat, 0x1p-126f, 0x1.fep127f, 0x1p-7f, 8)
}  // namespace metal

namespace openmps {
// What static_cast becomes (crates/emulator/src/rewrite.rs): clang converts neither of half and bfloat to the other.
template <class T, class S> METAL_FUNC constexpr T cast(S from) {
  if constexpr (metal::is_same_v<T, half> && metal::is_same_v<S, bfloat> || metal::is_same_v<T, bfloat> && metal::is_same_v<S, half>)
    return static_cast<T>(static_cast<float>(from));
  else return static_cast<T>(from);
}
// The value of an element of memory (crates/emulator/src/rewrite/expressions.rs).
template <class T> METAL_FUNC constexpr metal::remove_space_t<metal::remove_reference_t<T>> element(T&& from) { return from; }
}  // namespace openmps
// clang moves a pointer by an object that converts to a number with + and -, but not with these.
template <class P, class I, class = metal::enable_if_t<__is_pointer(P) && __is_class(I)>> METAL_FUNC thread P& operator+=(thread P& p, I by) {
  p = p + by;
  return p;
}
template <class P, class I, class = metal::enable_if_t<__is_pointer(P) && __is_class(I)>> METAL_FUNC thread P& operator-=(thread P& p, I by) {
  p = p - by;
  return p;
}

#define INFINITY __builtin_inff()
#define HUGE_VALF __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT __FLT_MAX__
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define HALF_MAX 65504.0h
#define HALF_EPSILON 0x1p-10h
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (~0u)
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f
#define M_PI_4_F 0.785398163397448309616f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN10_F 2.30258509299404568402f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f
