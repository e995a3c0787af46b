// Matrices of a thread: columns of two to four components, column by column.
namespace metal {
template <class T, int COLUMNS, int ROWS> struct matrix {
  vec<T, ROWS> columns[COLUMNS];
  matrix() = default;
  // One number fills the diagonal.
  explicit METAL_FUNC matrix(T diagonal) {
    for (int c = 0; c < COLUMNS; c++)
      for (int r = 0; r < ROWS; r++) columns[c].data[r] = c == r ? diagonal : (T)0;
  }
  template <class... V, class = enable_if_t<sizeof...(V) == COLUMNS && (is_same_v<V, vec<T, ROWS>> && ...)>>
  METAL_FUNC matrix(V... given) {
    int c = 0;
    ((columns[c++] = given), ...);
  }
  template <class S> explicit METAL_FUNC matrix(const matrix<S, COLUMNS, ROWS>& from) {
    for (int c = 0; c < COLUMNS; c++) columns[c] = vec<T, ROWS>(from.columns[c]);
  }
  METAL_FUNC vec<T, ROWS>& operator[](uint c) { return columns[c]; }
  METAL_FUNC thread vec<T, ROWS>& operator[](uint c) thread { return columns[c]; }
  METAL_FUNC threadgroup vec<T, ROWS>& operator[](uint c) threadgroup { return columns[c]; }
  METAL_FUNC vec<T, ROWS> operator[](uint c) const { return columns[c]; }
};
#define OPENMPS_MATRICES(OP)                                                                                          \
  template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator OP(matrix<T, C, R> a, matrix<T, C, R> b) {     \
    for (int c = 0; c < C; c++) a.columns[c] = a.columns[c] OP b.columns[c];                                          \
    return a;                                                                                                         \
  }
OPENMPS_MATRICES(+) OPENMPS_MATRICES(-)
template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator*(matrix<T, C, R> a, T by) {
  for (int c = 0; c < C; c++) a.columns[c] = a.columns[c] * by;
  return a;
}
template <class T, int C, int R> METAL_FUNC matrix<T, C, R> operator*(T by, matrix<T, C, R> a) { return a * by; }
template <class T, int C, int R> METAL_FUNC vec<T, R> operator*(matrix<T, C, R> a, vec<T, C> x) {
  vec<T, R> sum = a.columns[0] * x.data[0];
  for (int c = 1; c < C; c++) sum = sum + a.columns[c] * x.data[c];
  return sum;
}
template <class T, int C, int R> METAL_FUNC vec<T, C> operator*(vec<T, R> x, matrix<T, C, R> a) {
  vec<T, C> result((T)0);
  for (int c = 0; c < C; c++) result.data[c] = dot(x, a.columns[c]);
  return result;
}
template <class T, int C, int K, int R> METAL_FUNC matrix<T, C, R> operator*(matrix<T, K, R> a, matrix<T, C, K> b) {
  matrix<T, C, R> result;
  for (int c = 0; c < C; c++) result.columns[c] = a * b.columns[c];
  return result;
}
template <class T, int C, int R> METAL_FUNC matrix<T, R, C> transpose(matrix<T, C, R> a) {
  matrix<T, R, C> result;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++) result.columns[r].data[c] = a.columns[c].data[r];
  return result;
}
#define OPENMPS_MATRIX_NAMES(T)                                                                               \
  typedef matrix<T, 2, 2> T##2x2; typedef matrix<T, 2, 3> T##2x3; typedef matrix<T, 2, 4> T##2x4;             \
  typedef matrix<T, 3, 2> T##3x2; typedef matrix<T, 3, 3> T##3x3; typedef matrix<T, 3, 4> T##3x4;             \
  typedef matrix<T, 4, 2> T##4x2; typedef matrix<T, 4, 3> T##4x3; typedef matrix<T, 4, 4> T##4x4;
OPENMPS_MATRIX_NAMES(float) OPENMPS_MATRIX_NAMES(half)
}  // namespace metal
