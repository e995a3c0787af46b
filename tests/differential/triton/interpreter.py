"""Triton's interpreter as the reference: arrays that it takes without PyTorch, and its arithmetic where compiled Triton differs.

The interpreter keeps bfloat16 as its bits: it adds these as integers and truncates where every backend rounds. Its least and greatest number of
a signalling NaN and another is NaN, as C has it; on every GPU it is the other, as of any NaN. What it does otherwise is left as it is."""

from __future__ import annotations

import numpy as np

from .elements import bfloat16_bits, bfloat16_values


class Tensor:
    """An address with what the interpreter asks of a PyTorch tensor on the CPU, which it uses where it lies."""

    def __init__(self, address: int, dtype: str):
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def copy_(self, _other) -> None:
        """It is the same memory."""

    def new_empty(self, _size: int, device: str) -> Tensor:
        return Tensor(self.address, self.dtype)

    def set_(self, *_storage) -> None:
        """The address is the whole of it."""

    def storage_offset(self) -> int:
        return 0

    size = stride = storage_offset


def mend_signalling() -> None:
    """A signalling NaN is a NaN like any other to `tl.minimum`, `tl.maximum`, `tl.clamp`, `tl.min` and `tl.max`."""
    from triton.runtime import interpreter

    builder, reductions, handle = interpreter.InterpreterBuilder, interpreter.ReduceOps, interpreter.TensorHandle

    def quiet(values):
        return np.where(np.isnan(values), values.dtype.type(np.nan), values) if values.dtype.kind == "f" else values

    def elementwise(original):
        def operation(self, *operands_and_rest):
            is_tensor = lambda each: isinstance(each, handle)
            return original(self, *(handle(quiet(each.data), each.dtype) if is_tensor(each) else each for each in operands_and_rest))

        return operation

    for name in ("create_minnumf", "create_maxnumf", "create_clampf"):
        setattr(builder, name, elementwise(getattr(builder, name)))
    over_axis = reductions.min_max

    def min_max(self, input, val_reduce_op, idx_reduce_op=None):
        values = input[0] if isinstance(input, tuple) else input
        return over_axis(self, self.to_tensor(quiet(values.handle.data), values.dtype), val_reduce_op, idx_reduce_op)

    reductions.min_max = min_max


def mend_bfloat16() -> None:
    """Arithmetic of bfloat16 as compiled Triton does it: in float32, rounded to the nearest after each operation."""
    from triton.language import bfloat16, float32
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    is_brain = lambda tensor: tensor.dtype.scalar == bfloat16
    wide = lambda tensor: handle(bfloat16_values(tensor.data), float32) if is_brain(tensor) else tensor
    narrow = lambda tensor: handle(bfloat16_bits(tensor.data), bfloat16)

    def elementwise(original):
        def operation(self, *operands_and_rest):
            operands = [each for each in operands_and_rest if isinstance(each, handle)]
            if not any(is_brain(each) for each in operands):
                return original(self, *operands_and_rest)
            result = original(self, *(wide(each) if isinstance(each, handle) else each for each in operands_and_rest))
            return result if result.data.dtype == np.bool_ else narrow(result)

        return operation

    for name in ("binary_op", "unary_op", "create_fma", "create_clampf"):
        setattr(builder, name, elementwise(getattr(builder, name)))

    convert = builder.cast_impl

    def cast(self, source, target):
        to = target.scalar
        if is_brain(source) and to != bfloat16:
            return convert(self, wide(source), target) if to != float32 else wide(source)
        if to == bfloat16 and not is_brain(source):
            # By way of float64 nothing that fits into it is rounded twice.
            return handle(_rounded(source.data), bfloat16)
        return convert(self, source, target)

    def _rounded(values):
        return bfloat16_bits(_to_odd(values)) if values.dtype == np.float64 else bfloat16_bits(values.astype(np.float32))

    def _to_odd(values):
        """float64 as float32, inexact ones with an odd last bit, so that the second rounding decides as the first would have."""
        with np.errstate(over="ignore", invalid="ignore"):
            near = values.astype(np.float32)
        bits = near.view(np.uint32).copy()
        back = near.astype(np.float64)
        inexact = (back != values) & np.isfinite(near)
        away = np.abs(back) > np.abs(values)
        bits[inexact & away] -= 1
        bits[inexact] |= 1
        return np.where(inexact, bits.view(np.float32), near)

    builder.cast_impl = cast
    builder.create_fp_to_fp = lambda self, source, target, _rounding: self.cast_impl(source, target)
    dot = builder.create_dot
    builder.create_dot = lambda self, a, b, *rest: dot(self, wide(a), wide(b), *rest)
