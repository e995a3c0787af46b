"""Gradients through ``paddle.sparse.sparse_coo_tensor``.

The results of sparse operators lie on the CPU (docs/training.md). Made into a sparse tensor again, their values would first be brought to the current
device, by a copy that automatic differentiation does not see, only to be computed with on the CPU once more.
"""

from __future__ import annotations

import functools
import inspect

from openmps.paddle.devices import _is_mps


def install(paddle) -> None:
    """Wraps the function where Paddle has bound it."""
    original = paddle.sparse.sparse_coo_tensor
    signature = inspect.signature(original)

    @functools.wraps(original)
    def sparse_coo_tensor(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        if given.get("place") is None and _is_differentiated_on_cpu(paddle, given["values"]):
            given["place"] = paddle.CPUPlace()
        return original(**given)

    for module in (paddle.sparse, paddle.sparse.creation):
        if getattr(module, "sparse_coo_tensor", None) is original:
            module.sparse_coo_tensor = sparse_coo_tensor


def _is_differentiated_on_cpu(paddle, values) -> bool:
    if not paddle.in_dynamic_mode() or not isinstance(values, paddle.Tensor) or values.stop_gradient:
        return False
    return values.place.is_cpu_place() and _is_mps(paddle.framework._current_expected_place())
