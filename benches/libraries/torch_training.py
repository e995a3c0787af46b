"""The steps of training.py with PyTorch: the same networks, sizes and optimizers. The networks for images are those of torchvision."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec

import torch
from torch import nn
from torch.nn import functional as F

from libraries import shapes


def works() -> dict:
    made = {
        "train GPT, 4x128": lambda: _words(4, 128),
        "train GPT, 2x512": lambda: _words(2, 512),
        "train GPT in bfloat16, 4x128": lambda: _words(4, 128, _half),
        "train BERT-base layer, 8x128": _encoder,
        "train LSTM 2x128, 16x64": _recurrent,
        "train UNet, 2x3x64x64": _unet,
        "train grid sampling, 64x40x40": _points,
        "train nearest upsampling, 64x40x40": lambda: _derived(lambda x: F.interpolate(x, scale_factor=2)),
    }
    if find_spec("torchvision"):
        made |= {
            "train ResNet18, 8x3x64x64": lambda: _images("resnet18", 8, 64),
            "train ResNet50, 4x3x128x128": lambda: _images("resnet50", 4, 128),
            "train MobileNetV3, 8x3x64x64": lambda: _images("mobilenet_v3_small", 8, 64),
            "train RoiAlign, 200 regions of 64x40x40": lambda: _regions("roi_align"),
            "train RoiPool, 200 regions of 64x40x40": lambda: _regions("roi_pool"),
        }
    return made


class Block(nn.Module):
    """Attention to what is before, then two linear layers."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        sizes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        self.linears = nn.ModuleList([nn.Linear(*size) for size in sizes])

    def forward(self, x):
        batch, length, width = x.shape
        spread, gather, widen, narrow = self.linears
        heads = spread(self.norms[0](x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + gather(seen.transpose(1, 2).reshape(batch, length, width))
        return x + narrow(F.gelu(widen(self.norms[1](x))))


class GPT(nn.Module):
    """Four layers, 256 wide."""

    def __init__(self, length: int, width: int = 256, layers: int = 4, heads: int = 4):
        super().__init__()
        self.words, self.places = nn.Embedding(shapes.WORDS, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, shapes.WORDS)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.out(self.norm(self.blocks(x))).reshape(-1, shapes.WORDS)


class UNet(nn.Module):
    """Three levels of two convolutions each, down and up again."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.down = nn.ModuleList([_twice(3, width), _twice(width, 2 * width), _twice(2 * width, 4 * width)])
        self.wider = nn.ModuleList([nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)])
        self.up = nn.ModuleList([_twice(4 * width, 2 * width), _twice(2 * width, width)])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        levels = []
        for level in self.down:
            x = level(x)
            levels.append(x)
            x = F.max_pool2d(x, 2)
        x = levels.pop()
        for wider, level in zip(self.wider, self.up):
            x = level(torch.cat([wider(x), levels.pop()], dim=1))
        return self.out(x)


def _twice(channels: int, width: int):
    convolution = [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*convolution, nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())


def _step(model, optimizer, x, y, loss=F.cross_entropy, types=nullcontext):
    def step():
        with torch.enable_grad():
            with types():
                error = loss(model(x), y)
            error.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _images(name: str, batch: int, size: int):
    from torchvision import models

    x, y = torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,))
    model = getattr(models, name)(num_classes=10)
    return _step(model, torch.optim.SGD(model.parameters(), 0.001, momentum=0.9), x, y)


def _half():
    """Products in bfloat16, the rest in float32."""
    return torch.autocast("cpu", torch.bfloat16)


def _words(batch: int, length: int, types=nullcontext):
    x, y = torch.randint(0, shapes.WORDS, (batch, length)), torch.randint(0, shapes.WORDS, (batch * length,))
    model = GPT(length)
    return _step(model, torch.optim.AdamW(model.parameters(), 0.0001), x, y, types=types)


def _encoder():
    model = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True)
    x = torch.randn(8, 128, 768)
    return _step(model, torch.optim.AdamW(model.parameters(), 0.0001), x, x, F.mse_loss)


def _recurrent():
    model, x = nn.LSTM(128, 128, num_layers=2, batch_first=True), torch.randn(16, 64, 128)
    return _step(model, torch.optim.Adam(model.parameters(), 0.0001), x, x, lambda result, y: F.mse_loss(result[0], y))


def _unet():
    model, x = UNet(), torch.randn(2, 3, 64, 64)
    return _step(model, torch.optim.Adam(model.parameters(), 0.0001), x, x, F.mse_loss)


def _derived(function, *also):
    """A function of the features, and its gradients by them and by other tensors."""
    x = torch.randn(*shapes.FEATURES)
    for each in (x, *also):
        each.requires_grad_()

    def step():
        with torch.enable_grad():
            y = function(x)
        return torch.autograd.grad(y, [x, *also], y.detach())

    return step


def _regions(name: str):
    from torchvision import ops

    boxes = [torch.from_numpy(shapes.regions())]
    # Paddle's samples lie half an element further up and left by default.
    aligned = {"aligned": True} if name == "roi_align" else {}
    return _derived(lambda x: getattr(ops, name)(x, boxes, shapes.REGION, **aligned))


def _points():
    points = torch.from_numpy(shapes.points())
    # Paddle's outermost points are the centres of the outermost elements by default.
    return _derived(lambda x: F.grid_sample(x, points, align_corners=True), points)
