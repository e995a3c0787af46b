"""Functions of ``libdevice`` of integers."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice.rounding import to_tensor


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
    x = to_tensor(x)
    if x.dtype.primitive_bitwidth == 64:
        return _ones(x.to(tl.uint32)) + _ones((x.to(tl.uint64) >> 32).to(tl.uint32))
    else:
        return _ones(x.to(tl.uint32))


@triton.jit
def clz(x):
    """How many zeros stand before the first bit that is set."""
    x = to_tensor(x)
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
    x = to_tensor(x)
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
    """How far x and y are from each other, and z."""
    return (tl.where(x > y, x - y, y - x) + z).to(x.dtype)


@triton.jit
def mulhi(x, y):
    """The upper half of the product."""
    high = tl.umulhi(x, y)
    if x.dtype.is_int_signed():
        # Without signs a number below zero is larger by a power of 2, and the product's upper half by the other number.
        high = high - tl.where(x < 0, y, 0) - tl.where(y < 0, x, 0)
    return high


@triton.jit
def mul24(x, y):
    """The product of the lower 24 bits, of which the upper one is a sign where x is signed."""
    return ((x << 8) >> 8) * ((y << 8) >> 8)


@triton.jit
def byte_perm(x, y, selector):
    """Four bytes of x (0 to 3) and y (4 to 7), that of each place by three bits of a hexadecimal digit."""
    result = (x * 0).to(tl.uint32)
    for place in tl.static_range(4):
        chosen = (selector >> (4 * place)) & 7
        byte = (tl.where(chosen < 4, x, y) >> (8 * (chosen & 3))) & 0xFF
        result = result | (byte.to(tl.uint32) << (8 * place))
    return result.to(x.dtype)
