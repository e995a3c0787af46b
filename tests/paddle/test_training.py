"""Training on device mps takes the same steps as on Paddle's CPU, without fallback."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F


def on(device: str, work):
    paddle.set_device(device)
    paddle.seed(7)
    return work()


def initialised(layer: nn.Layer) -> nn.Layer:
    """Fills the parameters with numbers that are the same on every device."""
    random = np.random.default_rng(3)
    for parameter in layer.parameters():
        parameter.set_value((random.standard_normal(parameter.shape) * 0.1).astype("float32"))
    return layer


class LeNet(nn.Layer):
    """Two convolutions with batch norm, two linear layers, dropout off."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 6, 3, padding=1), nn.BatchNorm2D(6), nn.ReLU(), nn.MaxPool2D(2),
            nn.Conv2D(6, 16, 5), nn.BatchNorm2D(16), nn.GELU(), nn.AvgPool2D(2),
        )  # fmt: skip
        self.classes = nn.Sequential(nn.Flatten(), nn.Linear(400, 32), nn.LayerNorm(32), nn.Hardswish(), nn.Linear(32, 10))

    def forward(self, x):
        return self.classes(self.features(x))


OPTIMIZERS = {
    "sgd": lambda p: paddle.optimizer.SGD(0.05, parameters=p),
    "momentum": lambda p: paddle.optimizer.Momentum(0.02, 0.9, parameters=p, weight_decay=1e-3),
    "nesterov": lambda p: paddle.optimizer.Momentum(0.02, 0.9, parameters=p, use_nesterov=True),
    "adam": lambda p: paddle.optimizer.Adam(1e-3, parameters=p),
    "adamw": lambda p: paddle.optimizer.AdamW(1e-3, parameters=p, weight_decay=0.05),
    "amsgrad": lambda p: paddle.optimizer.Adam(1e-3, parameters=p, amsgrad=True),
    "clipped": lambda p: paddle.optimizer.SGD(0.05, parameters=p, grad_clip=nn.ClipGradByGlobalNorm(1.0)),
    "scheduled": lambda p: paddle.optimizer.Adam(paddle.optimizer.lr.CosineAnnealingDecay(1e-3, 20), parameters=p),
}


def losses(optimizer: str, steps: int = 12) -> list[float]:
    """The loss of each step on one batch of random pictures."""
    random = np.random.default_rng(0)
    pictures = paddle.to_tensor(random.standard_normal((16, 1, 28, 28)).astype("float32"))
    labels = paddle.to_tensor(random.integers(0, 10, 16))
    model = initialised(LeNet())
    model.train()
    step = OPTIMIZERS[optimizer](model.parameters())
    history = []
    for _ in range(steps):
        loss = F.cross_entropy(model(pictures), labels)
        loss.backward()
        step.step()
        step.clear_grad()
        history.append(float(loss))
    return history


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_convolutional_network_learns_as_on_the_cpu(optimizer):
    expected, got = on("cpu", lambda: losses(optimizer)), on("mps", lambda: losses(optimizer))
    assert expected[-1] < expected[0] - 0.03, "the example does not learn"
    np.testing.assert_allclose(got, expected, rtol=2e-4)


def transformer_gradients() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    layer = initialised(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu"))
    x = paddle.to_tensor(random.standard_normal((2, 9, 32)).astype("float32"), stop_gradient=False)
    out = layer(x)
    (out * paddle.cos(out)).mean().backward()
    return [x.grad.numpy()] + [parameter.grad.numpy() for parameter in layer.parameters()]


def test_the_gradients_of_a_transformer_layer_are_those_of_the_cpu():
    expected, got = on("cpu", transformer_gradients), on("mps", transformer_gradients)
    assert len(got) == len(expected) == 17
    for mine, theirs in zip(got, expected, strict=True):
        scale = max(float(np.abs(theirs).max()), 1e-6)
        np.testing.assert_allclose(mine, theirs, atol=1e-4 * scale, rtol=1e-4)


def recurrent() -> list[np.ndarray]:
    random = np.random.default_rng(2)
    layer = initialised(nn.LSTMCell(8, 16))
    x = paddle.to_tensor(random.standard_normal((4, 8)).astype("float32"), stop_gradient=False)
    y, states = layer(x)
    for _ in range(3):
        y, states = layer(x, states)
    y.sum().backward()
    return [y.numpy(), x.grad.numpy()]


def test_a_recurrent_cell_is_as_on_the_cpu():
    for mine, theirs in zip(on("mps", recurrent), on("cpu", recurrent), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)
