// Atomic types and functions. In device memory they are atomic between operating system threads, which run threadgroups at the same time;
// threads of one threadgroup never run at the same time, so in threadgroup memory plain reads and writes are atomic.
namespace metal {
// Only the relaxed order exists for most of Metal's atomic functions; it is the only one here.
enum openmps_memory_order { openmps_memory_order_relaxed };
// The other one that fences have, from MSL 3.2 on.
enum openmps_fence_order { openmps_memory_order_seq_cst };
template <class T> struct openmps_atomic { T value; };
namespace detail {
// Float lives in device memory only, and ulong has nothing but min and max.
template <class T> inline constexpr bool threadgroup_atomic = is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, bool>;
template <class T> inline constexpr bool device_atomic = threadgroup_atomic<T> || is_same_v<T, float>;
template <class T> struct given { typedef T type; };
template <class T> using given_t = typename given<T>::type;
template <class T> struct bits_of { typedef T type; };
template <> struct bits_of<float> { typedef uint type; };
template <class T> using bits_t = typename bits_of<T>::type;
}  // namespace detail
#define OPENMPS_DEVICE_ATOMIC template <class T, class = enable_if_t<detail::device_atomic<T>>> METAL_FUNC
#define OPENMPS_THREADGROUP_ATOMIC template <class T, class = enable_if_t<detail::threadgroup_atomic<T>>> METAL_FUNC
#define OPENMPS_CHANGE(NAME, TYPES, EXPRESSION)                                                                                             \
  template <class T, class = enable_if_t<TYPES>>                                                                                            \
  METAL_FUNC T atomic_fetch_##NAME##_explicit(volatile device openmps_atomic<T>* at, detail::given_t<T> operand, openmps_memory_order) {    \
    volatile device detail::bits_t<T>* bits = (volatile device detail::bits_t<T>*)&at->value;                                               \
    detail::bits_t<T> before = __atomic_load_n(bits, __ATOMIC_RELAXED), after;                                                              \
    T old;                                                                                                                                  \
    do {                                                                                                                                    \
      old = as_type<T>(before);                                                                                                             \
      after = as_type<detail::bits_t<T>>((T)(EXPRESSION));                                                                                  \
    } while (!__atomic_compare_exchange_n(bits, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));                                 \
    return old;                                                                                                                             \
  }                                                                                                                                         \
  template <class T, class = enable_if_t<OPENMPS_WHOLE>>                                                                                    \
  METAL_FUNC T atomic_fetch_##NAME##_explicit(volatile threadgroup openmps_atomic<T>* at, detail::given_t<T> operand, openmps_memory_order) { \
    T old = at->value;                                                                                                                      \
    at->value = (T)(EXPRESSION);                                                                                                            \
    return old;                                                                                                                             \
  }
#define OPENMPS_WHOLE (is_same_v<T, int> || is_same_v<T, uint>)
// Of float, in device memory, only add and sub.
OPENMPS_CHANGE(add, (OPENMPS_WHOLE || is_same_v<T, float>), old + operand)
OPENMPS_CHANGE(sub, (OPENMPS_WHOLE || is_same_v<T, float>), old - operand)
OPENMPS_CHANGE(min, OPENMPS_WHOLE, operand < old ? operand : old)
OPENMPS_CHANGE(max, OPENMPS_WHOLE, old < operand ? operand : old)
OPENMPS_CHANGE(and, OPENMPS_WHOLE, old & operand)
OPENMPS_CHANGE(or, OPENMPS_WHOLE, old | operand)
OPENMPS_CHANGE(xor, OPENMPS_WHOLE, old ^ operand)

