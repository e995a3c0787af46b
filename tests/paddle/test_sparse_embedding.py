"""Embeddings that ask for sparse gradients train as on Paddle's CPU, whatever the optimizer does with them."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

OPTIMIZERS = {
    "sgd": lambda p, **k: paddle.optimizer.SGD(0.1, parameters=p, **k),
    "momentum": lambda p, **k: paddle.optimizer.Momentum(0.1, parameters=p, **k),
    "adam": lambda p, **k: paddle.optimizer.Adam(0.1, parameters=p, **k),
    "adamw": lambda p, **k: paddle.optimizer.AdamW(0.1, parameters=p, **k),
    "adagrad": lambda p, **k: paddle.optimizer.Adagrad(0.1, parameters=p, **k),
}


def rows(device: str, optimizer, uses: int = 1, backwards: int = 1, sparse: bool = True, **options) -> np.ndarray:
    """The table after three steps; `uses` look-ups a step share it, and `backwards` passes add up."""
    paddle.set_device(device)
    table = nn.Embedding(6, 3, padding_idx=0, sparse=sparse)
    table.weight.set_value(np.random.default_rng(0).standard_normal((6, 3)).astype("float32"))
    step = optimizer(table.parameters(), **options)
    for number in range(3):
        indices = paddle.to_tensor([[1, 2, 2], [0, 4, number]])
        for _ in range(backwards):
            sum((table(indices) ** 2).sum() * (use + 1) for use in range(uses)).backward()
        step.step()
        step.clear_grad()
    return table.weight.numpy()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_table_trains_as_on_the_cpu(name):
    for options in ({}, {"grad_clip": nn.ClipGradByGlobalNorm(0.5)}):
        # Not every optimizer of Paddle's CPU takes sparse gradients; dense ones are the same numbers.
        expected = rows("cpu", OPTIMIZERS[name], sparse=False, **options)
        np.testing.assert_allclose(rows("mps", OPTIMIZERS[name], **options), expected, rtol=1e-4, atol=1e-6)


def test_look_ups_that_share_a_table_and_passes_that_add_up():
    for uses, backwards in ((2, 1), (1, 2), (2, 2)):
        expected = rows("cpu", OPTIMIZERS["adam"], uses, backwards, sparse=False)
        np.testing.assert_allclose(rows("mps", OPTIMIZERS["adam"], uses, backwards), expected, rtol=1e-4, atol=1e-6)
