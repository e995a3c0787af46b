"""Functions that read or write by index: gather, scatter, masks, x[i] and x[i] = y."""

import numpy as np

from ..draw import FLOATS, Draw, Shape
from ..row import EVERY, EXACT, NO, SUM, YES, Row
from .elementwise import each

TYPES = (*FLOATS, "int32", "int64")
ALL = ("bool", "uint8", "int8", "int16", *TYPES)


def rows_of(draw: Draw) -> dict[str, object]:
    """A tensor, an axis and indices into it."""
    shape = draw.shape(1, 5)
    axis = draw.random.randint(-len(shape), len(shape) - 1)
    # Into nothing the CPU writes without a word.
    count = draw.random.choice((0, 1, 2, 5, 9)) if 0 not in shape else 0
    updates = list(shape)
    updates[axis] = count
    return {
        "x": draw.tensor(shape),
        "axis": draw.axis(len(shape)) if draw.chance(0.03) else axis,
        "i": draw.indices((count,), shape[axis]),
        "within": f'T({[draw.random.randrange(max(shape[axis], 1)) for _ in range(count)]}, [{count}], "int64")',
        "n": draw.indices((count,), shape[axis], negative=True),
        "updates": draw.tensor(tuple(updates)),
        "first": draw.indices((count,), shape[0]),
        "rows": draw.tensor((count, *shape[1:])),
        "value": round(draw.random.uniform(-2, 2), 2),
    }


def unique_rows(draw: Draw) -> dict[str, object]:
    """As `rows_of`, with no index twice: what is written last is not defined otherwise."""
    shape = draw.shape(1, 5, empty=False)
    axis = draw.random.randint(-len(shape), len(shape) - 1)
    made = {"x": draw.tensor(shape), "axis": axis, "value": round(draw.random.uniform(-2, 2), 2)}
    for name, size in (("i", shape[axis]), ("first", shape[0])):
        chosen = draw.random.sample(range(size), draw.random.randint(1, size))
        made[name] = f'T({chosen}, [{len(chosen)}], "{draw.pick("int32", "int64")}")'
        other = list(shape)
        other[axis if name == "i" else 0] = len(chosen)
        made["updates" if name == "i" else "rows"] = draw.tensor(tuple(other))
    return made


def tuples(draw: Draw) -> dict[str, object]:
    """Tuples of indices, as gather_nd and scatter_nd take them."""
    shape = draw.shape(1, 5, empty=False)
    depth = draw.random.randint(1, len(shape))
    outer = draw.shape(0, 2)
    flat = []
    count = 1
    for size in outer:
        count *= size
    for _ in range(count):
        flat += [draw.random.randrange(size) for size in shape[:depth]]
    if flat and draw.chance(0.03):
        flat[0] = draw.pick(100, -100)
    kind = draw.pick("int32", "int64")
    return {"x": draw.tensor(shape), "i": f'T({flat}, {[*outer, depth]}, "{kind}")', "updates": draw.tensor((*outer, *shape[depth:])), "shape": list(shape)}


def along(draw: Draw) -> dict[str, object]:
    """Indices of the tensor's rank, one for each element."""
    shape = draw.shape(1, 4, empty=False)
    axis = draw.random.randint(-len(shape), len(shape) - 1)
    wanted = list(shape)
    wanted[axis] = draw.random.choice((1, 2, 5))
    place = axis % len(shape)
    # No element is written twice: along the axis, the indices are a permutation's beginning.
    wanted[axis] = min(wanted[axis], shape[axis])
    order = draw.random.sample(range(shape[axis]), wanted[axis])
    inner = 1
    for size in wanted[place + 1 :]:
        inner *= size
    outer = 1
    for size in wanted[:place]:
        outer *= size
    flat = [index for _ in range(outer) for index in order for _ in range(inner)]
    return {
        "x": draw.tensor(shape),
        "axis": axis,
        "i": draw.indices(tuple(wanted), shape[axis], "int64"),
        "u": f'T({flat}, {wanted}, "int64")',
        "values": draw.tensor(tuple(wanted)),
        "value": round(draw.random.uniform(-2, 2), 2),
    }


def sampled(draw: Draw) -> dict[str, object]:
    rows, columns = draw.shape(2, 2, empty=False)
    return {"x": draw.tensor((rows, columns)), "i": draw.indices((rows, draw.random.randint(1, 4)), columns)}


def once(draw: Draw, shape: Shape, size: int) -> str:
    """Indices of which none comes twice, in as much of the shape as there are."""
    count = min(int(np.prod(shape, dtype=np.int64)), size)
    chosen = [index - size * draw.chance(0.3) for index in draw.random.sample(range(size), count)]
    return f'T({chosen}, [{count}], "int64")'


