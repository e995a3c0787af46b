"""Gradients as values, whose own gradients are compared: second derivatives, third ones by a slope of a slope."""

from ..draw import Draw
from ..row import CLOSE, SINGLE, SUM, YES, Row
from .elementwise import each
from .networks import finite_matrices, images


def square_images(draw: Draw) -> dict[str, object]:
    """Images without a padding by name: which rows it adds, a second derivative need not know."""
    return {**images(draw), "padding": draw.pick(0, 1, [1, 2])}


def alike(draw: Draw) -> dict[str, object]:
    draw.special = False
    return {}


ROWS = [
    *each("tanh sigmoid sin cos square abs exp", "slope(lambda x: paddle.NAME(x), {x})", SINGLE, YES, SUM, alike),
    *each("tanh sin cos", "slope(lambda x: slope(lambda x: paddle.NAME(x), x)[0], {x})", SINGLE, YES, SUM, alike),
    *each("sqrt rsqrt log", "slope(lambda x: paddle.NAME(x), {x:positive})", SINGLE, YES, SUM, alike),
    *each("relu leaky_relu elu celu softplus silu", "slope(lambda x: F.NAME(x), {x})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x: paddle.pow(x, {number:0.5 3}), {x:positive})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x: slope(lambda x: paddle.pow(x, 3.0), x)[0], {x:positive})", SINGLE, YES, SUM, alike),
    *each("add subtract multiply", "slope(lambda x, y: paddle.NAME(x, y), {x}, {same})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x, y: x * y * y, {x}, {same})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x, y: paddle.divide(x, y), {x}, {same:positive})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x, y: paddle.maximum(x, y) * x, {x}, {same})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x, y: paddle.matmul(x, y), {m1}, {m2})", SINGLE, YES, SUM, finite_matrices),
    Row("slope(lambda x, y: paddle.matmul(x, y), {b1}, {b2})", SINGLE, YES, SUM, finite_matrices),
    Row("slope(lambda x, y: paddle.matmul(x, y, transpose_y=True), {m1}, {square} @ {m1})", SINGLE, YES, SUM, finite_matrices),
    Row("slope(lambda x, w: F.conv2d(x, w, stride={stride}, padding={padding}, dilation={dilation}, groups={groups}), {x}, {w})", SINGLE, YES, SUM, square_images),
    Row("slope(lambda x, w: F.conv3d(x, w, stride={stride}, padding=1), {x}, {w})", SINGLE, YES, SUM,
        lambda draw: {"x": draw.tensor((1, 2, 3, 4, 3)), "w": draw.tensor((3, 2, 2, 3, 1)), "stride": draw.pick(1, 2)}),
    Row("slope(lambda x: (x.reshape([-1]) * x.reshape([-1])), {x})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x: (x.T * 2 + x.T * x.T), {x:2-3})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x, y: paddle.concat([x * y, y * y], axis={axis}), {x:1+}, {same})", SINGLE, YES, SUM, alike),
    *each("sum mean", "slope(lambda x: paddle.NAME(x * x, axis={axis}), {x:1+})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x: x.expand([3, *x.shape]) * x, {x:1-3})", SINGLE, YES, SUM, alike),
    Row("slope(lambda x: paddle.tile(x, [2, 1]) * 3, {x:2})", SINGLE, YES, CLOSE, alike),
    Row("slope(lambda x: (paddle.sum(x * x, axis=-1).sqrt() - 1) ** 2, {x:positive})", SINGLE, YES, SUM, lambda draw: {"x": draw.tensor((4, 6), domain="positive")}),
]
