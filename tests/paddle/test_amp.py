"""Mixed precision: loss scaling finds what is not finite, and half types train, without fallback."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

operators = paddle._C_ops


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("planted", [None, np.inf, -np.inf, np.nan])
def test_gradients_are_unscaled_in_place_and_searched(dtype, planted):
    values = [np.arange(1, 7, dtype="float32").reshape(2, 3) * 8, np.full((5,), -16, "float32"), np.float32(12)]
    if planted is not None:
        values[1][3] = planted
    tensors = [paddle.to_tensor(value).astype(dtype) for value in values]
    scale = paddle.to_tensor([4.0], dtype="float64" if dtype == "float64" else "float32")
    _, found = operators.check_finite_and_unscale_(tensors, scale)
    assert bool(found) == (planted is not None)
    for tensor, value in zip(tensors, values, strict=True):
        np.testing.assert_array_equal(tensor.astype("float32").numpy(), value / 4)


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize("good, bad, scale", [(0, 0, 8.0), (1, 0, 8.0), (0, 1, 8.0), (1, 1, 1.5), (1, 0, 3e38)])
def test_the_scale_follows_the_steps_as_on_the_cpu(found, good, bad, scale):
    def run(device):
        paddle.set_device(device)
        gradients = [paddle.ones([3]), paddle.ones([2, 2])]
        states = [paddle.to_tensor([scale]), paddle.to_tensor([good], dtype="int32"), paddle.to_tensor([bad], dtype="int32")]
        operators.update_loss_scaling_(gradients, paddle.to_tensor([found]), *states, 2, 2, 2.0, 0.5, False)
        return [tensor.numpy() for tensor in gradients + states]

    for mine, theirs in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def classifier() -> nn.Layer:
    random = np.random.default_rng(2)
    model = nn.Sequential(nn.Conv2D(1, 4, 3), nn.BatchNorm2D(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))
    for parameter in model.parameters():
        parameter.set_value((random.standard_normal(parameter.shape) * 0.2).astype("float32"))
    return model


def losses(device: str, level: str | None, dtype: str = "float32", planted_at: int = -1) -> tuple[list[float], list[float]]:
    """Losses and scales of ten steps; at one of them the loss is infinite."""
    paddle.set_device(device)
    random = np.random.default_rng(5)
    x, labels = paddle.to_tensor(random.standard_normal((8, 1, 8, 8)).astype("float32")), paddle.to_tensor(random.integers(0, 4, 8))
    model = classifier()
    step = paddle.optimizer.AdamW(0.01, parameters=model.parameters())
    if level == "O2":
        model, step = paddle.amp.decorate(model, step, level="O2", dtype=dtype, master_weight=True)
    scaler = paddle.amp.GradScaler(enable=level is not None and dtype == "float16", init_loss_scaling=1024.0, incr_every_n_steps=4)
    if scaler.is_enable():
        scaler._scale = scaler._scale.reshape([])  # NumPy 2.4 makes no number of one element in a list, as Paddle's message about it asks
    history, scales = [], []
    for number in range(10):
        with paddle.amp.auto_cast(enable=level is not None, level=level or "O1", dtype=dtype if level else "float16"):
            loss = F.cross_entropy(model(x), labels)
            factor = float("inf") if number == planted_at else 1.0
            scaled = scaler.scale(loss * factor)
        scaled.backward()
        scaler.step(step)
        scaler.update()
        step.clear_grad()
        history.append(float(loss))
        scales.append(scaler._scale.item() if scaler.is_enable() else 1.0)
    return history, scales


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_half_types_learn_as_float32_does(level, dtype):
    expected, _ = losses("cpu", None)
    got, _ = losses("mps", level, dtype)
    assert expected[-1] < expected[0] - 0.2, "the example does not learn"
    np.testing.assert_allclose(got, expected, atol=0.02 if dtype == "float16" else 0.1)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_step_with_an_infinite_gradient_is_skipped(level):
    history, scales = losses("mps", level, "float16", planted_at=2)
    assert scales[:4] == [1024, 1024, 512, 512] and max(scales) == 1024, scales
    assert history[3] == history[2] and history[-1] < history[0] - 0.15, history


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_auto_cast_computes_products_in_the_half_type(dtype):
    with paddle.amp.auto_cast(dtype=dtype):
        x = paddle.ones([4, 4])
        assert str(paddle.matmul(x, x).dtype) == f"paddle.{dtype}"
        assert str(F.softmax(x).dtype) == "paddle.float32"
