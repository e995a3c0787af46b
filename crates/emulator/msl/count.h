// What a counted text tells the host: each access to memory, with the place in the code that makes it. clang calls the functions below before
// loads and stores (-fsanitize-coverage); matrices are said by their own functions, one access of two neighbours a lane.
#if EMULATOR_COUNTED
namespace openmps {
enum { access_load = 0, access_store = 1, access_matrix = 2 };
METAL_FUNC void access(ulong address, uint bytes, uint kind, ulong site) {
  ((void (*)(ulong, uint, uint, ulong))openmps_frame.access)(address, bytes, kind, site);
}
// Reads and writes what was said already.
template <class T, class P> __attribute__((noinline, no_sanitize("coverage"))) T quiet_load(P from) { return *from; }
template <class T, class P> __attribute__((noinline, no_sanitize("coverage"))) void quiet_store(P to, T value) { *to = value; }
__attribute__((noinline, no_sanitize("coverage"))) void matrix_access(ulong first, ulong second, uint bytes, uint kind) {
  ulong site = (ulong)__builtin_return_address(0);
  if (second == first + bytes) return access(first, 2 * bytes, kind | access_matrix, site);
  access(first, bytes, kind | access_matrix, site);
  access(second, bytes, kind, site + 1);
}
}  // namespace openmps
#define OPENMPS_ACCESS(BYTES)                                                                                                      \
  __attribute__((noinline, no_sanitize("coverage"))) void __sanitizer_cov_load##BYTES(ulong address) {                            \
    openmps::access(address, BYTES, openmps::access_load, (ulong)__builtin_return_address(0));                                    \
  }                                                                                                                                \
  __attribute__((noinline, no_sanitize("coverage"))) void __sanitizer_cov_store##BYTES(ulong address) {                           \
    openmps::access(address, BYTES, openmps::access_store, (ulong)__builtin_return_address(0));                                   \
  }
extern "C" { OPENMPS_ACCESS(1) OPENMPS_ACCESS(2) OPENMPS_ACCESS(4) OPENMPS_ACCESS(8) OPENMPS_ACCESS(16) }
#define OPENMPS_MATRIX_LOAD(T, AT) openmps::quiet_load<T>(AT)
#define OPENMPS_MATRIX_STORE(T, AT, VALUE) openmps::quiet_store<T>(AT, VALUE)
#define OPENMPS_MATRIX_ACCESS(FIRST, SECOND, T, KIND) openmps::matrix_access((ulong)(FIRST), (ulong)(SECOND), sizeof(T), openmps::KIND)
#else
#define OPENMPS_MATRIX_LOAD(T, AT) *(AT)
#define OPENMPS_MATRIX_STORE(T, AT, VALUE) *(AT) = VALUE
#define OPENMPS_MATRIX_ACCESS(FIRST, SECOND, T, KIND)
#endif
