// Tensors over memory that a kernel has, and products of them by whole simdgroups: of <metal_tensor> and of MetalPerformancePrimitives what
// texts of openmps use (MSL 4.0). How Apple spreads a product over the lanes is its own affair; here a column goes to neighbouring lanes, and
// the last element of every lane is none, so that a text that assumes a place, or that all elements are there, is wrong.
namespace openmps {
// Ends the thread with an error that says this.
__attribute__((noinline, noreturn)) OPENMPS_UNSEEN void refuse(const __constant char* what) {
  openmps_frame.fault = (ulong)what;
  __builtin_trap();
}
}  // namespace openmps

namespace metal {
inline constexpr size_t dynamic_extent = ~0ul;
// Columns first: how many neighbours there are, then how many lines of them.
template <class I, size_t N> struct dextents {
  I sizes[N];
  template <class... S> METAL_FUNC dextents(S... sizes) : sizes{(I)sizes...} {}
};
struct tensor_inline {};
template <class T, class EXTENTS, class KIND> struct tensor;
template <class T, class I> struct tensor<T, dextents<I, 2>, tensor_inline> {
  typedef remove_cv_t<remove_space_t<T>> number;
  T* data;
  I columns, rows, pitch;
  METAL_FUNC tensor(T* data, dextents<I, 2> extents)
      : data(data), columns(extents.sizes[0]), rows(extents.sizes[1]), pitch(extents.sizes[0]) {}
  METAL_FUNC tensor(T* data, dextents<I, 2> extents, array<I, 2> strides)
      : data(data), columns(extents.sizes[0]), rows(extents.sizes[1]), pitch(strides.elements[1]) {
    if (strides.elements[0] != 1 || pitch < columns) openmps::refuse("tensor: the strides are not {1, at least the first extent}");
  }
};

template <size_t N> struct execution_simdgroups { static_assert(N != 0, "execution_simdgroups<0> is not supported"); };
typedef execution_simdgroups<1> execution_simdgroup;
template <class S> struct execution_size;
template <size_t N> struct execution_size<execution_simdgroups<N>> { enum { value = N }; };

namespace detail {
// A bit pattern, not a number, of elements that nobody has set.
inline constexpr uint unset_element = 0x7fa5c3e1;
// The destination of a product of ROWS by COLUMNS, spread over simdgroups.
template <class T, int ROWS, int COLUMNS, uint SIMDGROUPS> struct cooperative_destination {
  static_assert(is_same_v<T, float>, "cooperative tensors: float is the covered element of a destination");
  enum { threads = 32 * SIMDGROUPS, count = ROWS * COLUMNS, capacity = (count + threads - 1) / threads + 1 };
  T elements[capacity];
  METAL_FUNC cooperative_destination() {
    for (uint i = 0; i < capacity; i++) elements[i] = as_type<float>(unset_element);
  }
  static METAL_FUNC uint self() { return SIMDGROUPS == 1 ? openmps::lane() : openmps_frame.running; }
  static METAL_FUNC uint place(uint i, uint self) { return i * threads + self; }
  METAL_FUNC constexpr uint16_t get_capacity() const { return capacity; }
  METAL_FUNC bool is_valid_element(uint i) const { return place(i, self()) < count; }
  METAL_FUNC array<int, 2> get_multidimensional_index(uint i) const {
    uint at = place(i, self());
    return array<int, 2>{{(int)(at / ROWS), (int)(at % ROWS)}};
  }
  METAL_FUNC thread T& operator[](uint i) thread { return elements[i]; }
  METAL_FUNC const thread T& operator[](uint i) const thread { return elements[i]; }
  template <class TENSOR> METAL_FUNC void check(const thread TENSOR& memory) const {
    static_assert(is_same_v<typename TENSOR::number, T>, "cooperative tensors are stored to and loaded from tensors of their own type");
    if (memory.columns != COLUMNS || memory.rows != ROWS)
      openmps::refuse("cooperative tensor: the extents of the tensor in memory are not (columns, rows) of the product");
  }
  template <class TENSOR> METAL_FUNC void load(const thread TENSOR& from) thread {
    check(from);
    for (uint i = 0; i < capacity; i++) {
      uint at = place(i, self());
      if (at < count) elements[i] = from.data[at % ROWS * from.pitch + at / ROWS];
    }
  }
  template <class TENSOR> METAL_FUNC void store(const thread TENSOR& to) const thread {
    check(to);
    for (uint i = 0; i < capacity; i++) {
      uint at = place(i, self());
      if (at < count) to.data[at % ROWS * to.pitch + at / ROWS] = elements[i];
    }
  }
};
}  // namespace detail
}  // namespace metal

