"""Functions that move elements: reshapes, transposes, joins, repeats, padding, and tensors from nothing."""

from ..draw import FLOATS, Draw
from ..row import CLOSE, EXACT, NO, SUM, YES, Row
from .elementwise import each

# Bytes of an element.
SIZES = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
MOST = ("bool", "uint8", "int8", "int16", "int32", "int64", *FLOATS)


def reshaped(draw: Draw) -> dict[str, object]:
    """The same elements in another shape, with a -1 now and then."""
    shape = draw.shape()
    sizes, rest = [], list(shape)
    while rest:
        taken = draw.random.randint(1, len(rest))
        product = 1
        for size in rest[:taken]:
            product *= size
        sizes, rest = [*sizes, product], rest[taken:]
    if draw.chance(0.3):
        sizes.insert(draw.random.randint(0, len(sizes)), 1)
    if sizes and 0 not in sizes and draw.chance(0.4):
        sizes[draw.random.randrange(len(sizes))] = -1
    if sizes and draw.chance(0.03):
        sizes[0] = 11
    return {"x": draw.tensor(shape), "shape": sizes}


def joined(draw: Draw) -> dict[str, object]:
    """Tensors that differ in one dimension."""
    shape = draw.shape(1, 5)
    axis = draw.random.randint(-len(shape), len(shape) - 1)
    parts = []
    for _ in range(draw.random.randint(1, 4)):
        sizes = list(shape)
        sizes[axis] = draw.random.choice((0, 1, 2, 3, 5))
        if draw.chance(0.02):
            sizes[0] += 1
        parts.append(draw.tensor(tuple(sizes)))
    return {"parts": f"[{', '.join(parts)}]", "axis": axis}


def equal(draw: Draw) -> dict[str, object]:
    """Tensors of one shape."""
    shape = draw.shape(0, 4)
    parts = [draw.tensor(shape) for _ in range(draw.random.randint(1, 4))]
    return {"parts": f"[{', '.join(parts)}]", "axis": draw.random.randint(-len(shape) - 1, len(shape))}


def divided(draw: Draw) -> dict[str, object]:
    """A tensor, an axis, and into how many parts or which."""
    shape = list(draw.shape(1, 5))
    axis = draw.random.randint(-len(shape), len(shape) - 1)
    if draw.chance(0.5):
        parts = draw.random.randint(1, 3)
        shape[axis] = parts * draw.random.randint(1, 3) + (1 if draw.chance(0.04) else 0)
    else:
        parts = [draw.random.randint(1, 3) for _ in range(draw.random.randint(1, 3))]
        shape[axis] = sum(parts)
        if draw.chance(0.3):
            parts[draw.random.randrange(len(parts))] = -1
    return {"x": draw.tensor(tuple(shape)), "parts": parts, "axis": axis}


def expanded(draw: Draw) -> dict[str, object]:
    shape = draw.shape(0, 4)
    target = [draw.random.randint(1, 4) if size == 1 and draw.chance(0.7) else size for size in shape]
    target = [draw.random.randint(1, 3) for _ in range(draw.random.randint(0, 2))] + target
    if target and draw.chance(0.04):
        target[-1] += 1
    return {"x": draw.tensor(shape), "shape": target, "to": draw.tensor(tuple(target))}


