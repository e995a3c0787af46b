"""Functions of ``libdevice`` on bits, exponents and integers, and the less usual ones of a number, in the language itself."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice_rounding import above, bits_of

_PI = tl.constexpr(3.141592653589793)


@triton.jit
def signbit(x):
    return (bits_of(x) < 0).to(tl.int32)


@triton.jit
def nextafter(x, y):
    moved = tl.where(y > x, above(x), -above(-x))
    return tl.where((x != x) | (y != y), x + y, tl.where(x == y, y, moved))


@triton.jit
def _ones(x):
    """How many bits of a uint32 are set."""
    pairs = x - ((x >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    bytes = (fours + (fours >> 4)) & 0x0F0F0F0F
    return ((bytes * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def popc(x):
    """How many bits are set."""
    if x.dtype.primitive_bitwidth == 64:
        return _ones(x.to(tl.uint32)) + _ones((x.to(tl.uint64) >> 32).to(tl.uint32))
    else:
        return _ones(x.to(tl.uint32))


@triton.jit
def clz(x):
    """How many zeros stand before the first bit that is set."""
    if x.dtype.primitive_bitwidth == 64:
        high = (x.to(tl.uint64) >> 32).to(tl.uint32)
        return tl.where(high == 0, 32 + clz(x.to(tl.uint32)), clz(high))
    else:
        filled = x.to(tl.uint32)
        for by in tl.static_range(5):
            filled = filled | (filled >> (1 << by))
        return 32 - _ones(filled)


@triton.jit
def ffs(x):
    """The place of the lowest bit that is set, from 1 on; 0 where none is."""
    return tl.where(x == 0, 0, popc((x & -x) - 1) + 1)


@triton.jit
def brev(x):
    """The bits in the opposite order."""
    if x.dtype.primitive_bitwidth == 64:
        high = brev(x.to(tl.uint32)).to(tl.uint32).to(tl.uint64) << 32
        return (high | brev((x.to(tl.uint64) >> 32).to(tl.uint32)).to(tl.uint32).to(tl.uint64)).to(x.dtype)
    else:
        bits = x.to(tl.uint32)
        bits = ((bits >> 1) & 0x55555555) | ((bits & 0x55555555) << 1)
        bits = ((bits >> 2) & 0x33333333) | ((bits & 0x33333333) << 2)
        bits = ((bits >> 4) & 0x0F0F0F0F) | ((bits & 0x0F0F0F0F) << 4)
        bits = ((bits >> 8) & 0x00FF00FF) | ((bits & 0x00FF00FF) << 8)
        return ((bits >> 16) | (bits << 16)).to(x.dtype)


@triton.jit
def hadd(x, y):
    """Half of the sum, rounded down, without overflow."""
    return (x & y) + ((x ^ y) >> 1)


@triton.jit
def rhadd(x, y):
    """Half of the sum, rounded up, without overflow."""
    return (x | y) - ((x ^ y) >> 1)


@triton.jit
def sad(x, y, z):
    return tl.where(x > y, x - y, y - x) + z


@triton.jit
def ilogb(x):
    """The exponent to base 2; the smallest integer of 0, the largest of what is not finite."""
    special = tl.where(x == 0, -2147483648, 2147483647)
    return tl.where((x == 0) | (x != x) | (tl.abs(x) == float("inf")), special, logb(x).to(tl.int32))


@triton.jit
def logb(x):
    """The exponent to base 2."""
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
    size = tl.abs(y)
    rest = tl.abs(x) % (2 * size)
    rest = tl.where(rest > size, rest - 2 * size, rest)
    is_odd = tl.abs(rest) * 2 > size
    rest = tl.where(is_odd, tl.where(rest < 0, rest + size, rest - size), rest)
    rest = tl.where(size == float("inf"), tl.abs(x), rest)
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
