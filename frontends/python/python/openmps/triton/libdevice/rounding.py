"""Functions of ``libdevice`` that say how they round: ``add_rz``, ``div_ru``, ``float2int_rd`` and the like, by tables.

The kernel language rounds to the nearest. A result that is rounded otherwise is its neighbour where the error, which is computed exactly, has
the wrong sign.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import core

from openmps.triton.libdevice.language import ceil, floor, rint, trunc

#: CUDA's functions take numbers of Python's, too, as each makes tensors of its operands.
to_tensor = core.to_tensor


@triton.jit
def bits_of(x):
    """A float's bits as an integer."""
    x = to_tensor(x)
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True)
    else:
        return x.to(tl.int32, bitcast=True)


@triton.jit
def above(x):
    """The next larger number."""
    x = to_tensor(x)
    bits = bits_of(x)
    moved = tl.where(x > 0, bits + 1, bits - 1)
    moved = tl.where(x == 0, 1, moved).to(bits.dtype).to(x.dtype, bitcast=True)
    return tl.where((x != x) | (x == float("inf")), x, moved)


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
def div_rn(x, y):
    x, y = to_tensor(x), to_tensor(y)
    return x / y if y.dtype == tl.float64 else tl.div_rn(x, y)


@triton.jit
def rcp_rn(x):
    return div_rn(1.0, x)


@triton.jit
def sqrt_rn(x):
    x = to_tensor(x)
    return tl.sqrt(x) if x.dtype == tl.float64 else tl.sqrt_rn(x)


@triton.jit
def _directed(x, error, WAY: tl.constexpr):
    """A result with the sign of what it lacks, rounded down, up or towards zero."""
    if WAY == "rd":
        return tl.where(error < 0, -above(-x), x)
    elif WAY == "ru":
        return tl.where(error > 0, above(x), x)
    else:
        down = (error < 0) & (x > 0)
        return tl.where(down, -above(-x), tl.where((error > 0) & (x < 0), above(x), x))


@triton.jit
def _finished(result, error, sum_of_operands, WAY: tl.constexpr):
    """What has overflowed is larger than it should be."""
    overflowed = (tl.abs(result) == float("inf")) & (tl.abs(sum_of_operands) < float("inf"))
    return _directed(result, tl.where(overflowed, -result, error), WAY)


@triton.jit
def two_sum(x, y):
    """A sum and what it lacks."""
    result = x + y
    of_y = result - x
    return result, (x - (result - of_y)) + (y - of_y)


@triton.jit
def two_product(x, y):
    """A product and what it lacks."""
    result = x * y
    return result, tl.fma(x, y, -result)


@triton.jit
def _sum(x, y, WAY: tl.constexpr):
    result, error = two_sum(x, y)
    return _finished(result, error, x * 0 + y * 0, WAY)


@triton.jit
def _difference(x, y, WAY: tl.constexpr):
    return _sum(x, -y, WAY)


@triton.jit
def _product(x, y, WAY: tl.constexpr):
    result, error = two_product(x, y)
    return _finished(result, error, x * 0 + y * 0, WAY)


@triton.jit
def _quotient(x, y, WAY: tl.constexpr):
    result = div_rn(x, y)
    rest = tl.fma(-result, y, x)
    return _finished(result, tl.where(y < 0, -rest, rest), x * 0 + 1 / y, WAY)


@triton.jit
def _reciprocal(x, WAY: tl.constexpr):
    return _quotient(1.0, x, WAY)


@triton.jit
def _root(x, WAY: tl.constexpr):
    result = sqrt_rn(x)
    return _finished(result, tl.fma(-result, result, x), x * 0, WAY)


@triton.jit
def _product_and_sum(x, y, z, WAY: tl.constexpr):
    result = tl.fma(x, y, z)
    # The exact result as a sum of three numbers, and that less what was rounded to.
    product, lacking = two_product(x, y)
    low, lowest = two_sum(z, lacking)
    high, middle = two_sum(product, low)
    error = ((high - result) + middle) + lowest
    return _finished(result, error, x * 0 + y * 0 + z * 0, WAY)


@triton.jit
def _narrowed(x, WAY: tl.constexpr):
    result = x.to(tl.float32)
    lacking = tl.where(x > result, 1.0, tl.where(x < result, -1.0, 0.0))
    return _finished(result, lacking, x * 0, WAY)


@triton.jit
def _of_integer(x, ELEMENT: tl.constexpr, LIMIT: tl.constexpr, WAY: tl.constexpr):
    result = x.to(ELEMENT)
    # What is rounded up to the limit is no integer of x's type any more.
    is_limit = result == LIMIT
    back = tl.where(is_limit, 0.0, result).to(x.dtype)
    error = tl.where(is_limit | (back > x), -1.0, tl.where(back < x, 1.0, 0.0))
    return _directed(result, error, WAY)


_FUNCTIONS = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "fma": _product_and_sum,
    "div": _quotient,
    "rcp": _reciprocal,
    "sqrt": _root,
    "double2float": _narrowed,
}
_WAYS = {"rz": trunc, "rd": floor, "ru": ceil}
_FLOATS = {"float": tl.float32, "double": tl.float64}
#: The type, that of the same bits with a sign, and the first power of 2 above the type.
_INTEGERS = {
    "int": (tl.int32, tl.int32, 2.0**31),
    "uint": (tl.uint32, tl.int32, 2.0**32),
    "ll": (tl.int64, tl.int64, 2.0**63),
    "ull": (tl.uint64, tl.int64, 2.0**64),
}
#: Bits as another type.
_CASTS = {
    "float_as_int": tl.int32,
    "float_as_uint": tl.int32,
    "int_as_float": tl.float32,
    "uint_as_float": tl.float32,
    "double_as_longlong": tl.int64,
    "longlong_as_double": tl.float64,
}


def _called(function, *constants, element=None):
    """A call with constants at the end; the operands are of one type where it is given."""

    def call(*operands, _semantic=None, _generator=None):
        operands = [_semantic.to_tensor(operand) for operand in operands]
        operands = [_semantic.cast(operand, element) for operand in operands] if element else operands
        return _generator.call_JitFunction(function, [*operands, *map(core.constexpr, constants)], kwargs={})

    return core.builtin(call)


def _cast(*elements, before=None, bitcast=False):
    """From one type to the next."""

    def call(arg0, _semantic=None):
        x = _semantic.to_tensor(arg0)
        x = x if before is None else before(x, _semantic=_semantic)
        for element in elements:
            x = x.to(element, bitcast=bitcast, _semantic=_semantic)
        return x

    return core.builtin(call)


def _functions():
    """Names and functions."""
    for way in _WAYS:
        yield from ((f"{name}_{way}", _called(function, way)) for name, function in _FUNCTIONS.items())
        for integer_name, (integer, _, limit) in _INTEGERS.items():
            for float_name, element in _FLOATS.items():
                yield f"{integer_name}2{float_name}_{way}", _called(_of_integer, element, limit, way, element=integer)
    yield "double2float_rn", _cast(tl.float32)
    yield from ((name, _cast(element, bitcast=True)) for name, element in _CASTS.items())
    for integer_name, (integer, signed, _) in _INTEGERS.items():
        for float_name, element in _FLOATS.items():
            yield f"{integer_name}2{float_name}_rn", _cast(integer, element)
            for way, whole in {"rn": rint, **_WAYS}.items():
                yield f"{float_name}2{integer_name}_{way}", _cast(integer, signed, before=whole)


globals().update(_functions())
