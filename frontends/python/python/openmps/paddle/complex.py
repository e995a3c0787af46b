"""``x[index] = value`` of complex numbers on device mps.

Paddle has kernels for it that write in place, of complex numbers on its CPU alone: from there the result comes back in memory of its own,
and a view that was written, ``x[0][1] = 5``, would no longer be part of ``x``. The real numbers that complex ones are made of are written
in place.
"""

from __future__ import annotations

import functools

from openmps.paddle.devices import _is_mps


def install(paddle) -> None:
    """Wraps the method."""
    original = paddle.Tensor.__setitem__

    @functools.wraps(original)
    def set_item(self, index, value):
        if not _written_by_parts(paddle, self, value):
            return original(self, index, value)
        parts = paddle.as_real(self)
        if not isinstance(value, paddle.Tensor):
            value = paddle.to_tensor(value, place=self.place)
        value = value.astype(self.dtype)
        return original(parts, _of_parts(index), paddle.as_real(value))

    paddle.Tensor.__setitem__ = set_item


def _written_by_parts(paddle, x, value) -> bool:
    if x.dtype not in (paddle.complex64, paddle.complex128) or not paddle.in_dynamic_mode() or not _is_mps(x.place):
        return False
    # The parts are written behind the back of automatic differentiation.
    wanted = (tensor for tensor in (x, value) if isinstance(tensor, paddle.Tensor))
    return not paddle.is_grad_enabled() or all(tensor.stop_gradient for tensor in wanted)


def _of_parts(index):
    """The index with a whole axis behind its last one, the two parts'."""
    whole = index if isinstance(index, tuple) else (index,)
    return (*whole, slice(None)) if any(part is Ellipsis for part in whole) else index