namespace mpp {
namespace tensor_ops {
// Here a template takes it as one number: a structure cannot be a template's argument before C++20.
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
  constexpr matmul2d_descriptor(int m, int n, int k = (int)metal::dynamic_extent, bool transpose_left = false, bool transpose_right = false,
                                bool relaxed_precision = false, mode matmul_mode = mode::multiply)
      : m(m), n(n), k(k), transpose_left(transpose_left), transpose_right(transpose_right), relaxed_precision(relaxed_precision),
        matmul_mode(matmul_mode) {}
  constexpr operator ulong() const {
    return (ulong)(uint)k << 32 | (ulong)(m & 0x3fff) << 18 | (ulong)(n & 0x3fff) << 4 | (ulong)transpose_left << 3 |
           (ulong)transpose_right << 2 | (ulong)relaxed_precision << 1 | (ulong)matmul_mode;
  }
};

namespace detail {
// What each lane brings: addresses of its own objects, and which thread it is.
struct brought { ulong left, right, destination, thread_index; };
// Columns and rows that a factor in memory has.
template <class TENSOR> METAL_FUNC bool is_of(const thread TENSOR& factor, bool transposed, int rows, int columns) {
  return transposed ? factor.columns == rows && factor.rows == columns : factor.columns == columns && factor.rows == rows;
}
template <class TENSOR> METAL_FUNC float at(const thread TENSOR& factor, bool transposed, int row, int column) {
  return (float)(transposed ? factor.data[column * factor.pitch + row] : factor.data[row * factor.pitch + column]);
}
// A fault belongs to the thread that names the memory.
template <class TENSOR> OPENMPS_UNSEEN void touch(const thread TENSOR& factor) {
  typedef typename TENSOR::number number;
  volatile number corner = *factor.data;
  corner = factor.data[(factor.rows - 1) * factor.pitch + factor.columns - 1];
}
// Sums in float, in the order of the depth, as `simdgroup_matrix` has them here. Lanes whose factors are not those of the first get 0.
template <ulong D, class LEFT, class RIGHT, class DESTINATION> OPENMPS_UNSEEN void multiply(uint) {
  constexpr int M = D >> 18 & 0x3fff, N = D >> 4 & 0x3fff;
  constexpr bool turned_left = D >> 3 & 1, turned_right = D >> 2 & 1, accumulates = D & 1;
  brought first = openmps::deposited<brought>(0);
  const thread LEFT& left = *(const thread LEFT*)first.left;
  const thread RIGHT& right = *(const thread RIGHT*)first.right;
  int depth = turned_left ? left.rows : left.columns;
  float sums[M][N] = {}, line[N];
  for (int k = 0; k < depth; k++) {
    for (int j = 0; j < N; j++) line[j] = at(right, turned_right, k, j);
    for (int i = 0; i < M; i++) {
      float factor = at(left, turned_left, i, k);
      for (int j = 0; j < N; j++) sums[i][j] += factor * line[j];
    }
  }
  for (uint lane = 0; lane < 32; lane++) {
    brought from = openmps::deposited<brought>(lane);
    const thread LEFT& its_left = *(const thread LEFT*)from.left;
    const thread RIGHT& its_right = *(const thread RIGHT*)from.right;
    thread DESTINATION& destination = *(thread DESTINATION*)from.destination;
    for (uint i = 0; i < DESTINATION::capacity; i++) {
      uint place = DESTINATION::place(i, from.thread_index);
      if (place >= DESTINATION::count) continue;
      float sum = sums[place % M][place / M];
      destination.elements[i] = accumulates ? destination.elements[i] + sum : sum;
    }
    openmps::result<uint>(lane) = its_left.data == left.data && its_right.data == right.data;
  }
}
// What a multiplication with this mode would make of the destination as it is.
template <bool ACCUMULATES, class DESTINATION> METAL_FUNC void check_mode(const thread DESTINATION& destination) {
  for (uint i = 0; i < DESTINATION::capacity; i++) {
    if (!destination.is_valid_element(i)) continue;
    bool is_set = as_type<uint>(destination.elements[i]) != metal::detail::unset_element;
    if (ACCUMULATES && !is_set) openmps::refuse("matmul2d: mode::multiply_accumulate adds to a destination that was never set");
    if (!ACCUMULATES && is_set && destination.elements[i] != 0)
      openmps::refuse("matmul2d: mode::multiply, which is the default, overwrites the sums that the destination holds");
  }
}
}  // namespace detail

template <ulong D, class SCOPE> struct matmul2d {
  enum { M = D >> 18 & 0x3fff, N = D >> 4 & 0x3fff, simdgroups = metal::execution_size<SCOPE>::value };
  template <class LEFT, class RIGHT, class T> METAL_FUNC auto get_destination_cooperative_tensor() const {
    return metal::detail::cooperative_destination<T, M, N, simdgroups>();
  }
  template <class LEFT, class RIGHT, class DESTINATION>
  METAL_FUNC void run(thread LEFT& left, thread RIGHT& right, thread DESTINATION& destination, uint line = __builtin_LINE()) const {
    typedef typename LEFT::number A;
    typedef typename RIGHT::number B;
    static_assert(M % 16 == 0 || N % 16 == 0, "matmul2d: at least one of M or N must be a multiple of 16 (since macOS 26.4)");
    static_assert(metal::is_same_v<A, B>, "matmul2d: input types must match, there is no product of half and bfloat");
    static_assert(metal::is_floating_point_v<A>, "matmul2d: half, bfloat and float are the covered types of factors");
    static_assert(DESTINATION::count == M * N && DESTINATION::threads == 32 * simdgroups, "matmul2d: the destination is of another product");
    constexpr int K = (int)(uint)(D >> 32);
    const int depth = K >= 0 ? K : D >> 3 & 1 ? left.rows : left.columns;
    if (openmps_frame.threads % 32 != 0) openmps::refuse("matmul2d: the threadgroup is not of whole simdgroups");
    if (simdgroups != 1 && simdgroups != openmps_frame.threads / 32)
      openmps::refuse("matmul2d: the number of simdgroups in the execution scope is not the dispatched one");
    if (!detail::is_of(left, D >> 3 & 1, M, depth))
      openmps::refuse("matmul2d: the extents of the left factor are not (columns, rows) of what the descriptor multiplies");
    if (!detail::is_of(right, D >> 2 & 1, depth, N))
      openmps::refuse("matmul2d: the extents of the right factor are not (columns, rows) of what the descriptor multiplies");
    detail::touch(left);
    detail::touch(right);
    detail::check_mode<(D & 1) != 0>(destination);
    uint self = openmps::lane();
    detail::brought brought = {(ulong)&left, (ulong)&right, (ulong)&destination, DESTINATION::self()};
    openmps::collect_everyone(brought, detail::multiply<D, LEFT, RIGHT, DESTINATION>, line);
    if (!openmps::result<uint>(self)) openmps::refuse("matmul2d: the lanes of a simdgroup name different factors");
  }
};
}  // namespace tensor_ops
}  // namespace mpp
