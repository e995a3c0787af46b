"""Functions in place, on tensors of their own and on views of others, and methods whose function stands elsewhere."""

from ..draw import FLOATS, Draw
from ..row import BITS, CLOSE, EVERY, EXACT, NO, NUMBERS, SUM, WIDE, YES, Row
from .elementwise import each


def viewed(draw: Draw) -> dict[str, object]:
    """A tensor and a view of it, of which one axis is cut."""
    shape = draw.shape(1, 4, empty=False)
    start, step = draw.random.randint(0, max(shape[0] - 1, 0)), draw.random.randint(1, 3)
    rest = len(range(start, shape[0], step))
    return {"x": draw.tensor(shape), "cut": f"{start}::{step}", "s": draw.tensor((rest, *shape[1:])), "number": round(draw.random.uniform(-2, 2), 2), "order": draw.order(len(shape))}


def filled(draw: Draw) -> dict[str, object]:
    shape = draw.shape(0, 4)
    return {"x": draw.tensor(shape), "mask": draw.tensor(shape, "bool"), "number": round(draw.random.uniform(-2, 2), 2), "s": draw.tensor(shape)}


ROWS = [
    *each("abs_ ceil_ cos_ exp_ floor_ neg_ reciprocal_ round_ rsqrt_ sigmoid_ sin_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ log_ log2_ log1p_", "{x}.NAME()", FLOATS, NO, CLOSE),
    *each("exp_ tanh_ sigmoid_ sin_ floor_ round_ reciprocal_", "({x:positive} * 1).NAME()", ("float32", "float64"), YES, CLOSE),
    *each("relu_ elu_ leaky_relu_ hardtanh_ thresholded_relu_", "F.NAME({x})", FLOATS, NO, CLOSE),
    *each("add_ subtract_ multiply_", "{x}.NAME({y})", NUMBERS, NO, CLOSE),
    Row("{x}.divide_({y:nonzero})", FLOATS, NO, CLOSE),
    *each("floor_divide_ remainder_ mod_", "{x}.NAME({y:nonzero})", (*WIDE, *FLOATS), NO, EXACT),
    *each("equal_ not_equal_ less_than_ greater_than_ less_equal_ greater_equal_", "{x}.NAME({y})", ("float32", "int64", "bool"), NO, EXACT),
    *each("logical_and_ logical_or_ logical_xor_", "{x}.NAME({y})", EVERY, NO, EXACT),
    *each("bitwise_and_ bitwise_or_ bitwise_xor_", "{x}.NAME({y})", BITS, NO, EXACT),
    Row("{x}.bitwise_not_()", BITS, NO, EXACT),
    Row("{x}.logical_not_()", EVERY, NO, EXACT),
    Row("{x}.clip_({number:-2 0}, {number:0 2})", FLOATS, NO, EXACT),
    Row("{x}.scale_({number}, {number2})", WIDE, NO, CLOSE),
    Row("{x:positive}.pow_({number})", FLOATS, NO, CLOSE),
    Row("{x}.lerp_({s}, {number})", FLOATS, NO, CLOSE),
    Row("{x}.cumsum_(axis={axis})", FLOATS, NO, SUM),
    Row("{x}.cast_({type})", EVERY, NO, EXACT),
    Row("{x}.zero_()", EVERY, NO, EXACT),
    Row("{x}.fill_({integer:0 9})", EVERY, NO, EXACT),
    Row("{x:2+}.fill_diagonal_({integer:0 9})", ("float32", "float64", "int32", "int64"), NO, EXACT),
    Row("{x}.masked_fill_({mask}, {number})", FLOATS, NO, EXACT, filled),
    Row("paddle.where_({mask}, {x}, {s})", FLOATS, NO, EXACT, filled),
    *each("tril_ triu_", "{x:2+}.NAME({integer:-2 2})", ("float32", "float64", "int32", "bool"), NO, EXACT),
    Row("{x}.flatten_()", EVERY, NO, EXACT),
    Row("{x}.reshape_([-1])", EVERY, NO, EXACT),
    Row("{x}.squeeze_()", EVERY, NO, EXACT),
    Row("{x}.unsqueeze_({axis})", EVERY, NO, EXACT),
    Row("{x:2+}.transpose_({order})", EVERY, NO, EXACT),
    Row("{x}.set_value({x}.numpy() * 0)", ("float32", "int64"), NO, EXACT),
    Row("paddle.assign({s}, output={x})", EVERY, NO, EXACT),
    # Into a view: what surrounds it must stay.
    Row("changed({x}, lambda x: x[{cut}].add_({s}))", (*WIDE, *FLOATS), NO, CLOSE, viewed),
    Row("changed({x}, lambda x: x[{cut}].multiply_({s}))", (*WIDE, *FLOATS), NO, CLOSE, viewed),
    Row("changed({x}, lambda x: x[{cut}].exp_())", FLOATS, NO, CLOSE, viewed),
    Row("changed({x}, lambda x: x[{cut}].scale_({number}))", FLOATS, NO, CLOSE, viewed),
    Row("changed({x}, lambda x: x[{cut}].zero_())", EVERY, NO, EXACT, viewed),
    Row("changed({x}, lambda x: x[{cut}].fill_({number}))", FLOATS, NO, EXACT, viewed),
    Row("changed({x}, lambda x: x[{cut}].copy_({s}, False))", EVERY, NO, EXACT, viewed),
    Row("changed({x}, lambda x: x.transpose({order}).tanh_())", FLOATS, NO, CLOSE, viewed),
    Row("changed({x}, lambda x: x.transpose({order}).clip_(-0.5, 0.5))", FLOATS, NO, EXACT, viewed),
    Row("changed({x}, lambda x: x.transpose({order})[0].add_(x.transpose({order})[-1]))", FLOATS, NO, CLOSE, viewed),
    Row("changed({x} * 1, lambda x: x[{cut}].add_({s}))", ("float32", "float64"), YES, CLOSE, viewed),
    Row("changed({x} * 1, lambda x: x[{cut}].tanh_())", ("float32", "float64"), YES, CLOSE, viewed),
    # Chains of views.
    Row("({x}.transpose({order})[{cut}] + 1) * {number}", FLOATS, YES, CLOSE, lambda draw: {**viewed(draw), "cut": "::2"}),
    Row("{x}.transpose({order}).reshape([-1])[::2].sum()", FLOATS, YES, SUM, viewed),
    Row("{x:2+}.transpose({order}).sum(0).max()", ("float32", "float64"), YES, SUM),
    Row("paddle.concat([{x:1}[::2], {x2:1}[:1]], 0)", ("float32", "float64"), YES, EXACT),
    Row("{x}[{cut}].matmul({x}[{cut}].t())", ("float32", "float64"), YES, SUM, lambda draw: {"x": draw.tensor(draw.shape(2, 2, empty=False)), "cut": "::2"}),
    Row("({x} * {x}).sum() + {x}.mean()", ("float32", "float64"), YES, SUM),
]
