// Values that are the same in every thread that runs together. Here they are plain values: that a value is not uniform cannot be shown.
namespace metal {
template <class T> class uniform {
  T value;

 public:
  uniform() = default;
  explicit METAL_FUNC constexpr uniform(T value) : value(value) {}
  METAL_FUNC constexpr operator T() const { return value; }
};
template <class T> METAL_FUNC constexpr uniform<T> make_uniform(T value) { return uniform<T>(value); }
// Of two uniform values comes another one.
#define OPENMPS_UNIFORM(OP)                                                                                                                 \
  template <class T> METAL_FUNC constexpr auto operator OP(uniform<T> a, uniform<T> b) { return make_uniform((T)a OP (T)b); }
OPENMPS_UNIFORM(+) OPENMPS_UNIFORM(-) OPENMPS_UNIFORM(*) OPENMPS_UNIFORM(/) OPENMPS_UNIFORM(%)
OPENMPS_UNIFORM(&) OPENMPS_UNIFORM(|) OPENMPS_UNIFORM(^) OPENMPS_UNIFORM(<<) OPENMPS_UNIFORM(>>)
OPENMPS_UNIFORM(==) OPENMPS_UNIFORM(!=) OPENMPS_UNIFORM(<) OPENMPS_UNIFORM(<=) OPENMPS_UNIFORM(>) OPENMPS_UNIFORM(>=)
}  // namespace metal
