"""``triton.language.extra.libdevice`` for this backend: functions of one, two or three numbers, by the language's own names."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import core
from triton.language.extra import libdevice as _declared

from openmps.triton import libdevice_bits, libdevice_rounding

#: Functions that the kernel language has, by the number of their operands; the text of the module names them as symbols.
_UNARY = "acos asin atan ceil cos cosh erf exp exp2 expm1 fabs floor log log1p log2 rint rsqrt sin sinh sqrt tan tanh trunc"
_BINARY = "atan2 fmod"


def _external(symbol: str, count: int):
    signatures = {(core.dtype(name),) * count: (symbol, core.dtype(name)) for name in ("fp32", "fp64", "fp16", "bf16")}

    def call(*operands, _semantic=None):
        return core.extern_elementwise("", "", list(operands), signatures, is_pure=True, _semantic=_semantic)

    def unary(arg0, _semantic=None):
        return call(arg0, _semantic=_semantic)

    def binary(arg0, arg1, _semantic=None):
        return call(arg0, arg1, _semantic=_semantic)

    function = unary if count == 1 else binary
    function.__name__ = function.__qualname__ = symbol
    function.__module__ = __name__
    return core.extern(function)


for _name in _UNARY.split():
    globals()[_name] = _external(_name, 1)
for _name in _BINARY.split():
    globals()[_name] = _external(_name, 2)
nearbyint = globals()["rint"]
abs = globals()["fabs"]
#: CUDA's names for functions that may be less exact.
_FAST = "cos exp log log2 sin tan tanh"
for _name in _FAST.split():
    globals()[f"fast_{_name}f"] = globals()[_name]
_pow = _external("pow", 2)


@core.extern
def pow(arg0, arg1, _semantic=None):
    """``arg0`` to the power of ``arg1``, which may be an integer."""
    exponent = _semantic.to_tensor(arg1)
    if exponent.dtype.is_int():
        exponent = _semantic.cast(exponent, arg0.dtype)
    return _pow(arg0, exponent, _semantic=_semantic)


fast_powf = pow

for _function in vars(libdevice_bits).values():
    if isinstance(_function, triton.JITFunction) and not _function.__name__.startswith("_"):
        globals()[_function.__name__] = _function
_WHOLE = {"rn": "rint", "rz": "trunc", "rd": "floor", "ru": "ceil"}
globals().update(libdevice_rounding.functions({way: globals()[name] for way, name in _WHOLE.items()}))


@core.extern
def fma(arg0, arg1, arg2, _semantic=None):
    """``arg0 * arg1 + arg2``, rounded once."""
    return tl.fma(arg0, arg1, arg2, _semantic=_semantic)


@triton.jit
def log10(x):
    return tl.log2(x) * 0.30102999566398120


@triton.jit
def exp10(x):
    return tl.exp2(x * 3.3219280948873623)


@triton.jit
def isnan(x):
    return x != x


@triton.jit
def isinf(x):
    return tl.abs(x) == float("inf")


@triton.jit
def isfinited(x):
    return tl.abs(x) < float("inf")


@triton.jit
def finitef(x):
    return tl.abs(x) < float("inf")


@triton.jit
def copysign(x, y):
    """The magnitude of x with the sign of y; that of -0.0 counts."""
    negative = (y < 0) | ((y == 0) & (1 / y < 0))
    return tl.where(negative, -tl.abs(x), tl.abs(x))


@triton.jit
def hypot(x, y):
    """The length of (x, y), without overflow in between."""
    large, small = tl.maximum(tl.abs(x), tl.abs(y)), tl.minimum(tl.abs(x), tl.abs(y))
    ratio = tl.where(large == 0, 0.0, small / large)
    return large * tl.sqrt(1 + ratio * ratio)


@triton.jit
def cbrt(x):
    """The cube root, with the sign of x."""
    magnitude = tl.exp2(tl.log2(tl.abs(x)) * 0.33333333333333333)
    # One step of Newton's method brings the last digits.
    better = magnitude - (magnitude - tl.abs(x) / (magnitude * magnitude)) * 0.33333333333333333
    root = tl.where((x == 0) | (tl.abs(x) == float("inf")), tl.abs(x), better)
    return tl.where(x < 0, -root, root)


@triton.jit
def round(x):
    """The nearest integer, halves away from zero."""
    magnitude = tl.floor(tl.abs(x))
    magnitude = tl.where(tl.abs(x) - magnitude >= 0.5, magnitude + 1, magnitude)
    return tl.where(x < 0, -magnitude, magnitude)


@triton.jit
def llrint(x):
    """The nearest integer, halves to the even one."""
    return rint(x).to(tl.int64)  # noqa: F821


@triton.jit
def llround(x):
    """The nearest integer, halves away from zero."""
    return round(x).to(tl.int64)


@triton.jit
def fast_log10f(x):
    return log10(x)


@triton.jit
def fast_exp10f(x):
    return exp10(x)


@triton.jit
def fast_dividef(x, y):
    return x / y


@triton.jit
def div_rn(x, y):
    """The quotient, rounded to the nearest number."""
    return tl.div_rn(x, y)


@triton.jit
def sqrt_rn(x):
    """The square root, rounded to the nearest number."""
    return tl.sqrt_rn(x)


@triton.jit
def saturatef(x):
    """Between 0 and 1; NaN is 0."""
    return tl.where(x != x, 0.0, tl.minimum(tl.maximum(x, 0.0), 1.0))


@triton.jit
def fdim(x, y):
    """How much larger x is; 0 where it is not."""
    return tl.where(x <= y, 0.0, x - y)


@triton.jit
def asinh(x):
    magnitude = tl.abs(x)
    # Squares of what is large would overflow; there the sum of x and its root is 2 x.
    is_large = magnitude > 1e10
    bounded = tl.where(is_large, 0.0, magnitude)
    value = log1p(bounded + bounded * bounded / (1 + tl.sqrt(bounded * bounded + 1)))  # noqa: F821
    value = tl.where(is_large, tl.log(magnitude) + 0.69314718055994531, value)
    return copysign(value, x)


@triton.jit
def acosh(x):
    above_one = x - 1
    is_large = x > 1e10
    bounded = tl.where(is_large, 0.0, above_one)
    value = log1p(bounded + tl.sqrt(2 * bounded + bounded * bounded))  # noqa: F821
    return tl.where(is_large, tl.log(x) + 0.69314718055994531, value)


@triton.jit
def atanh(x):
    return 0.5 * log1p(2 * x / (1 - x))  # noqa: F821


@triton.jit
def rhypot(x, y):
    return 1 / hypot(x, y)


@triton.jit
def norm3d(x, y, z):
    return hypot(hypot(x, y), z)


@triton.jit
def norm4d(x, y, z, w):
    return hypot(hypot(x, y), hypot(z, w))


@triton.jit
def rnorm3d(x, y, z):
    return 1 / norm3d(x, y, z)


@triton.jit
def rnorm4d(x, y, z, w):
    return 1 / norm4d(x, y, z, w)


@triton.jit
def rcbrt(x):
    return 1 / cbrt(x)


@triton.jit
def add_rn(x, y):
    return x + y


@triton.jit
def sub_rn(x, y):
    return x - y


@triton.jit
def mul_rn(x, y):
    return x * y


@triton.jit
def rcp_rn(x):
    return 1 / x


fma_rn = fma


def _refused(name):
    def call(*_, _semantic=None):
        raise NotImplementedError(f"mps: libdevice.{name}: not covered")

    return core.builtin(call)


# A kernel's module may name what the kernel does not call.
for _name in dir(_declared):
    if not _name.startswith("_") and callable(getattr(_declared, _name)) and _name not in globals():
        globals()[_name] = _refused(_name)
