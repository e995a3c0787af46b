"""Conversions of ``float8e4b15``, which is bytes in Triton's representation: its numbers are those of ``float8e4nv`` divided by 256."""

from __future__ import annotations

import triton.language as tl
from triton._C.libtriton import ir

#: By how much the two types differ: their exponents count from 15 and from 7.
_RATIO = 256.0


def convert(number, to, fp_downcast_rounding=None, _semantic=None):
    """Triton's ``convert_custom_types``: from or to ``float8e4b15``, beyond whose range the largest number (1.75) stands, as on NVIDIA's GPUs."""
    if number.dtype.is_fp8e4b15():
        return _semantic.cast(_half(number, _semantic), to)
    rounding = "rtz" if fp_downcast_rounding == ir.ROUNDING_MODE.RTZ else "rtne"
    scaled = tl.tensor.__mul__(_semantic.cast(number, number.type.with_element_ty(tl.float32)), _RATIO, _semantic=_semantic)
    return _semantic.bitcast(_semantic.cast(scaled, number.type.with_element_ty(tl.float8e4nv), rounding), to)


def _half(number, _semantic):
    """The bits moved to where a float16 has them, whose exponent counts from 15 too."""
    wide = _semantic.cast(_semantic.bitcast(number, number.type.with_element_ty(tl.uint8)), number.type.with_element_ty(tl.int16))
    sign, rest = ((wide.__and__(mask, _semantic=_semantic), by) for mask, by in ((0x80, 8), (0x7F, 7)))
    sign, rest = (bits.__lshift__(by, _semantic=_semantic) for bits, by in (sign, rest))
    return _semantic.bitcast(sign.__or__(rest, _semantic=_semantic), number.type.with_element_ty(tl.float16))

