"""Functions of ``libdevice`` of one to four numbers, by those that the kernel language has."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice.language import log1p, rint
from openmps.triton.libdevice.parts import exponential, in_single, pair
from openmps.triton.libdevice.rounding import two_product

_LOG_10 = pair(single=(2.3025851249694824, -3.1975435632602967e-08), double=(2.302585092994046, -2.1707562233822494e-16))


@triton.jit
def abs(x):
    return tl.abs(x)


@triton.jit
def log10(x):
    return tl.log2(x) * 0.30102999566398120


@triton.jit
def _exp10(x):
    bounded = tl.minimum(tl.maximum(x, -400.0), 400.0)
    high, low = _LOG_10(x)
    product, lacking = two_product(bounded, high)
    return exponential(product, lacking + bounded * low, 1.0)


exp10 = in_single("exp10", _exp10)


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
    return tl.where(negative, -1.0, 1.0) * tl.abs(x)


@triton.jit
def hypot(x, y):
    """The length of (x, y), without overflow in between."""
    large, small = tl.maximum(tl.abs(x), tl.abs(y)), tl.minimum(tl.abs(x), tl.abs(y))
    ratio = tl.where((large == 0) | (large == float("inf")), 0.0, small / large)
    length = large * tl.sqrt(1 + ratio * ratio)
    # Beside an infinite side a NaN does not count.
    return tl.where(((x != x) | (y != y)) & (large < float("inf")), x + y, length)


@triton.jit
def cbrt(x):
    """The cube root, with the sign of x."""
    magnitude = tl.exp2(tl.log2(tl.abs(x)) * 0.33333333333333333)
    # One step of Newton's method brings the last digits.
    better = magnitude - (magnitude - tl.abs(x) / (magnitude * magnitude)) * 0.33333333333333333
    root = tl.where((x == 0) | (tl.abs(x) == float("inf")), tl.abs(x), better)
    return copysign(root, x)


@triton.jit
def round(x):
    """The nearest integer, halves away from zero."""
    magnitude = tl.floor(tl.abs(x))
    magnitude = tl.where(tl.abs(x) - magnitude >= 0.5, magnitude + 1, magnitude)
    return copysign(magnitude, x)


@triton.jit
def llrint(x):
    """The nearest integer, halves to the even one."""
    return rint(x).to(tl.int64)


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
    value = log1p(bounded + bounded * bounded / (1 + tl.sqrt(bounded * bounded + 1)))
    value = tl.where(is_large, tl.log(magnitude) + 0.69314718055994531, value)
    return copysign(value, x)


@triton.jit
def acosh(x):
    above_one = x - 1
    is_large = x > 1e10
    bounded = tl.where(is_large, 0.0, above_one)
    value = log1p(bounded + tl.sqrt(2 * bounded + bounded * bounded))
    value = tl.where(is_large, tl.log(x) + 0.69314718055994531, value)
    return tl.where(x < 1, float("nan"), value)


@triton.jit
def atanh(x):
    return copysign(0.5 * log1p(2 * tl.abs(x) / (1 - tl.abs(x))), x)


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
