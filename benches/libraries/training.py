"""Steps of training with PaddlePaddle, on the device that is set: networks of its own and a small GPT."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F
from paddle.vision import models
from paddle.vision.ops import roi_align, roi_pool

from libraries import shapes


def works() -> dict:
    return {
        "train ResNet18, 8x3x64x64": lambda: _images(models.resnet18, 8, 64),
        "train ResNet50, 4x3x128x128": lambda: _images(models.resnet50, 4, 128),
        "train MobileNetV3, 8x3x64x64": lambda: _images(models.mobilenet_v3_small, 8, 64),
        "train GPT, 4x128": lambda: _words(4, 128),
        "train GPT, 2x512": lambda: _words(2, 512),
        "train GPT in bfloat16, 4x128": lambda: _words(4, 128, _half),
        "train BERT-base layer, 8x128": _encoder,
        "train LSTM 2x128, 16x64": _recurrent,
        "train UNet, 2x3x64x64": _unet,
        "train RoiAlign, 200 regions of 64x40x40": _regions(roi_align),
        "train RoiPool, 200 regions of 64x40x40": _regions(roi_pool),
        "train grid sampling, 64x40x40": _points,
        "train nearest upsampling, 64x40x40": lambda: _derived(lambda x: F.interpolate(x, scale_factor=2)),
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
        self.words, self.places = nn.Embedding(shapes.WORDS, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, shapes.WORDS)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(paddle.arange(tokens.shape[1]))
        return self.out(self.norm(self.blocks(x))).reshape([-1, shapes.WORDS])


class UNet(nn.Layer):
    """Three levels of two convolutions each, down and up again."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.down = nn.LayerList([_twice(3, width), _twice(width, 2 * width), _twice(2 * width, 4 * width)])
        self.wider = nn.LayerList([nn.Conv2DTranspose(4 * width, 2 * width, 2, 2), nn.Conv2DTranspose(2 * width, width, 2, 2)])
        self.up = nn.LayerList([_twice(4 * width, 2 * width), _twice(2 * width, width)])
        self.out = nn.Conv2D(width, 3, 1)

    def forward(self, x):
        levels = []
        for level in self.down:
            x = level(x)
            levels.append(x)
            x = F.max_pool2d(x, 2)
        x = levels.pop()
        for wider, level in zip(self.wider, self.up):
            x = level(paddle.concat([wider(x), levels.pop()], axis=1))
        return self.out(x)


def _twice(channels: int, width: int):
    convolution = [nn.Conv2D(channels, width, 3, padding=1), nn.BatchNorm2D(width), nn.ReLU()]
    return nn.Sequential(*convolution, nn.Conv2D(width, width, 3, padding=1), nn.BatchNorm2D(width), nn.ReLU())


def _step(model, optimizer, x, y, loss=F.cross_entropy, types=nullcontext):
    def step():
        with paddle.enable_grad():
            with types():
                error = loss(model(x), y)
            error.backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def _images(make, batch: int, size: int):
    random = np.random.default_rng(0)
    x = paddle.to_tensor(random.standard_normal((batch, 3, size, size), dtype=np.float32))
    y = paddle.to_tensor(random.integers(0, 10, (batch,)))
    model = make(num_classes=10)
    return _step(model, paddle.optimizer.Momentum(0.001, parameters=model.parameters()), x, y)


def _half():
    """Products in bfloat16, the rest in float32: level O1."""
    return paddle.amp.auto_cast(level="O1", dtype="bfloat16")


def _words(batch: int, length: int, types=nullcontext):
    random = np.random.default_rng(0)
    x = paddle.to_tensor(random.integers(0, shapes.WORDS, (batch, length)))
    y = paddle.to_tensor(random.integers(0, shapes.WORDS, (batch * length,)))
    model = GPT(length)
    return _step(model, paddle.optimizer.AdamW(0.0001, parameters=model.parameters()), x, y, types=types)


def _normal(*shape: int):
    return paddle.to_tensor(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))


def _encoder():
    model = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu")
    x = _normal(8, 128, 768)
    return _step(model, paddle.optimizer.AdamW(0.0001, parameters=model.parameters()), x, x, F.mse_loss)


def _recurrent():
    model, x = nn.LSTM(128, 128, num_layers=2), _normal(16, 64, 128)
    optimizer = paddle.optimizer.Adam(0.0001, parameters=model.parameters())
    return _step(model, optimizer, x, x, lambda result, y: F.mse_loss(result[0], y))


def _unet():
    model, x = UNet(), _normal(2, 3, 64, 64)
    return _step(model, paddle.optimizer.Adam(0.0001, parameters=model.parameters()), x, x, F.mse_loss)


def _derived(function, *also):
    """A function of the features, and its gradients by them and by other tensors."""
    x = _normal(*shapes.FEATURES)
    for each in (x, *also):
        each.stop_gradient = False

    def step():
        with paddle.enable_grad():
            y = function(x)
        return paddle.grad(y, [x, *also], y.detach())

    return step


def _regions(function):
    def make():
        boxes = paddle.to_tensor(shapes.regions())
        count = paddle.to_tensor(np.array([shapes.REGIONS], "int32"))
        return _derived(lambda x: function(x, boxes, count, shapes.REGION))

    return make


def _points():
    points = paddle.to_tensor(shapes.points())
    return _derived(lambda x: F.grid_sample(x, points), points)