def padded(draw: Draw) -> dict[str, object]:
    """Images or rows with padding on the sides, by every mode."""
    rank = draw.random.choice((3, 4, 5))
    shape = draw.shape(rank, rank, empty=False)
    mode = draw.word("constant", "reflect", "replicate", "circular")
    sides = [draw.random.randint(0, 2) for _ in range(2 * (rank - 2))]
    layout = {3: ("NCL", "NLC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[rank]
    return {"x": draw.tensor(shape), "sides": sides, "mode": mode, "layout": draw.word(*layout), "value": draw.pick(0.0, 1.5)}


def every_side(draw: Draw) -> dict[str, object]:
    shape = draw.shape(1, 6)
    return {"x": draw.tensor(shape), "sides": [draw.random.randint(0, 2) for _ in range(2 * len(shape))]}


def rolled(draw: Draw) -> dict[str, object]:
    shape = draw.shape(1, 5)
    axes = draw.random.sample(range(len(shape)), draw.random.randint(1, len(shape)))
    return {"x": draw.tensor(shape), "shifts": [draw.random.randint(-9, 9) for _ in axes], "axes": axes}


def strided(draw: Draw) -> dict[str, object]:
    """A tensor in one dimension and windows over it, from an offset in bytes."""
    shape = draw.shape(0, 4)
    strides = [draw.random.randint(0, 4) for _ in shape]
    offset = draw.random.randint(0, 3)
    length = 1 + offset + sum(max(size - 1, 0) * stride for size, stride in zip(shape, strides))
    return {"x": draw.dense((length,), draw.type, "any"), "shape": list(shape), "strides": strides, "offset": offset * SIZES[draw.type]}


def blocks(draw: Draw) -> dict[str, object]:
    factor = draw.random.randint(1, 3)
    n, c, h, w = (draw.random.randint(1, 3) for _ in range(4))
    return {"f": factor, "deep": draw.tensor((n, c * factor * factor, h, w)), "wide": draw.tensor((n, c, h * factor, w * factor)), "g": draw.tensor((n, c * factor, h, w))}


def sized(draw: Draw) -> dict[str, object]:
    return {"shape": list(draw.shape(0, 5))}


ROWS = [
    Row("paddle.reshape({x}, {shape})", MOST, YES, EXACT, reshaped),
    Row("{x}.reshape({shape})", MOST, YES, EXACT, reshaped),
    Row("{x}.flatten()", MOST, YES, EXACT),
    Row("paddle.flatten({x:2+}, {integer:0 1}, {integer:-1 1})", MOST, YES, EXACT),
    Row("paddle.transpose({x}, {order})", MOST, YES, EXACT),
    Row("{x:0-2}.t()", MOST, YES, EXACT),
    Row("{x:2+}.T", MOST, YES, EXACT),
    Row("{x:2+}.mT", MOST, YES, EXACT),
    Row("paddle.moveaxis({x:1+}, {axis}, {axis2})", MOST, YES, EXACT),
    Row("paddle.swapaxes({x:1+}, {axis}, {axis2})", MOST, YES, EXACT),
    Row("paddle.squeeze({x})", MOST, YES, EXACT),
    Row("paddle.squeeze({x}, axis={axis})", MOST, YES, EXACT),
    Row("paddle.unsqueeze({x}, axis={axis})", MOST, YES, EXACT),
    Row("paddle.concat({parts}, axis={axis})", MOST, YES, EXACT, joined),
    Row("paddle.stack({parts}, axis={axis})", MOST, YES, EXACT, equal),
    *each("hstack vstack dstack column_stack row_stack", "paddle.NAME({parts})", MOST, NO, EXACT, equal),
    Row("paddle.broadcast_tensors([{x}, {y}])", FLOATS, YES, EXACT),
    Row("paddle.meshgrid([{x:1}, {x2:1}])", FLOATS, YES, EXACT),
    Row("paddle.meshgrid([{x:1}, {x2:1}, {x3:1}])", ("int32", "float32"), NO, EXACT),
    Row("paddle.split({x}, {parts}, axis={axis})", MOST, YES, EXACT, divided),
    Row("paddle.chunk({x:1+}, {integer:1 3}, axis={axis})", MOST, YES, EXACT),
    Row("paddle.tensor_split({x:1+}, {integer:1 4}, axis={axis})", MOST, NO, EXACT),
    Row("paddle.unbind({x:1+}, axis={axis})", MOST, YES, EXACT),
    Row("paddle.unstack({x:1+}, axis={axis})", MOST, YES, EXACT),
    Row("paddle.expand({x}, {shape})", MOST, YES, EXACT, expanded),
    Row("paddle.expand_as({x}, {to})", MOST, YES, EXACT, expanded),
    Row("paddle.broadcast_to({x}, {shape})", MOST, YES, EXACT, expanded),
    Row("{x}.expand({shape})", MOST, YES, EXACT, expanded),
    Row("paddle.tile({x}, [{integer:1 3}, {integer2:1 3}])", MOST, YES, EXACT),
    Row("paddle.tile({x:1-3}, [{integer:0 3}])", MOST, YES, EXACT),
    Row("paddle.repeat_interleave({x}, {integer:1 3}, axis={axis})", ("float32", "float64", "int32", "int64"), YES, EXACT),
    Row("paddle.flip({x}, axis={axis})", MOST, YES, EXACT),
    Row("paddle.flip({x:2+}, axis=[0, -1])", MOST, YES, EXACT),
    Row("paddle.rot90({x:2+}, {integer:-3 3}, [0, 1])", MOST, NO, EXACT),
    Row("paddle.roll({x}, {shifts}, {axes})", MOST, YES, EXACT, rolled),
    Row("paddle.roll({x}, {integer:-9 9})", MOST, YES, EXACT),
    Row("F.pad({x}, {sides}, mode={mode}, value={value}, data_format={layout})", ("float32", "float64", "float16", "int32", "int64"), YES, EXACT, padded),
    Row("F.pad({x}, {sides}, value={number})", ("float32", "float64", "float16", "bfloat16", "int32", "int64"), YES, EXACT, every_side),
    Row("F.zeropad2d({x:4}, [{integer:0 2}, {integer2:0 2}, {integer3:0 2}, {integer4:0 2}])", FLOATS, YES, EXACT),
    *each("tril triu", "paddle.NAME({x:2+}, diagonal={integer:-3 3})", MOST, YES, EXACT),
    Row("paddle.diag({x:1-2}, offset={integer:-2 2})", ("float32", "float64", "int32", "int64", "float16"), YES, EXACT),
    Row("paddle.diagonal({x:2+}, offset={integer:-2 2})", MOST, YES, EXACT),
    Row("paddle.diagonal({x:3+}, offset={integer:-2 2}, axis1=-1, axis2=0)", MOST, YES, EXACT),
    Row("paddle.diagflat({x:1-2}, offset={integer:-2 2})", ("float32", "int64"), NO, EXACT),
    Row("paddle.diag_embed({x:1-3}, offset={integer:-2 2})", ("float32", "float64", "int32", "int64"), NO, EXACT),
    Row("paddle.as_strided({x}, {shape}, {strides}, {offset})", MOST, NO, EXACT, strided),
    Row("paddle.view({x}, {type:int32 float32})", ("float32", "int32"), NO, EXACT),
    Row("{x:1}.unfold(0, {integer:1 3}, {integer2:1 3})", MOST, YES, SUM),
    Row("F.pixel_shuffle({deep}, {f})", FLOATS, YES, EXACT, blocks),
    Row("F.pixel_unshuffle({wide}, {f})", ("float32", "float64"), YES, EXACT, blocks),
    Row("F.channel_shuffle({g}, {f})", ("float32", "float64"), YES, EXACT, blocks),
    Row("paddle.crop({x:2}, shape=[{integer:1 2}, 1], offsets=[0, 0])", ("float32", "float64", "int32", "int64"), NO, EXACT),
    Row("paddle.kron({x:1-2}, {s})", ("float32", "float64"), YES, SUM),
    *each("atleast_1d atleast_2d atleast_3d", "paddle.NAME({x})", MOST, NO, EXACT),
    # From nothing, or from a shape.
    *each("zeros_like ones_like", "paddle.NAME({x})", MOST, NO, EXACT),
    Row("paddle.full_like({x}, {integer:-3 3})", MOST, NO, EXACT),
    *each("zeros ones", "paddle.NAME({shape}, dtype={type})", ("float32",), NO, EXACT, sized),
    Row("paddle.full({shape}, {integer:-3 9}, dtype={type})", ("float32",), NO, EXACT, sized),
    Row("paddle.full({shape}, {number}, dtype={type:float16 bfloat16 float32 float64})", ("float32",), NO, EXACT, sized),
    Row("paddle.arange({integer:-9 9}, {integer2:-9 20}, {integer3:1 4}, dtype={type:int32 int64 float32 float64})", ("float32",), NO, CLOSE),
    Row("paddle.arange({number}, {number2:2 9}, {number3:0.1 2})", ("float32",), NO, SUM),
    Row("paddle.linspace({number}, {number2}, {integer:1 30}, dtype={type:float32 float64 int32 int64})", ("float32",), NO, SUM),
    Row("paddle.logspace({number}, {number2}, {integer:1 30})", ("float32",), NO, SUM),
    Row("paddle.eye({integer:1 9}, {integer2:1 9}, dtype={type:float16 bfloat16 float32 float64 int32 int64})", ("float32",), NO, EXACT),
    Row("paddle.tril_indices({integer:1 6}, {integer2:1 6}, {integer3:-3 3})", ("float32",), NO, EXACT),
    Row("paddle.triu_indices({integer:1 6}, {integer2:1 6}, {integer3:-3 3})", ("float32",), NO, EXACT),
    Row("paddle.shape({x})", MOST, NO, EXACT),
    Row("{x}.contiguous()", MOST, YES, EXACT),
    Row("{x}.numpy().tolist()", ("float32", "int64"), NO, EXACT),
    Row("{x:0}.item()", MOST, NO, EXACT),
]
