"""Functions of ``libdevice`` on bits and exponents, and those that are exact by them."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice.rounding import above, bits_of, to_tensor

_PI = tl.constexpr(3.141592653589793)


@triton.jit
def signbit(x):
    return (bits_of(x) < 0).to(tl.int32)


@triton.jit
def nextafter(x, y):
    moved = tl.where(y > x, above(x), -above(-x))
    return tl.where((x != x) | (y != y), x + y, tl.where(x == y, y, moved))


@triton.jit
def ilogb(x):
    """The exponent to base 2; the smallest integer of 0 and of NaN, the largest of infinity."""
    special = tl.where(tl.abs(x) == float("inf"), 2147483647, -2147483648)
    return tl.where((x == 0) | (x != x) | (tl.abs(x) == float("inf")), special, logb(x).to(tl.int32))


@triton.jit
def logb(x):
    """The exponent to base 2."""
    x = to_tensor(x)
    if x.dtype == tl.float64:
        large: tl.constexpr = 18014398509481984.0
        fraction: tl.constexpr = 52
        bias: tl.constexpr = 1023
        smallest: tl.constexpr = 2.2250738585072014e-308
    else:
        large: tl.constexpr = 33554432.0
        fraction: tl.constexpr = 23
        bias: tl.constexpr = 127
        smallest: tl.constexpr = 1.1754943508222875e-38
    is_small = tl.abs(x) < smallest
    scaled = tl.where(is_small, x * large, x)
    exponent = (bits_of(tl.abs(scaled)) >> fraction) - bias - tl.where(is_small, fraction + 2, 0)
    found = tl.where(x == 0, -float("inf"), exponent.to(x.dtype))
    return tl.where((x != x) | (tl.abs(x) == float("inf")), x * x, found)


@triton.jit
def ldexp(x, n):
    """x times 2 to the power of n, rounded once."""
    x = to_tensor(x)
    if x.dtype == tl.float64:
        largest: tl.constexpr = 1023
        step: tl.constexpr = 969
        fraction: tl.constexpr = 52
    else:
        largest: tl.constexpr = 127
        step: tl.constexpr = 102
        fraction: tl.constexpr = 23
    scaled, left = x, tl.minimum(tl.maximum(n, -4000), 4000)
    # Down in steps that leave a fraction's bits above the subnormal numbers, so that only the last one rounds.
    for _ in tl.static_range(2):
        scaled = tl.where(left > largest, scaled * 2.0**largest, tl.where(left < 1 - largest, scaled * 2.0**-step, scaled))
        left = tl.where(left > largest, left - largest, tl.where(left < 1 - largest, left + step, left))
    left = tl.minimum(tl.maximum(left, 1 - largest), largest)
    exponent = (left + largest).to(tl.int64 if x.dtype == tl.float64 else tl.int32)
    return scaled * (exponent << fraction).to(x.dtype, bitcast=True)


@triton.jit
def scalbn(x, n):
    return ldexp(x, n)


@triton.jit
def remainder(x, y):
    """What is left of x when the nearest multiple of y is taken away, the even one of two."""
    x, size = to_tensor(x), tl.abs(to_tensor(y))
    rest = tl.abs(x) % (2 * size)
    rest = tl.where(rest > size, rest - 2 * size, rest)
    is_odd = tl.abs(rest) * 2 > size
    rest = tl.where(is_odd, tl.where(rest < 0, rest + size, rest - size), rest)
    rest = tl.where((size == float("inf")) & (tl.abs(x) < float("inf")), tl.abs(x), rest)
    return tl.where((x < 0) | ((x == 0) & (bits_of(x) < 0)), -rest, rest)


@triton.jit
def _half_turns(x):
    """The nearest multiple of a half, as a number from 0 to 3 of them, and what is left."""
    halves = tl.floor(2 * x + 0.5)
    return (halves - 4 * tl.floor(halves * 0.25)).to(tl.int32), x - 0.5 * halves


@triton.jit
def sinpi(x):
    quarter, rest = _half_turns(x)
    value = tl.where(quarter % 2 == 0, tl.sin(rest * _PI), tl.cos(rest * _PI))
    return tl.where(quarter >= 2, -value, value)


@triton.jit
def cospi(x):
    quarter, rest = _half_turns(x)
    value = tl.where(quarter % 2 == 0, tl.cos(rest * _PI), tl.sin(rest * _PI))
    return tl.where((quarter == 1) | (quarter == 2), -value, value)


@triton.jit
def double2loint(x):
    """The lower half of a float64's bits."""
    return bits_of(x).to(tl.int32)


@triton.jit
def double2hiint(x):
    """The upper half of a float64's bits."""
    return (bits_of(x) >> 32).to(tl.int32)


@triton.jit
def hiloint2double(high, low):
    """A float64 by the halves of its bits."""
    bits = (high.to(tl.int64) << 32) | low.to(tl.uint32, bitcast=True).to(tl.int64)
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def rcp64h(x):
    """The upper half of the reciprocal's bits; a subnormal number is 0."""
    smallest: tl.constexpr = 2.2250738585072014e-308
    value = 1 / tl.where(tl.abs(x) < smallest, x * 0, x)
    value = tl.where(tl.abs(value) < smallest, value * 0, value)
    return tl.where(x != x, x, (bits_of(value) & -4294967296).to(tl.float64, bitcast=True))


@triton.jit
def rsqrt_rn(x):
    """One over the root, rounded to the nearest number."""
    is_finite = (x > 0) & (x < float("inf"))
    bounded = tl.where(is_finite, x, 1.0)
    # x is an integer of 25 or 26 bits times 4^half, and the result one of 24 bits times 2^(-36 - half).
    half = (logb(bounded).to(tl.int32) - 24) >> 1
    scaled = ldexp(bounded, -2 * half)
    integer = scaled.to(tl.int64)
    result = (68719476736.0 * tl.rsqrt(scaled)).to(tl.int64)
    # The middle between two numbers says which is nearer: its square times the integer is so near to 2^74 that the lower 64 bits have the sign of
    # what is between.
    for _ in tl.static_range(3):
        above, below = 2 * result + 1, 2 * result - 1
        result = tl.where(integer * above * above < 0, result + 1, tl.where(integer * below * below > 0, result - 1, result))
    found = ldexp(result.to(tl.float32), -36 - half)
    return tl.where(is_finite, found, tl.where(x == 0, 1 / x, tl.where(x > 0, 0.0, float("nan"))))
