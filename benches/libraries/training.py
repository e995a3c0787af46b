"""Steps of training with PaddlePaddle, on the device that is set: networks of its own and a small GPT."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F
from paddle.vision import models

WORDS = 1000


def works() -> dict:
    return {
        "train ResNet18, 8x3x64x64": lambda: _images(models.resnet18, 8, 64),
        "train ResNet50, 4x3x128x128": lambda: _images(models.resnet50, 4, 128),
        "train MobileNetV3, 8x3x64x64": lambda: _images(models.mobilenet_v3_small, 8, 64),
        "train GPT, 4x128": lambda: _words(4, 128),
    }


class Block(nn.Layer):
    """Attention to what is before, then two linear layers."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.LayerList([nn.LayerNorm(width) for _ in range(2)])
        sizes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        self.linears = nn.LayerList([nn.Linear(*size) for size in sizes])

    def forward(self, x):
        batch, length, width = x.shape
        spread, gather, widen, narrow = self.linears
        heads = spread(self.norms[0](x)).reshape([batch, length, 3, self.heads, width // self.heads])
        seen = F.scaled_dot_product_attention(*heads.unbind(2), is_causal=True)
        x = x + gather(seen.reshape([batch, length, width]))
        return x + narrow(F.gelu(widen(self.norms[1](x))))


class GPT(nn.Layer):
    """Four layers, 256 wide."""

    def __init__(self, length: int, width: int = 256, layers: int = 4, heads: int = 4):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(paddle.arange(tokens.shape[1]))
        return self.out(self.norm(self.blocks(x))).reshape([-1, WORDS])


def _step(model, optimizer, x, y):
    def step():
        with paddle.enable_grad():
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def _images(make, batch: int, size: int):
    random = np.random.default_rng(0)
    x = paddle.to_tensor(random.standard_normal((batch, 3, size, size), dtype=np.float32))
    y = paddle.to_tensor(random.integers(0, 10, (batch,)))
    model = make(num_classes=10)
    return _step(model, paddle.optimizer.Momentum(0.001, parameters=model.parameters()), x, y)


def _words(batch: int, length: int):
    random = np.random.default_rng(0)
    x = paddle.to_tensor(random.integers(0, WORDS, (batch, length)))
    y = paddle.to_tensor(random.integers(0, WORDS, (batch * length,)))
    model = GPT(length)
    return _step(model, paddle.optimizer.AdamW(0.0001, parameters=model.parameters()), x, y)
