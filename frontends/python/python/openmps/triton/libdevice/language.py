"""Functions of ``libdevice`` that the kernel language has; the text of the module names them as symbols."""

from __future__ import annotations

import triton.language as tl
from triton.language import core

#: By the number of their operands.
_UNARY = "acos asin atan ceil cos cosh erf exp exp2 expm1 floor log log1p log2 rint rsqrt sin sinh sqrt tan tanh trunc"
_BINARY = "atan2 fmod"
#: CUDA's names for functions that may be less exact.
_FAST = "cos exp log log2 sin tan tanh"


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
for _name in _FAST.split():
    globals()[f"fast_{_name}f"] = globals()[_name]
nearbyint = globals()["rint"]
_pow = _external("pow", 2)


@core.extern
def pow(arg0, arg1, _semantic=None):
    """``arg0`` to the power of ``arg1``, which may be an integer."""
    base, exponent = _semantic.to_tensor(arg0), _semantic.to_tensor(arg1)
    if exponent.dtype.is_int():
        exponent = _semantic.cast(exponent, base.dtype)
    return _pow(base, exponent, _semantic=_semantic)


fast_powf = pow


@core.extern
def fma(arg0, arg1, arg2, _semantic=None):
    """``arg0 * arg1 + arg2``, rounded once."""
    return tl.fma(arg0, arg1, arg2, _semantic=_semantic)


fma_rn = fma