def part(draw: Draw, size: int, reverses: bool = True) -> str:
    """One entry of an index. Paddle's CPU reads beyond its memory where a list stands beside a negative step."""
    match draw.random.randrange(9):
        case 0 | 1:
            return repr(draw.axis(size)) if size else ":"
        case 2 | 3:
            return f"{draw.pick('', 0, 1, -2, -1)}:{draw.pick('', 1, 2, -1, size)}"
        case 4:
            return f"{draw.pick('', 1, 0)}::{draw.pick(1, 2, 3)}"
        case 5 if reverses:
            return f"::{draw.pick(-1, -2)}"
        case 6:
            return "None"
        case 7 if size and not reverses:
            chosen = draw.random.sample(range(size), draw.random.randint(1, min(size, 3)))
            return repr([index - size * draw.chance(0.3) for index in chosen])
    return ":"


def index_of(draw: Draw, shape: Shape, twice: bool = True) -> str:
    """What stands between the brackets of x[...], with indices that come twice or without."""
    if not shape:
        return draw.pick("...", "None", "()", "True" if draw.chance(0.2) else "...")
    match draw.random.randrange(8):
        case 0:
            return draw.dense(shape, "bool", "any")
        case 1:
            return draw.dense(shape[:1], "bool", "any")
        case 2 if not twice:
            return once(draw, draw.shape(1, 2), shape[0])
        case 2:
            return draw.indices(draw.shape(0, 2), max(shape[0], 1), "int64", negative=True)
        case 3 if len(shape) > 1 and not twice:
            return once(draw, (3,), shape[0]) + ", " + repr(draw.axis(shape[1]))
        case 3 if len(shape) > 1:
            outer = draw.shape(1, 2)
            return ", ".join(draw.indices(outer, max(size, 1), "int64") for size in shape[:2])
        case 4:
            return f"..., {part(draw, shape[-1])}"
    entries, lists, reverses = [], 0, draw.chance(0.5)
    for size in shape[: draw.random.randint(1, len(shape))]:
        entry = part(draw, size, reverses)
        lists += entry.startswith("[")
        entries.append(":" if entry.startswith("[") and lists > 1 else entry)
    return ", ".join(entries)


def written_once(draw: Draw) -> dict[str, object]:
    """As `items`, with no index twice: which of the values has the gradient is not what Paddle's CPU says."""
    return items(draw, twice=False)


def items(draw: Draw, twice: bool = True) -> dict[str, object]:
    shape = draw.shape(0, 5)
    number = repr(draw.number(draw.type, "any")) if draw.chance(0.5) else repr(draw.random.randint(-3, 9) if draw.type != "uint8" else 3)
    # Into nothing the CPU writes without a word.
    return {"x": draw.tensor(shape), "index": "..." if 0 in shape else index_of(draw, shape, twice), "number": number if draw.type != "bool" else "True", "scalar": draw.tensor((1,))}


def picked(draw: Draw) -> dict[str, object]:
    shape = draw.shape(0, 4)
    return {"x": draw.tensor(shape), "s": draw.tensor(shape), "mask": draw.tensor(shape, "bool"), "loose": draw.tensor(draw.partner(shape), "bool"),
            "y": draw.tensor(draw.partner(shape)), "number": round(draw.random.uniform(-2, 2), 2)}  # fmt: skip


def scattered_masks(draw: Draw) -> dict[str, object]:
    shape = draw.shape(1, 3)
    count = 1
    for size in shape:
        count *= size
    return {"x": draw.tensor(shape), "mask": draw.tensor(shape, "bool"), "values": draw.tensor((count + 1,))}


def put(draw: Draw) -> dict[str, object]:
    shape = draw.shape(2, 3, empty=False)
    count = draw.random.randint(1, 4)
    pairs = draw.random.sample([(a, b) for a in range(shape[0]) for b in range(shape[1])], min(count, shape[0] * shape[1]))
    first, second = (f'T({[pair[k] for pair in pairs]}, [{len(pairs)}], "int64")' for k in (0, 1))
    return {"x": draw.tensor(shape), "i": f"({first}, {second})", "values": draw.tensor((len(pairs), *shape[2:]))}


