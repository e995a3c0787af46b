"""Static mode: which device is current after ``paddle.enable_static()``, and tensors of programs that ``paddle.save`` writes."""

from __future__ import annotations

import functools

from paddle.base import core, framework


def install(paddle) -> None:
    """Wraps the function and an operator."""
    _keep_current_device(paddle)
    _pass_tensors_of_programs(paddle)


def _keep_current_device(paddle) -> None:
    """Paddle is imported within a guard of the device that it found first. ``enable_static`` ends it, and with it what ``set_device`` has chosen since."""
    original, of_import = paddle.enable_static, framework.global_var._functional_dygraph_context_manager

    @functools.wraps(original)
    def enable_static() -> None:
        chosen = framework._global_expected_place_
        is_first = of_import is not None and framework.global_var._functional_dygraph_context_manager is of_import
        original()
        if is_first:
            framework._set_expected_place(chosen)

    paddle.enable_static = enable_static


def _pass_tensors_of_programs(paddle) -> None:
    """``paddle.save`` and ``paddle.load`` take every plug-in device for an NPU and lay out its tensors anew, by an operator that has no tensors of programs."""
    operators = paddle._C_ops
    original = getattr(operators, "npu_identity", None)
    if original is None:
        return

    @functools.wraps(original)
    def npu_identity(x, *rest, **named):
        return x if isinstance(x, core.DenseTensor) else original(x, *rest, **named)

    operators.npu_identity = npu_identity
