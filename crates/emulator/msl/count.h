// What a counted text tells the host: each access to memory, with the place in the code that makes it. clang calls the functions below before
// loads and stores (-fsanitize-coverage), and instead of copies (-fsanitize=thread, of which nothing else is used); matrices are said by their own functions, one access of two neighbours a lane.
#if EMULATOR_COUNTED
#define OPENMPS_UNSEEN __attribute__((noinline, no_sanitize("coverage"), no_sanitize("thread")))
namespace openmps {
enum { access_load = 0, access_store = 1, access_matrix = 2, block_operations = 4, block_registers = 8 };
METAL_FUNC void access(ulong address, uint bytes, uint kind, ulong site) {
  ((void (*)(ulong, uint, uint, ulong))openmps_frame.access)(address, bytes, kind, site);
}
// Reads and writes what was said already.
template <class T, class P> OPENMPS_UNSEEN T quiet_load(P from) { return *from; }
template <class T, class P> OPENMPS_UNSEEN void quiet_store(P to, T value) { *to = value; }
OPENMPS_UNSEEN void matrix_access(ulong first, ulong second, uint bytes, uint kind) {
  ulong site = (ulong)__builtin_return_address(0);
  if (second == first + bytes) return access(first, 2 * bytes, kind | access_matrix, site);
  access(first, bytes, kind | access_matrix, site);
  access(second, bytes, kind, site + 1);
}
}  // namespace openmps
// What blocks say of themselves (crates/emulator/src/count/operations.rs), in place of the call that clang puts there.
extern "C" {
// Initialisers run before the host has said where it listens.
OPENMPS_UNSEEN void openmps_operations(uint integers, uint floats) {
  if (openmps_frame.access) openmps::access(integers, floats, openmps::block_operations, 0);
}
OPENMPS_UNSEEN void openmps_registers(uint count) {
  if (openmps_frame.access) openmps::access(count, 0, openmps::block_registers, 0);
}
}
#define OPENMPS_ACCESS(BYTES)                                                                                                      \
  OPENMPS_UNSEEN void __sanitizer_cov_load##BYTES(ulong address) {                            \
    openmps::access(address, BYTES, openmps::access_load, (ulong)__builtin_return_address(0));                                    \
  }                                                                                                                                \
  OPENMPS_UNSEEN void __sanitizer_cov_store##BYTES(ulong address) {                           \
    openmps::access(address, BYTES, openmps::access_store, (ulong)__builtin_return_address(0));                                   \
  }
extern "C" { OPENMPS_ACCESS(1) OPENMPS_ACCESS(2) OPENMPS_ACCESS(4) OPENMPS_ACCESS(8) OPENMPS_ACCESS(16) }
// Copies of structures, in pieces of up to 16 bytes as a GPU makes them.
extern "C" {
void __tsan_init() {}
OPENMPS_UNSEEN void* __tsan_memcpy(uchar* to, const uchar* from, ulong bytes) {
  ulong site = (ulong)__builtin_return_address(0);
  for (ulong at = 0; at < bytes; at += 16) {
    uint piece = bytes - at < 16 ? (uint)(bytes - at) : 16;
    openmps::access((ulong)from + at, piece, openmps::access_load, site + at / 16);
    openmps::access((ulong)to + at, piece, openmps::access_store, site + at / 16);
  }
  __builtin_memmove(to, from, bytes);
  return to;
}
OPENMPS_UNSEEN void* __tsan_memmove(uchar* to, const uchar* from, ulong bytes) { return __tsan_memcpy(to, from, bytes); }
OPENMPS_UNSEEN void* __tsan_memset(uchar* to, int value, ulong bytes) {
  ulong site = (ulong)__builtin_return_address(0);
  for (ulong at = 0; at < bytes; at += 16)
    openmps::access((ulong)to + at, bytes - at < 16 ? (uint)(bytes - at) : 16, openmps::access_store, site + at / 16);
  __builtin_memset(to, value, bytes);
  return to;
}
}
#define OPENMPS_MATRIX_LOAD(T, AT) openmps::quiet_load<T>(AT)
#define OPENMPS_MATRIX_STORE(T, AT, VALUE) openmps::quiet_store<T>(AT, VALUE)
#define OPENMPS_MATRIX_ACCESS(FIRST, SECOND, T, KIND) openmps::matrix_access((ulong)(FIRST), (ulong)(SECOND), sizeof(T), openmps::KIND)
#else
#define OPENMPS_UNSEEN
#define OPENMPS_MATRIX_LOAD(T, AT) *(AT)
#define OPENMPS_MATRIX_STORE(T, AT, VALUE) *(AT) = VALUE
#define OPENMPS_MATRIX_ACCESS(FIRST, SECOND, T, KIND)
#endif
