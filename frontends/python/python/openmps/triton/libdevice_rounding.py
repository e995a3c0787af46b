"""Functions of ``libdevice`` that say how they round: ``add_rz``, ``div_ru``, ``float2int_rd`` and the like, by tables.

The kernel language rounds to the nearest. A result that is rounded otherwise is its neighbour where the error, which is computed exactly, has
the wrong sign.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import core


@triton.jit
def bits_of(x):
    """A float's bits as an integer."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True)
    else:
        return x.to(tl.int32, bitcast=True)


@triton.jit
def above(x):
    """The next larger number."""
    bits = bits_of(x)
    moved = tl.where(x > 0, bits + 1, bits - 1)
    moved = tl.where(x == 0, 1, moved).to(bits.dtype).to(x.dtype, bitcast=True)
    return tl.where((x != x) | (x == float("inf")), x, moved)


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
def _sum(x, y, WAY: tl.constexpr):
    result = x + y
    of_y = result - x
    return _finished(result, (x - (result - of_y)) + (y - of_y), x * 0 + y * 0, WAY)


@triton.jit
def _difference(x, y, WAY: tl.constexpr):
    return _sum(x, -y, WAY)


@triton.jit
def _product(x, y, WAY: tl.constexpr):
    result = x * y
    return _finished(result, tl.fma(x, y, -result), x * 0 + y * 0, WAY)


@triton.jit
def _quotient(x, y, WAY: tl.constexpr):
    result = tl.div_rn(x, y) if x.dtype == tl.float32 else x / y
    rest = tl.fma(-result, y, x)
    return _finished(result, tl.where(y < 0, -rest, rest), x * 0 + 1 / y, WAY)


@triton.jit
def _reciprocal(x, WAY: tl.constexpr):
    return _quotient(x * 0 + 1, x, WAY)


@triton.jit
def _root(x, WAY: tl.constexpr):
    result = tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)
    return _finished(result, tl.fma(-result, result, x), x * 0, WAY)


@triton.jit
def _narrowed(x, WAY: tl.constexpr):
    result = x.to(tl.float32)
    lacking = tl.where(x > result, 1.0, tl.where(x < result, -1.0, 0.0))
    return _finished(result, lacking, x * 0, WAY)


_FUNCTIONS = {"add": _sum, "sub": _difference, "mul": _product, "div": _quotient, "rcp": _reciprocal, "sqrt": _root, "double2float": _narrowed}
_FLOATS = {"float": tl.float32, "double": tl.float64}
_INTEGERS = {"int": tl.int32, "uint": tl.uint32, "ll": tl.int64, "ull": tl.uint64}
#: Bits as another type.
_CASTS = {
    "float_as_int": tl.int32,
    "float_as_uint": tl.uint32,
    "int_as_float": tl.float32,
    "uint_as_float": tl.float32,
    "double_as_longlong": tl.int64,
    "longlong_as_double": tl.float64,
}


def _called(function, way):
    def call(*operands, _semantic=None, _generator=None):
        operands = [_semantic.to_tensor(operand) for operand in operands]
        return _generator.call_JitFunction(function, [*operands, core.constexpr(way)], kwargs={})

    return core.builtin(call)


def _cast(element, before=None, bitcast=False):
    def call(arg0, _semantic=None):
        x = _semantic.to_tensor(arg0)
        x = x if before is None else before(x, _semantic=_semantic)
        return x.to(element, bitcast=bitcast, _semantic=_semantic)

    return core.builtin(call)


def functions(whole: dict) -> dict:
    """By name; `whole` has the functions that round to whole numbers, by the way they do."""
    found = {f"{name}_{way}": _called(function, way) for name, function in _FUNCTIONS.items() for way in ("rz", "rd", "ru")}
    found["double2float_rn"] = _cast(tl.float32)
    found |= {name: _cast(element, bitcast=True) for name, element in _CASTS.items()}
    for float_name, element in _FLOATS.items():
        for integer_name, integer in _INTEGERS.items():
            found[f"{integer_name}2{float_name}_rn"] = _cast(element)
            found |= {f"{float_name}2{integer_name}_{way}": _cast(integer, before) for way, before in whole.items()}
    return found