OPENMPS_DEVICE_ATOMIC T atomic_load_explicit(const volatile device openmps_atomic<T>* at, openmps_memory_order) {
  return as_type<T>(__atomic_load_n((const volatile device detail::bits_t<T>*)&at->value, __ATOMIC_RELAXED));
}
OPENMPS_THREADGROUP_ATOMIC T atomic_load_explicit(const volatile threadgroup openmps_atomic<T>* at, openmps_memory_order) { return at->value; }
OPENMPS_DEVICE_ATOMIC void atomic_store_explicit(volatile device openmps_atomic<T>* at, detail::given_t<T> value, openmps_memory_order) {
  __atomic_store_n((volatile device detail::bits_t<T>*)&at->value, as_type<detail::bits_t<T>>(value), __ATOMIC_RELAXED);
}
OPENMPS_THREADGROUP_ATOMIC void atomic_store_explicit(volatile threadgroup openmps_atomic<T>* at, detail::given_t<T> value, openmps_memory_order) {
  at->value = value;
}
OPENMPS_DEVICE_ATOMIC T atomic_exchange_explicit(volatile device openmps_atomic<T>* at, detail::given_t<T> value, openmps_memory_order) {
  return as_type<T>(__atomic_exchange_n((volatile device detail::bits_t<T>*)&at->value, as_type<detail::bits_t<T>>(value), __ATOMIC_RELAXED));
}
OPENMPS_THREADGROUP_ATOMIC T atomic_exchange_explicit(volatile threadgroup openmps_atomic<T>* at, detail::given_t<T> value, openmps_memory_order) {
  T old = at->value;
  at->value = value;
  return old;
}
OPENMPS_DEVICE_ATOMIC bool atomic_compare_exchange_weak_explicit(volatile device openmps_atomic<T>* at, thread T* expected, detail::given_t<T> desired,
                                                          openmps_memory_order, openmps_memory_order) {
  detail::bits_t<T> before = as_type<detail::bits_t<T>>(*expected);
  bool swapped = __atomic_compare_exchange_n((volatile device detail::bits_t<T>*)&at->value, &before, as_type<detail::bits_t<T>>(desired), true,
                                             __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  *expected = as_type<T>(before);
  return swapped;
}
OPENMPS_THREADGROUP_ATOMIC bool atomic_compare_exchange_weak_explicit(volatile threadgroup openmps_atomic<T>* at, thread T* expected, detail::given_t<T> desired,
                                                          openmps_memory_order, openmps_memory_order) {
  T old = at->value;
  bool same = as_type<detail::bits_t<T>>(old) == as_type<detail::bits_t<T>>(*expected);
  if (same) at->value = desired;
  *expected = old;
  return same;
}
// The 64-bit functions, which have no result.
METAL_FUNC void atomic_max_explicit(volatile device openmps_atomic<ulong>* at, ulong operand, openmps_memory_order) {
  __atomic_fetch_max((volatile device ulong*)&at->value, operand, __ATOMIC_RELAXED);
}
METAL_FUNC void atomic_min_explicit(volatile device openmps_atomic<ulong>* at, ulong operand, openmps_memory_order) {
  __atomic_fetch_min((volatile device ulong*)&at->value, operand, __ATOMIC_RELAXED);
}
typedef openmps_atomic<int> openmps_atomic_int;
typedef openmps_atomic<uint> openmps_atomic_uint;
typedef openmps_atomic<bool> openmps_atomic_bool;
typedef openmps_atomic<float> openmps_atomic_float;
typedef openmps_atomic<ulong> openmps_atomic_ulong;
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
METAL_FUNC void atomic_thread_fence(mem_flags, openmps_memory_order) {}
METAL_FUNC void atomic_thread_fence(mem_flags, openmps_fence_order, thread_scope = thread_scope_device) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
}  // namespace metal
// OpenCL owns these names.
#define memory_order openmps_memory_order
#define memory_order_relaxed openmps_memory_order_relaxed
#define memory_order_seq_cst openmps_memory_order_seq_cst
#define atomic openmps_atomic
#define atomic_int openmps_atomic_int
#define atomic_uint openmps_atomic_uint
#define atomic_bool openmps_atomic_bool
#define atomic_float openmps_atomic_float
#define atomic_ulong openmps_atomic_ulong
