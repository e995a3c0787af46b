// 8x8 matrices spread over a simdgroup: each lane holds two neighbours of a row.
namespace metal {
template <class T, int ROWS, int COLUMNS> struct simdgroup_matrix {
  static_assert(ROWS == 8 && COLUMNS == 8, "simdgroup matrices are 8x8");
  static_assert(is_floating_point_v<T>, "simdgroup matrices are of float, half or bfloat");
  typedef vec<T, 2> storage_type;
  storage_type fragment;
  simdgroup_matrix() = default;
  METAL_FUNC simdgroup_matrix(T diagonal);
  METAL_FUNC thread storage_type& thread_elements() thread { return fragment; }
  METAL_FUNC const thread storage_type& thread_elements() const thread { return fragment; }
};
namespace detail {
// Where a lane's two elements lie.
METAL_FUNC uint row(uint lane) { return (lane / 4 & 4) + (lane / 2 & 3); }
METAL_FUNC uint column(uint lane) { return (lane / 4 & 2) * 2 + (lane & 1) * 2; }
template <class D, class A, class B, class C> struct product { vec<A, 2> a; vec<B, 2> b; vec<C, 2> c; };
typedef float float8 __attribute__((ext_vector_type(8)));
// Sums in float, in the order of k; hardware's order is not known.
template <class D, class A, class B, class C> void multiply(uint) {
  float a[8][8];
  float8 b[8], c[8];
  for (uint i = 0; i < 32; i++) {
    product<D, A, B, C> from = openmps::deposited<product<D, A, B, C>>(i);
    for (uint k = 0; k < 2; k++) {
      a[row(i)][column(i) + k] = (float)from.a.data[k];
      b[row(i)][column(i) + k] = (float)from.b.data[k];
      c[row(i)][column(i) + k] = (float)from.c.data[k];
    }
  }
  for (uint i = 0; i < 8; i++)
    for (uint k = 0; k < 8; k++) c[i] += a[i][k] * b[k];
  for (uint i = 0; i < 32; i++)
    for (uint k = 0; k < 2; k++) openmps::result<vec<D, 2>>(i).data[k] = (D)c[row(i)][column(i) + k];
}
}  // namespace detail
template <class T, int ROWS, int COLUMNS> METAL_FUNC simdgroup_matrix<T, ROWS, COLUMNS>::simdgroup_matrix(T diagonal) {
  uint lane = openmps::lane(), row = detail::row(lane), column = detail::column(lane);
  for (uint k = 0; k < 2; k++) fragment.data[k] = row == column + k ? diagonal : (T)0;
}
template <class T, int ROWS, int COLUMNS = ROWS> METAL_FUNC simdgroup_matrix<T, ROWS, COLUMNS> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, ROWS, COLUMNS> matrix;
  matrix.fragment = vec<T, 2>(value);
  return matrix;
}
#define OPENMPS_MATRIX_MEMORY(SPACE)                                                                                                       \
  template <class T>                                                                                                                       \
  METAL_FUNC void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& matrix, const SPACE T* from, ulong elements_per_row = 8,                \
                                 vec<ulong, 2> origin = vec<ulong, 2>(0), bool transposed = false) {                                       \
    uint row = detail::row(openmps::lane()), column = detail::column(openmps::lane());                                                     \
    from += (origin.data[1] + (transposed ? column : row)) * elements_per_row + origin.data[0] + (transposed ? row : column);              \
    const SPACE T* second = from + (transposed ? elements_per_row : 1);                                                                    \
    OPENMPS_MATRIX_ACCESS(from, second, T, access_load);                                                                                   \
    matrix.fragment.data[0] = OPENMPS_MATRIX_LOAD(T, from);                                                                                \
    matrix.fragment.data[1] = OPENMPS_MATRIX_LOAD(T, second);                                                                              \
  }                                                                                                                                        \
  template <class T>                                                                                                                       \
  METAL_FUNC void simdgroup_store(simdgroup_matrix<T, 8, 8> matrix, SPACE T* to, ulong elements_per_row = 8,                               \
                                  vec<ulong, 2> origin = vec<ulong, 2>(0), bool transposed = false) {                                      \
    uint row = detail::row(openmps::lane()), column = detail::column(openmps::lane());                                                     \
    to += (origin.data[1] + (transposed ? column : row)) * elements_per_row + origin.data[0] + (transposed ? row : column);                \
    SPACE T* second = to + (transposed ? elements_per_row : 1);                                                                            \
    OPENMPS_MATRIX_ACCESS(to, second, T, access_store);                                                                                    \
    OPENMPS_MATRIX_STORE(T, to, matrix.fragment.data[0]);                                                                                  \
    OPENMPS_MATRIX_STORE(T, second, matrix.fragment.data[1]);                                                                              \
  }
OPENMPS_MATRIX_MEMORY(device) OPENMPS_MATRIX_MEMORY(threadgroup)
template <class D, class A, class B, class C>
METAL_FUNC void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                              simdgroup_matrix<C, 8, 8> c, uint line = __builtin_LINE()) {
  uint self = openmps::lane();
  detail::product<D, A, B, C> brought = {a.fragment, b.fragment, c.fragment};
  openmps::collect_everyone(brought, detail::multiply<D, A, B, C>, line);
  d.fragment = openmps::result<vec<D, 2>>(self);
}
template <class D, class A, class B>
METAL_FUNC void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                   uint line = __builtin_LINE()) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0), line);
}
template <class T> METAL_FUNC simdgroup_matrix<T, 8, 8> operator*(simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
}  // namespace metal
