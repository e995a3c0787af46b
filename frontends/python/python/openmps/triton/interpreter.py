"""What Triton's interpreter (``TRITON_INTERPRET=1``) takes from its native library: memory by addresses, atomic operations, a product and a sum
rounded once. Programs of a kernel run one after the other there, so that the order of an atomic operation's steps is that of its elements."""

from __future__ import annotations

import ctypes
import enum
from fractions import Fraction

import numpy as np

MEM_SEMANTIC = enum.Enum("MEM_SEMANTIC", "ACQUIRE_RELEASE ACQUIRE RELEASE RELAXED")
RMW_OP = enum.Enum("RMW_OP", "ADD FADD AND OR XOR XCHG MAX MIN UMIN UMAX")

_CHANGED = {
    RMW_OP.ADD: np.add,
    RMW_OP.FADD: np.add,
    RMW_OP.AND: np.bitwise_and,
    RMW_OP.OR: np.bitwise_or,
    RMW_OP.XOR: np.bitwise_xor,
    RMW_OP.XCHG: lambda old, new: new,
    RMW_OP.MAX: np.maximum,
    RMW_OP.UMAX: np.maximum,
    RMW_OP.MIN: np.minimum,
    RMW_OP.UMIN: np.minimum,
}


def _bytes(addresses: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory around addresses as bytes, and where the bytes of each address's element are in it."""
    first = int(addresses.min())
    memory = (ctypes.c_uint8 * (int(addresses.max()) - first + size)).from_address(first)
    return np.ctypeslib.as_array(memory), (addresses - np.uint64(first)).astype(np.int64)[:, None] + np.arange(size)


def load(addresses: np.ndarray, mask: np.ndarray, other: np.ndarray, dtype) -> np.ndarray:
    """Elements at addresses where the mask is true, else those of ``other``."""
    dtype = np.dtype(dtype)
    result = np.array(other, dtype=dtype).reshape(-1)
    chosen = np.asarray(mask, bool).reshape(-1)
    if chosen.any():
        memory, places = _bytes(np.asarray(addresses, np.uint64).reshape(-1)[chosen], dtype.itemsize)
        result[chosen] = memory[places].view(dtype)[:, 0]
    return result.reshape(addresses.shape)


def store(addresses: np.ndarray, value: np.ndarray, mask: np.ndarray) -> None:
    """Writes elements to addresses where the mask is true; of several to one address the last stays."""
    chosen = np.asarray(mask, bool).reshape(-1)
    if chosen.any():
        elements = np.ascontiguousarray(value).reshape(-1)[chosen]
        memory, places = _bytes(np.asarray(addresses, np.uint64).reshape(-1)[chosen], elements.itemsize)
        memory[places] = elements[:, None].view(np.uint8)


def _one_by_one(addresses: np.ndarray, dtype: np.dtype, result: np.ndarray, change) -> np.ndarray:
    """Calls ``change(element, index)`` for each element in memory, and puts what stood there before into the result."""
    for index, address in enumerate(np.asarray(addresses, np.uint64).reshape(-1)):
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * dtype.itemsize).from_address(int(address))).view(dtype)
        before = memory[0]
        if change(memory, index):
            result[index] = before
    return result.reshape(addresses.shape)


def atomic_rmw(operation, addresses: np.ndarray, value: np.ndarray, mask: np.ndarray, semantic) -> np.ndarray:
    """What stood at addresses before it was changed; where the mask is false nothing happens."""
    values, chosen = np.ascontiguousarray(value).reshape(-1), np.asarray(mask, bool).reshape(-1)
    combine = _CHANGED[operation]

    def change(memory, index) -> bool:
        if chosen[index]:
            memory[0] = combine(memory[0], values[index])
        return bool(chosen[index])

    return _one_by_one(addresses, values.dtype, np.zeros_like(values), change)


def atomic_cas(addresses: np.ndarray, expected: np.ndarray, value: np.ndarray, semantic) -> np.ndarray:
    """What stood at addresses; where it was, to the bit, what is expected, the value stands there now."""
    expected, values = (np.ascontiguousarray(array).reshape(-1) for array in (expected, value))

    def change(memory, index) -> bool:
        if memory.tobytes() == expected[index].tobytes():
            memory[0] = values[index]
        return True

    return _one_by_one(addresses, expected.dtype, np.zeros_like(expected), change)


def fma_fp32(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``x * y + z``, rounded once: in float64 the product is exact, and the sum's last bit remembers whether it is not."""
    product, addend = np.multiply(x, y, dtype=np.float64), np.asarray(z, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.atleast_1d(product + addend)
        part = total - product
        rest = (product - (total - part)) + (addend - part)
        is_even = (total.view(np.int64) & 1) == 0
        inexact = np.isfinite(total) & (rest != 0) & is_even
        total = np.where(inexact, np.nextafter(total, np.copysign(np.inf, rest)), total)
        return total.astype(np.float32).reshape(product.shape)


def fma_fp64(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``x * y + z``, rounded once, by fractions."""

    def one(x, y, z):
        if not np.isfinite([x, y, z]).all() or x * y == 0:
            return x * y + z
        try:
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            return float(exact) if exact else x * y + z
        except OverflowError:
            return x * y + z

    return np.vectorize(one, otypes=[np.float64])(np.asarray(x, object), y, z) if np.size(x) else np.asarray(x, np.float64)
