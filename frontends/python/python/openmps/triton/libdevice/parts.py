"""What functions of ``libdevice`` are made of: polynomials, e^x and log(x) with more digits than a number has, by tables for each type.

The coefficients are those of Chebyshev interpolation, computed with 50 digits, of the least degree that leaves less than a tenth of a last digit.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import core

from openmps.triton.libdevice.bits import ldexp
from openmps.triton.libdevice.rounding import bits_of, two_sum


def _constants(x, single, double, semantic):
    return [semantic.scalar_constant(number, x.dtype) for number in (double if x.dtype == tl.float64 else single)]


def polynomial(single: tuple, double: tuple, center: float = 0.0):
    """A function of x by coefficients of x - center, the constant one first, for float32 and float64."""

    def call(x, _semantic=None):
        first, *others = reversed(_constants(x, single, double, _semantic))
        x = x.__sub__(center, _semantic=_semantic) if center else x
        value = first
        for other in others:
            value = tl.fma(value, x, other, _semantic=_semantic)
        return value

    return core.builtin(call)


def pair(single: tuple, double: tuple):
    """A number as one of x's type, and what that lacks."""

    def call(x, _semantic=None):
        return core.tuple(_constants(x, single, double, _semantic))

    return core.builtin(call)


def in_single(name: str, function):
    """A function whose last operand is a float; float16 and bfloat16 are computed in float32, and of NaN it is NaN."""

    def call(*operands, _semantic=None, _generator=None):
        operands = [_semantic.to_tensor(operand) for operand in operands]
        element = operands[-1].dtype
        if not element.is_standard_floating():
            raise TypeError(f"mps: libdevice.{name}: no function of {element}")
        is_half = element in (tl.float16, tl.bfloat16)
        operands[-1] = _semantic.cast(operands[-1], tl.float32) if is_half else operands[-1]
        value = _generator.call_JitFunction(function, operands, kwargs={})
        value = _generator.call_JitFunction(_unless_nan, [operands[-1], value], kwargs={})
        return _semantic.cast(value, element) if is_half else value

    return core.builtin(call)


@triton.jit
def _unless_nan(x, value):
    return tl.where(x != x, x, value)


# The high part has so few digits that its product with an exponent is exact.
_LOG_2 = pair(single=(0.693145751953125, 1.428606765330187e-06), double=(0.6931471805598903, 5.497923018708371e-14))
# e^x on [-0.352, 0.352].
_POWER = polynomial(
    single=(
        1.0, 1.0, 0.5, 0.16666399, 0.041666333, 0.008376448, 0.0013942759,
    ),
    double=(
        1.0, 1.0, 0.5000000000000021, 0.16666666666666682, 0.04166666666646445, 0.008333333333317783, 0.0013888888958515418,
        0.0001984126989481527, 2.480147894852964e-05, 2.7557235894251373e-06, 2.763501976916227e-07, 2.5111867861895984e-08,
    ),
)
# atanh(s) / s - 1 over s^2, of s^2, where |s| is at most 0.172.
_INVERSE_TANGENT = polynomial(
    single=(
        0.33333334, 0.20000061, 0.14275293, 0.11668406,
    ),
    double=(
        0.3333333333333333, 0.20000000000000456, 0.14285714285391105, 0.11111111198276491, 0.09090897562238377, 0.07693133836441113,
        0.0663401307021437, 0.06547208333262672,
    ),
)


@triton.jit
def exponential(x, rest, factor):
    """``factor * e^(x + rest)``, where rest is small and x is between -2000 and 2000."""
    high, low = _LOG_2(x)
    exponent = tl.floor(x * 1.4426950408889634 + 0.5)
    left = tl.fma(-exponent, low, tl.fma(-exponent, high, x)) + rest
    return ldexp(factor * _POWER(left), exponent.to(tl.int32))


@triton.jit
def logarithm(x):
    """The logarithm of a number of at least the smallest that is not subnormal, and what it lacks."""
    if x.dtype == tl.float64:
        fraction: tl.constexpr = 52
        root_of_half: tl.constexpr = 0x3FE6A09E667F3BCD
    else:
        fraction: tl.constexpr = 23
        root_of_half: tl.constexpr = 0x3F3504F3
    # x is 2^exponent times what lies between the roots of 1/2 and 2, whose logarithm is 2 atanh(s).
    exponent = (bits_of(x) - root_of_half) >> fraction
    above_one = (bits_of(x) - (exponent << fraction)).to(x.dtype, bitcast=True) - 1
    divisor = 2 + above_one
    s = above_one / divisor
    rest = (tl.fma(-s, divisor, above_one) - s * (above_one - (divisor - 2))) / divisor
    high, low = _LOG_2(x)
    exponent = exponent.to(x.dtype)
    value, lacking = two_sum(exponent * high, 2 * s)
    return value, lacking + (exponent * low + 2 * (rest + s * (s * s) * _INVERSE_TANGENT(s * s)))
