"""Reductions, cumulative functions, norms, sorting, statistics."""

import numpy as np

from ..draw import FLOATS, INTEGERS
from ..row import CLOSE, EVERY, EXACT, NO, SUM, YES, Row
from .elementwise import each


def top(draw) -> dict[str, object]:
    shape = draw.shape(1, 5, empty=False)
    axis = draw.random.randint(-len(shape), len(shape) - 1)
    size = shape[axis]
    values = draw.random.sample(range(-5000, 5000), int(np.prod(shape))) if np.prod(shape) < 5000 else []
    scale = 1 if draw.type in INTEGERS else 0.125
    different = f'T({[value * scale for value in values]}, {list(shape)}, "{draw.type}")'
    return {"x": draw.tensor(shape), "different": different, "axis": axis, "k": draw.random.randint(1, size) if not draw.chance(0.03) else size + 1}


def finite(draw) -> dict[str, object]:
    draw.special = False  # of NaN the CPU's gradient is 0 at the other numbers
    return {"y": draw.tensor(draw.shape(2, 4, empty=False))}


ROWS = [
    *each("sum mean", "paddle.NAME({x}, axis={axes}, keepdim={flag})", FLOATS, YES, SUM),
    *each("sum prod", "paddle.NAME({x}, axis={axes}, keepdim={flag})", ("bool", "int32", "int64"), NO, EXACT),
    Row("paddle.sum({x}, axis={axes}, dtype={type:float64 int32 int64})", ("float32", "float64", "int32", "int64", "bool"), NO, SUM),
    Row("paddle.prod({x:bounded}, axis={axes}, keepdim={flag})", FLOATS, YES, SUM),
    *each("max min", "paddle.NAME({x}, axis={axes}, keepdim={flag})", (*FLOATS, "int32", "int64"), YES, EXACT),
    *each("amax amin", "paddle.NAME({x}, axis={axes}, keepdim={flag})", ("float32", "float64", "int32", "int64"), YES, EXACT),
    *each("all any", "paddle.NAME({x}, axis={axes}, keepdim={flag})", EVERY, NO, EXACT),
    *each("argmax argmin", "paddle.NAME({x}, axis={axis}, keepdim={flag})", (*FLOATS, "int32", "int64", "uint8", "int16"), NO, EXACT),
    *each("argmax argmin", "paddle.NAME({x})", (*FLOATS, "int32", "int64"), NO, EXACT),
    Row("paddle.argmax({x}, axis={axis}, dtype='int32')", FLOATS, NO, EXACT),
    *each("logsumexp std var", "paddle.NAME({x}, axis={axes}, keepdim={flag})", ("float32", "float64"), YES, SUM),
    *each("nansum nanmean", "paddle.NAME({x}, axis={axes}, keepdim={flag})", ("float32", "float64"), YES, SUM),
    Row("paddle.count_nonzero({x}, axis={axes}, keepdim={flag})", EVERY, NO, EXACT),
    Row("paddle.numel({x})", EVERY, NO, EXACT),
    Row("paddle.cumsum({x}, axis={axis})", (*FLOATS, "int32", "int64"), YES, SUM),
    Row("paddle.cumsum({x})", (*FLOATS, "int32", "int64"), YES, SUM),
    Row("paddle.cumprod({x:bounded}, dim={axis})", ("float32", "float64"), YES, SUM),
    Row("paddle.cumprod({x}, dim={axis})", ("int32", "int64"), NO, EXACT),
    *each("cummax cummin", "paddle.NAME({x:1+}, axis={axis})", ("float32", "float64", "int32", "int64"), YES, EXACT),
    Row("paddle.logcumsumexp({x:1+}, axis={axis})", ("float32", "float64"), YES, SUM),
    Row("paddle.linalg.norm({x})", FLOATS, YES, SUM),
    Row("paddle.linalg.norm({x:1+}, p={p}, axis={axis}, keepdim={flag})", ("float32", "float64"), YES, SUM,
        lambda draw: {"p": draw.random.choice(["1", "2", "3", "inf", "-inf", "0", "0.5", "1.5"][: 6 if draw.special else 8])}),
    Row("paddle.linalg.norm({x:2+}, p='fro', axis=[-2, -1], keepdim={flag})", ("float32", "float64"), YES, SUM),
    Row("paddle.norm({x:2+}, p={integer:1 3}, axis=[0, 1])", ("float32", "float64"), NO, SUM),
    Row("paddle.norm({y}, p={integer:1 3}, axis=[0, 1])", ("float32", "float64"), YES, SUM, finite),
    Row("F.normalize({x:1+}, p={integer:1 3}, axis={axis})", ("float32",), YES, SUM),
    Row("F.normalize({x:1+}, p={integer:1 3}, axis={axis})", ("float64",), NO, SUM),
    # Which of equal elements comes first is not defined.
    Row("paddle.topk({x}, {k}, axis={axis}, largest={flag})[0]", (*FLOATS, "int32", "int64"), NO, EXACT, top),
    Row("paddle.topk({different}, {k}, axis={axis}, largest={flag})", ("float32", "float64", "int32", "int64"), YES, EXACT, top),
    Row("paddle.kthvalue({x}, {k}, axis={axis})[0]", ("float32", "float64", "int32", "int64"), NO, EXACT, top),
    Row("paddle.kthvalue({different}, {k}, axis={axis})", ("float32", "float64", "int32", "int64"), YES, EXACT, top),
    Row("paddle.sort({x}, axis={axis}, descending={flag}, stable=True)", (*FLOATS, *INTEGERS), YES, EXACT),
    Row("paddle.argsort({x}, axis={axis}, descending={flag}, stable=True)", (*FLOATS, *INTEGERS), NO, EXACT),
    Row("paddle.mode({x:1+}, axis={axis})", ("float32", "float64"), NO, EXACT),
    Row("paddle.mode({different}, axis={axis}, keepdim={flag})[0]", ("float32", "float64"), YES, EXACT, top),
    Row("paddle.quantile({different}, {number:0 1}, axis={axis})", ("float32", "float64"), YES, SUM, top),
    Row("paddle.median({x}, axis={axis})", ("float32", "float64"), NO, CLOSE),
    *each("median nanmedian", "paddle.NAME({different}, axis={axis}, keepdim={flag})", ("float32", "float64"), YES, CLOSE, top),
    Row("paddle.nanmedian({x}, axis={axis})", ("float32", "float64", "int32", "int64"), NO, CLOSE),
    Row("paddle.quantile({x:1+}, {number:0 1}, axis={axis})", ("float32", "float64"), NO, CLOSE),
    Row("paddle.unique({x})", ("float32", "float64", "int32", "int64"), NO, EXACT),
    # Of NaN Paddle's CPU writes beyond its result.
    Row("paddle.unique_consecutive(paddle.nan_to_num({x}))", ("float32", "float64"), NO, EXACT),
    Row("paddle.unique_consecutive({x})", ("int32", "int64"), NO, EXACT),
    Row("paddle.bincount({i}, minlength={integer:0 5})", ("int32", "int64"), NO, EXACT,
        lambda draw: {"i": draw.indices((draw.random.randint(1, 9),), 6, draw.type)}),
    Row("paddle.histogram({x}, bins={integer:1 9}, min=-3, max=3)", ("float32", "int32", "int64"), NO, EXACT),
    Row("paddle.trace({x:2+}, offset={integer:-2 2})", FLOATS, YES, SUM),
    Row("paddle.nonzero({x})", EVERY, NO, EXACT),
    Row("paddle.diff({x:1+}, axis={axis})", ("float32", "float64", "int32", "int64"), YES, CLOSE),
    Row("F.softmax({x}, axis={axis})", FLOATS, YES, SUM),
    Row("F.log_softmax({x}, axis={axis})", FLOATS, YES, SUM),
    Row("F.softmax({x}, axis={axis}, dtype={type:float32 float64})", ("float32",), YES, SUM),
    Row("{x}.sum()", (*FLOATS, "int32", "int64", "bool"), YES, SUM),
    Row("{x}.mean()", FLOATS, YES, SUM),
    Row("{x}.max({axis})", FLOATS, YES, EXACT),
    Row("{x}.min({axis})", FLOATS, YES, EXACT),
    Row("paddle.nn.clip.clip_by_norm({x}, {number:0.5 3})", ("float32",), NO, SUM),
    Row("paddle.renorm({x:2+}, {number:1 3}, 0, {number:0.5 3})", ("float32", "float64"), YES, SUM),
]
