// How a kernel's parameters are filled: objects that convert to whatever type the parameter has, where that is allowed for its attribute.
namespace openmps {
struct buffer_argument {
  ulong address;
  template <class T> METAL_FUNC operator device T*() const { return (device T*)address; }
  template <class T> METAL_FUNC operator device T&() const { return *(device T*)address; }
  template <class T> METAL_FUNC operator constant T*() const { return (constant T*)address; }
  template <class T> METAL_FUNC operator constant T&() const { return *(constant T*)address; }
};
struct threadgroup_argument {
  ulong address;
  template <class T> METAL_FUNC operator threadgroup T*() const { return (threadgroup T*)address; }
  template <class T> METAL_FUNC operator threadgroup T&() const { return *(threadgroup T*)address; }
};
// Converts to these types exactly: a parameter of another type has no conversion.
template <class T, class... A> using one_of = metal::enable_if_t<(metal::is_same_v<T, A> || ...)>;
struct position {
  uint x, y, z;
  template <class T, class = one_of<T, uint, ushort>> METAL_FUNC operator T() const { return (T)x; }
  template <class T, int N, class = one_of<T, uint, ushort>> METAL_FUNC operator metal::vec<T, N>() const {
    if constexpr (N == 2) return metal::vec<T, N>(x, y);
    else return metal::vec<T, N>(x, y, z);
  }
};
struct number {
  uint value;
  template <class T, class = one_of<T, uint, ushort>> METAL_FUNC operator T() const { return (T)value; }
};
// Size and alignment of what a parameter of a function type points to.
template <class T> struct extent { enum { size = sizeof(T), alignment = alignof(T) }; };
template <> struct extent<void> { enum { size = 1, alignment = 1 }; };
template <class T> struct pointee : extent<void> {};
template <class T> struct pointee<T*> : extent<metal::remove_space_t<T>> {};
template <class T> struct pointee<T&> : extent<metal::remove_space_t<T>> {};
template <uint I, class F> struct parameter;
template <uint I, class P, class... R> struct parameter<I, void(P, R...)> : parameter<I - 1, void(R...)> {};
template <class P, class... R> struct parameter<0, void(P, R...)> : pointee<P> {};
METAL_FUNC position of(__global const uint* three) { return {three[0], three[1], three[2]}; }
METAL_FUNC position thread_position_in_threadgroup(uint thread_index) { return of(openmps_frame.positions + 4 * thread_index); }
METAL_FUNC position thread_position_in_grid(uint thread_index) {
  position p = thread_position_in_threadgroup(thread_index);
  return {p.x + openmps_frame.origin[0], p.y + openmps_frame.origin[1], p.z + openmps_frame.origin[2]};
}
METAL_FUNC position threadgroup_position_in_grid(uint) { return of(openmps_frame.threadgroup_position_in_grid); }
METAL_FUNC position threads_per_threadgroup(uint) { return of(openmps_frame.threads_per_threadgroup); }
METAL_FUNC position dispatch_threads_per_threadgroup(uint) { return of(openmps_frame.dispatch_threads_per_threadgroup); }
METAL_FUNC position threadgroups_per_grid(uint) { return of(openmps_frame.threadgroups_per_grid); }
METAL_FUNC position threads_per_grid(uint) { return of(openmps_frame.threads_per_grid); }
METAL_FUNC position grid_origin(uint) { return {0, 0, 0}; }
METAL_FUNC number thread_index_in_threadgroup(uint thread_index) { return {thread_index}; }
METAL_FUNC number thread_index_in_simdgroup(uint thread_index) { return {thread_index & 31}; }
METAL_FUNC number simdgroup_index_in_threadgroup(uint thread_index) { return {thread_index / 32}; }
METAL_FUNC number simdgroups_per_threadgroup(uint) { return {(openmps_frame.threads + 31) / 32}; }
METAL_FUNC number dispatch_simdgroups_per_threadgroup(uint) {
  return {(openmps_frame.dispatch_threads_per_threadgroup[0] * openmps_frame.dispatch_threads_per_threadgroup[1] *
               openmps_frame.dispatch_threads_per_threadgroup[2] + 31) / 32};
}
METAL_FUNC number threads_per_simdgroup(uint) { return {32}; }
METAL_FUNC number thread_execution_width(uint) { return {32}; }
METAL_FUNC number quadgroup_index_in_threadgroup(uint thread_index) { return {thread_index / 4}; }
METAL_FUNC number thread_index_in_quadgroup(uint thread_index) { return {thread_index & 3}; }
// Takes the next thread that has not started.
METAL_FUNC bool start(__private uint& thread_index) {
  if (openmps_frame.next == openmps_frame.end) return false;
  thread_index = openmps_frame.order[openmps_frame.next++];
  openmps_frame.running = thread_index;
  return true;
}
}  // namespace openmps

// What the compiler calls to round float to bfloat and, on processors without the instructions, to and from half.
extern "C" {
bfloat __truncsfbf2(float x) {
  uint u = as_type<uint>(x);
  ushort r = (u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return as_type<bfloat>(r);
}
}
