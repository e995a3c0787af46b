"""Everyday networks take the same ten steps on device mps as on Paddle's CPU, without fallback."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F


def fill(*layers: nn.Layer, seed: int = 3) -> None:
    """Gives parameters the same numbers on every device, scaled by what they sum over."""
    random = np.random.default_rng(seed)
    for layer in layers:
        for parameter in layer.parameters():
            scale = 0.1 if len(parameter.shape) < 2 else (int(np.prod(parameter.shape)) / max(parameter.shape)) ** -0.5
            values = random.standard_normal(parameter.shape) * scale
            parameter.set_value((values + (parameter.name.endswith("w_0") and len(parameter.shape) == 1)).astype("float32"))


class Residual(nn.Layer):
    """A small residual network."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2D(8, 16, 3, stride=2, padding=1), nn.BatchNorm2D(16), nn.ReLU(), nn.Conv2D(16, 16, 3, padding=1), nn.BatchNorm2D(16))
        self.short, self.out = nn.Conv2D(8, 16, 1, stride=2), nn.Linear(16, 4)

    def forward(self, x):
        x = self.stem(x)
        return self.out(F.adaptive_avg_pool2d(F.relu(self.block(x) + self.short(x)), 1).flatten(1))


class Causal(nn.Layer):
    """A language model of 64 tokens: causal attention through `scaled_dot_product_attention`."""

    def __init__(self, width: int = 32, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(50, width), nn.Embedding(64, width)
        self.norms = nn.LayerList([nn.LayerNorm(width) for _ in range(3)])
        self.qkv, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(paddle.arange(tokens.shape[1]))
        q, k, v = self.qkv(self.norms[0](x)).reshape([*x.shape[:2], self.heads, -1]).chunk(3, -1)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.0)
        x = x + self.joined(attended.reshape(x.shape))
        x = x + self.narrow(F.gelu(self.wide(self.norms[1](x))))
        return self.norms[2](x) @ self.tokens.weight.T


class Segmenter(nn.Layer):
    """One level of a U-Net, with group norm."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2D(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Silu())
        self.below = nn.Sequential(nn.MaxPool2D(2), nn.Conv2D(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Silu())
        self.up, self.last = nn.Conv2DTranspose(16, 8, 2, stride=2), nn.Conv2D(16, 1, 3, padding=1)

    def forward(self, x):
        x = self.first(x)
        return self.last(paddle.concat([x, self.up(self.below(x))], 1))


class Autoencoder(nn.Layer):
    """A variational autoencoder whose noise is given."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Sequential(nn.Linear(20, 16), nn.Tanh()), nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 20))
        self.mean, self.spread = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x, noise):
        hidden = self.encode(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        loss = F.binary_cross_entropy_with_logits(self.decode(mean + noise * paddle.exp(spread / 2)), x)
        return loss - 0.05 * paddle.mean(1 + spread - mean**2 - paddle.exp(spread))


def classify(model, shape, kinds, optimizer=lambda p: paddle.optimizer.Momentum(0.02, parameters=p)):
    """A step function over one batch with labels."""
    random = np.random.default_rng(0)
    x, labels = paddle.to_tensor(random.standard_normal(shape).astype("float32")), paddle.to_tensor(random.integers(0, kinds, shape[0]))
    fill(model)
    step = optimizer(model.parameters())
    return lambda: advance(F.cross_entropy(model(x), labels), step)


def advance(loss, step) -> float:
    loss.backward()
    step.step()
    step.clear_grad()
    return float(loss)


def lenet():
    layers = nn.Sequential(nn.Conv2D(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2D(2), nn.Conv2D(6, 16, 5), nn.ReLU(), nn.AvgPool2D(2), nn.Flatten(), nn.Linear(400, 32), nn.Sigmoid(), nn.Linear(32, 10))
    return classify(layers, (8, 1, 28, 28), 10, lambda p: paddle.optimizer.Adam(1e-3, parameters=p))


def residual():
    return classify(Residual(), (6, 3, 16, 16), 4)


def perceptron():
    layers = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1D(24), nn.LeakyReLU(), nn.Linear(24, 5))
    return classify(layers, (16, 12), 5, lambda p: paddle.optimizer.RMSProp(1e-2, parameters=p, momentum=0.9, grad_clip=nn.ClipGradByNorm(1.0)))


def translator():
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0)
    fill(model)
    random = np.random.default_rng(0)
    source, target = (paddle.to_tensor(random.standard_normal((3, size, 16)).astype("float32")) for size in (7, 40))
    mask = model.generate_square_subsequent_mask(40)
    step = paddle.optimizer.Lamb(1e-2, parameters=model.parameters())
    return lambda: advance(F.mse_loss(model(source, target, tgt_mask=mask), target.cos()), step)


def language():
    model = Causal()
    fill(model)
    tokens = paddle.to_tensor(np.random.default_rng(0).integers(0, 50, (2, 64)))
    step = paddle.optimizer.AdamW(1e-2, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0))
    return lambda: advance(F.cross_entropy(model(tokens)[:, :-1].reshape([-1, 50]), tokens[:, 1:].reshape([-1])), step)


def segmenter():
    model = Segmenter()
    fill(model)
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 1, 16, 16)).astype("float32"))
    step = paddle.optimizer.NAdam(1e-2, parameters=model.parameters())
    return lambda: advance(F.binary_cross_entropy_with_logits(model(x), (x > 0).astype("float32")), step)


def autoencoder():
    model = Autoencoder()
    fill(model)
    random = np.random.default_rng(0)
    x, noise = paddle.to_tensor(random.random((8, 20)).astype("float32")), paddle.to_tensor(random.standard_normal((8, 4)).astype("float32"))
    step = paddle.optimizer.Adamax(1e-2, parameters=model.parameters())
    return lambda: advance(model(x, noise), step)


def adversaries():
    make = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
    judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    fill(make, judge)
    random = np.random.default_rng(0)
    real, noise = (paddle.to_tensor(random.standard_normal((8, size)).astype("float32")) for size in (6, 4))
    steps = [paddle.optimizer.Adam(1e-2, beta1=0.5, parameters=each.parameters()) for each in (make, judge)]
    right, wrong = paddle.ones([8, 1]), paddle.zeros([8, 1])
    loss = F.binary_cross_entropy_with_logits

    def step():
        first = advance(loss(judge(real), right) + loss(judge(make(noise).detach()), wrong), steps[1])
        second = advance(loss(judge(make(noise)), right), steps[0])
        steps[1].clear_grad()
        return first + second

    return step


NETWORKS = (lenet, residual, perceptron, translator, language, segmenter, autoencoder, adversaries)


@pytest.mark.parametrize("network", NETWORKS)
def test_ten_steps_are_those_of_the_cpu(network):
    def run(device):
        paddle.set_device(device)
        step = network()
        return [step() for _ in range(10)]

    expected, got = run("cpu"), run("mps")
    assert abs(expected[-1] - expected[0]) > 1e-3, "the example does not learn"
    np.testing.assert_allclose(got, expected, rtol=1e-3)
