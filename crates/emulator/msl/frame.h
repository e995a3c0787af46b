// What the host and the compiled kernel share: the frame of the threadgroup that runs. Every operating system thread loads its own
// image of the library, so plain globals hold it. crates/emulator/src/frame.rs mirrors the layout.
namespace openmps {
enum { stop_barrier = 0, stop_simdgroup_barrier = 1, stop_collective = 2, stop_everyone = 3 };
struct frame {
  ulong buffers[31];
  ulong threadgroup_memory[31];
  uint threads_per_grid[3];
  uint threadgroups_per_grid[3];
  uint threads_per_threadgroup[3];          // of this threadgroup, which may be cut off by the grid's edge
  uint dispatch_threads_per_threadgroup[3];  // of every whole threadgroup
  uint threadgroup_position_in_grid[3];
  uint origin[3];   // position in the grid of the threadgroup's first thread
  uint threads;     // in this threadgroup
  uint running;     // index in its threadgroup of the thread that runs
  uint next, end;   // the part of `order` that has not started
  uint active;      // lanes that took part in the last collective operation
  uint padding;
  __global const uint* order;      // indices of threads
  __global const uint* positions;  // four numbers a thread, of which three are its position in the threadgroup
  ulong stop;                      // address of the host's function, see below
  ulong access;                    // address of the host's function for accesses of counted texts, msl/count.h
  ulong fault;                     // address of what is wrong, as text, where a thread ends itself
  alignas(64) uchar deposits[32][32];  // what the lanes of the running simdgroup brought to a collective operation
  alignas(64) uchar results[32][32];   // what they take from it
};
}  // namespace openmps
extern "C" {
__attribute__((visibility("default"))) __global openmps::frame openmps_frame;
}
namespace openmps {
// Lets other threads run until the running one may go on: at a barrier, or when `resolve` has been called for all lanes that came.
METAL_FUNC void stop(uint kind, uint line, ulong site, void (*resolve)(uint)) {
  ((void (*)(uint, uint, ulong, ulong))openmps_frame.stop)(kind, line, site, (ulong)resolve);
}
METAL_FUNC uint lane() { return openmps_frame.running & 31; }
// The address of this place in the code, which orders the places at which lanes wait for each other.
METAL_FUNC ulong here() {
  ulong address;
#if defined(__x86_64__)
  asm volatile("leaq 0(%%rip), %0" : "=r"(address));
#else
  asm volatile("adr %0, ." : "=r"(address));
#endif
  return address;
}
}  // namespace openmps

namespace openmps {
// Memory of one threadgroup variable of one kernel, found by its name (crates/emulator/src/image.rs). A frame's image has one threadgroup
// at a time.
template <class T, class KERNEL, int NUMBER> struct memory_of {
  alignas(T) alignas(16) static __global uchar bytes[sizeof(T)];
};
template <class T, class KERNEL, int NUMBER> alignas(T) alignas(16) __global uchar memory_of<T, KERNEL, NUMBER>::bytes[sizeof(T)];
template <class T, class KERNEL, int NUMBER> METAL_FUNC threadgroup T& memory() {
  return *(threadgroup T*)(ulong)memory_of<T, KERNEL, NUMBER>::bytes;
}
}  // namespace openmps

namespace metal {
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8 };
METAL_FUNC constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }
METAL_FUNC void threadgroup_barrier(mem_flags, uint line = __builtin_LINE()) {
  openmps::stop(openmps::stop_barrier, line, openmps::here(), nullptr);
}
METAL_FUNC void simdgroup_barrier(mem_flags, uint line = __builtin_LINE()) {
  openmps::stop(openmps::stop_simdgroup_barrier, line, openmps::here(), nullptr);
}
}  // namespace metal
