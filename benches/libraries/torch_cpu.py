"""PyTorch on the CPU."""

from __future__ import annotations

import os

import torch
from torch.nn import functional as F

from libraries import shapes, torch_training


def version() -> str:
    return f"PyTorch {torch.__version__}"


def works():
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    made = {f"matmul {n}": (lambda n=n: _matmul(n)) for n in shapes.MATMUL}
    made[f"softmax {shapes.ROWS[0]}x{shapes.ROWS[1]}"] = lambda: _unary(lambda x: torch.softmax(x, -1), shapes.ROWS)
    made[f"layer_norm {shapes.ROWS[0]}x{shapes.ROWS[1]}"] = lambda: _unary(
        lambda x: F.layer_norm(x, (shapes.ROWS[1],)), shapes.ROWS
    )
    for label, count in shapes.ELEMENTS.items():
        for name, function in (("add", torch.add), ("multiply", torch.mul)):
            made[f"{name} {label}"] = lambda function=function, count=count: _binary(function, count)
        for name, function in (("exp", torch.exp), ("sigmoid", torch.sigmoid), ("sum", torch.sum)):
            made[f"{name} {label}"] = lambda function=function, count=count: _unary(function, (count,))
    made[f"x + y, {shapes.TINY} elements"] = lambda: _binary(lambda x, y: x + y, shapes.TINY)
    for name, case in shapes.CONVOLUTIONS.items():
        made[name] = lambda case=case: _convolution(*case)
    return made | torch_training.works()


def _matmul(n: int):
    x, y = torch.randn(n, n), torch.randn(n, n)
    return lambda: x @ y


def _unary(function, shape):
    x = torch.randn(*shape)
    return lambda: function(x)


def _binary(function, count: int):
    x, y = torch.randn(count), torch.randn(count)
    return lambda: function(x, y)


def _convolution(shape, weight, stride: int, groups: int):
    x, w, padding = torch.randn(*shape), torch.randn(*weight), weight[2] // 2
    return lambda: F.conv2d(x, w, stride=stride, padding=padding, groups=groups)
