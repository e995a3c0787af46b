"""Operators of sequences that are told by levels of detail (LoD), of which an eager tensor has none: those where Paddle reads them all the same, and
the process ends.
"""

from __future__ import annotations

import functools
from typing import Any

from openmps.paddle.devices import _is_mps

_READERS = ("attention_lstm", "fusion_seqpool_concat", "fusion_seqpool_cvm_concat")


def install(paddle) -> None:
    """Wraps the operators."""
    for name in _READERS:
        original = getattr(paddle._C_ops, name, None)
        if original is not None:
            setattr(paddle._C_ops, name, _refusing(paddle, name, original))


def _refusing(paddle, name: str, original):
    @functools.wraps(original)
    def operator(x, *rest, **named):
        first: Any = x[0] if isinstance(x, list | tuple) and x else x
        if paddle.in_dynamic_mode() and isinstance(first, paddle.Tensor) and _is_mps(first.place):
            raise ValueError(f"{name}: x of shape {list(first.shape)} has no levels of detail (LoD), which say where its sequences begin")
        return original(x, *rest, **named)

    return operator
