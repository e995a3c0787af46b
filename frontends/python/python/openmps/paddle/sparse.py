"""``paddle.sparse``, whose operators are computed on the CPU, where their results lie (docs/training.md).

Made into a sparse tensor again, results would first be brought to the current device, by a copy that automatic differentiation does not see, only to
be computed with on the CPU once more. And ``BatchNorm`` would have its running statistics, which it is to write where they lie, in memory of their
own that nobody has written.
"""

from __future__ import annotations

import functools
import inspect

from openmps.paddle.devices import _is_mps


def install(paddle) -> None:
    """Wraps a function where Paddle has bound it, and an operator."""
    _wrap_creation(paddle)
    _wrap_batch_norm(paddle)


def _wrap_creation(paddle) -> None:
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


def _wrap_batch_norm(paddle) -> None:
    operators = paddle._C_ops
    original = getattr(operators, "sparse_batch_norm_", None)
    if original is None:
        return

    @functools.wraps(original)
    def sparse_batch_norm_(x, mean, variance, *rest):
        if not paddle.in_dynamic_mode() or not _is_mps(mean.place):
            return original(x, mean, variance, *rest)
        statistics = mean.cpu(), variance.cpu()
        results = original(x, *statistics, *rest)
        mean.set_value(statistics[0])
        variance.set_value(statistics[1])
        return results

    operators.sparse_batch_norm_ = sparse_batch_norm_


def _is_differentiated_on_cpu(paddle, values) -> bool:
    if not paddle.in_dynamic_mode() or not isinstance(values, paddle.Tensor) or values.stop_gradient:
        return False
    return values.place.is_cpu_place() and _is_mps(paddle.framework._current_expected_place())