ROWS = [
    Row("paddle.gather({x}, {i}, axis={axis})", ALL, YES, SUM, rows_of),
    Row("paddle.index_select({x}, {i}, axis={axis})", TYPES, YES, SUM, rows_of),
    # The CPU's gradient writes before its memory where an index is negative.
    Row("paddle.index_select({x}, {n}, axis={axis})", TYPES, NO, EXACT, rows_of),
    Row("paddle.take({x}, {i})", TYPES, NO, EXACT, rows_of),
    Row("paddle.index_add({x}, {i}, {axis}, {updates})", ("float32", "float64", "float16", "int32", "int64"), YES, SUM, rows_of),
    Row("paddle.index_fill({x}, {within}, {axis}, {value})", ("float32", "float64"), NO, EXACT, rows_of),
    Row("paddle.scatter({x}, {first}, {rows})", ("float32", "float64", "int32", "int64"), YES, EXACT, unique_rows),
    Row("paddle.scatter({x}, {first}, {rows}, overwrite=False)", ("float32", "float64", "int32", "int64"), YES, SUM, rows_of),
    Row("paddle.gather_nd({x}, {i})", ALL, YES, SUM, tuples),
    Row("paddle.scatter_nd_add({x}, {i}, {updates})", ("float32", "float64", "int32", "int64"), YES, SUM, tuples),
    Row("paddle.scatter_nd({i}, {updates}, {shape})", ("float32", "float64", "int32", "int64"), YES, SUM, tuples),
    Row("paddle.take_along_axis({x}, {i}, {axis})", TYPES, YES, SUM, along),
    Row("paddle.take_along_axis({x}, {i}, {axis}, broadcast=False)", TYPES, YES, SUM, along),
    Row("paddle.put_along_axis({x}, {u}, {values}, {axis})", ("float32", "float64", "int32", "int64"), YES, EXACT, along),
    Row("paddle.put_along_axis({x}, {u}, {value}, {axis})", ("float32", "float64"), YES, EXACT, along),
    *each("add mul multiply amax amin mean", "paddle.put_along_axis({x}, {u}, {values}, {axis}, reduce='NAME')", ("float32", "float64", "int32", "int64"), NO, SUM, along),
    *each("add mul amax amin", "paddle.put_along_axis({x}, {i}, {values}, {axis}, reduce='NAME', broadcast=False)", ("float32", "float64"), NO, SUM, along),
    *each("add", "paddle.put_along_axis({x}, {i}, {values}, {axis}, reduce='NAME')", ("float32", "float64"), YES, SUM, along),
    Row("paddle.index_sample({x}, {i})", ("float32", "float64", "int32", "int64"), YES, SUM, sampled),
    Row("paddle.index_put({x}, {i}, {values})", ("float32", "float64", "int32", "int64"), YES, EXACT, put),
    Row("paddle.index_put({x}, {i}, {values}, accumulate=True)", ("float32", "float64", "int32", "int64"), YES, SUM, put),
    Row("paddle.masked_select({x}, {mask})", TYPES, YES, EXACT, picked),
    Row("paddle.masked_fill({x}, {loose}, {number})", ("float32", "float64", "float16"), YES, EXACT, picked),
    Row("paddle.masked_scatter({x}, {mask}, {values})", ("float32", "float64"), NO, EXACT, scattered_masks),
    Row("paddle.where({mask}, {x}, {s})", ALL, YES, EXACT, picked),
    Row("paddle.where({loose}, {x}, {y})", ALL, YES, EXACT, picked),
    Row("paddle.where({x:1+ bool})", EVERY, NO, EXACT),
    Row("paddle.searchsorted(paddle.sort({x:1}), {x2})", ("float32", "float64", "int32", "int64"), NO, EXACT),
    Row("paddle.bucketize({x2}, paddle.sort({x:1}))", ("float32", "float64"), NO, EXACT),
    Row("F.one_hot({i}, {integer:6 9})", ("int32", "int64"), NO, EXACT, lambda draw: {"i": draw.indices(draw.shape(0, 3), 6, draw.type)}),
    Row("{x}[{index}]", ALL, YES, SUM, items),
    Row("changed({x}, lambda x: operator.setitem(x, INDEX[{index}], {number}))", ALL, NO, EXACT, items),
    Row("changed({x}, lambda x: operator.setitem(x, INDEX[{index}], {scalar}))", ALL, NO, EXACT, items),
    Row("changed({x} * 1, lambda x: operator.setitem(x, INDEX[{index}], {number}))", FLOATS, YES, SUM, written_once),
    Row("changed({x} * 1, lambda x: operator.setitem(x, INDEX[{index}], {scalar}))", FLOATS, YES, SUM, written_once),
    Row("changed({x}, lambda x: operator.setitem(x, INDEX[{index}], x[{index}] + x[{index}]))", TYPES, NO, EXACT, items),
]
