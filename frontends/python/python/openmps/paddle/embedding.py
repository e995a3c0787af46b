"""Embeddings with ``sparse=True``: device ``mps`` gives their gradient as a dense tensor.

Paddle's C interface has no kernels of selected rows, and Paddle's own sums of such gradients know the CPU and CUDA alone. A dense
gradient takes every optimizer, clipping and accumulation to the same weights; only ``lazy_mode`` of Adam and AdamW, which leaves
rows alone that a batch does not name, has nothing to go by.
"""

from __future__ import annotations

import functools


def install(paddle) -> None:
    """Wraps the operator, which eager and static programs share."""
    operators = paddle._C_ops
    original = getattr(operators, "embedding", None)
    if original is None:
        return

    @functools.wraps(original)
    def embedding(x, weight, padding_idx=-1, sparse=False, *rest, **named):
        return original(x, weight, padding_idx, sparse and not is_on_mps(paddle, weight), *rest, **named)

    operators.embedding = embedding


def is_on_mps(paddle, weight) -> bool:
    """Whether the weight is on the device, or the program that it belongs to will be."""
    place = weight.place if isinstance(weight, paddle.Tensor) else paddle.framework._current_expected_place()
    if not place.is_custom_place():
        return False
    device_type = place.custom_device_type if hasattr(place, "custom_device_type") else place.get_device_type
    return device_type() == "mps"
