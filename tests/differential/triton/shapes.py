"""Operations of random kernels on whole tiles: shapes, reductions, scans, products, sorting."""

from __future__ import annotations

from math import prod

from .elements import BF16, BOOL, F16, F32, F64, I8, I32
from .operations import exact, tameness

#: Slow under the interpreter, which calls these for one element at a time; each is associative.
HELPERS = {
    "combine_larger_product": "def combine_larger_product(a, b):\n    return a * b + (a + b)",
    "combine_xor": "def combine_xor(a, b):\n    return a ^ b",
    "combine_both": "def combine_both(a, b, c, d):\n    return a + c, tl.maximum(b, d)",
    "combine_line": "def combine_line(a, b, c, d):\n    return a * c, b * c + d",
    "combine_last": "def combine_last(a, b, c, d):\n    return tl.where(d != 0, c, a), b | d",
    "combine_segments": "def combine_segments(a, b, c, d):\n    return tl.where(d != 0, c, a + c), b | d",
    "combine_roll": "def combine_roll(a, last, now, b, other_last, other_now):\n    return a + b, tl.where(b == 1, now, 0) + other_last, other_now",
}
_PAIRS = ("combine_line", "combine_last", "combine_segments")
_SLOW = 128


def reshaping(maker):
    """Reshape, transpose, new axes, broadcasts."""
    value = maker.pick(lambda v: v.shape != ())
    if value is None:
        return
    random, shape, name = maker.random, value.shape, value.name
    kind = random.choice(("reshape", "permute", "expand", "broadcast", "flip", "ravel"))
    if kind == "reshape":
        shape = maker.shape_of(prod(shape))
        text = f"tl.reshape({name}, {list(shape)})"
    elif kind == "permute" and len(shape) > 1:
        order = random.sample(range(len(shape)), len(shape))
        text, shape = f"tl.permute({name}, {order})", tuple(shape[axis] for axis in order)
    elif kind == "expand" and len(shape) < 3:
        axis = random.randint(0, len(shape))
        text, shape = f"tl.expand_dims({name}, {axis})", (*shape[:axis], 1, *shape[axis:])
    elif kind == "broadcast" and 1 in shape:
        axis = shape.index(1)
        shape = (*shape[:axis], random.choice((2, 4, 8)), *shape[axis + 1 :])
        if prod(shape) > 1024:
            return
        text = f"tl.broadcast_to({name}, {list(shape)})"
    elif kind == "flip" and value.element is not BOOL:
        text = f"tl.flip({name}, {random.randrange(len(shape))})"
    else:
        text, shape = f"tl.ravel({name})", (prod(shape),)
    maker.define(text, value.element, shape, **same(value))


def same(value) -> dict:
    return {"bound": value.bound, "step": value.step} if value.is_tame else {}


def joining(maker):
    """Join, split, cat, interleave."""
    a = maker.pick(lambda v: v.shape != () and prod(v.shape) <= 256)
    if a is None:
        return
    random = maker.random
    b = maker.pick(lambda v: v.shape == a.shape and v.element is a.element)
    tame = tameness("either", a, b, a.element)
    kind = random.choice(("join", "split", "cat", "interleave"))
    if kind == "join" and len(a.shape) < 3:
        maker.define(f"tl.join({a.name}, {b.name})", a.element, (*a.shape, 2), **tame)
    elif kind == "split" and a.shape[-1] == 2 and len(a.shape) > 1:
        first, second = maker.fresh(a.element, a.shape[:-1], **same(a)), maker.fresh(a.element, a.shape[:-1], **same(a))
        maker.say(f"{first.name}, {second.name} = tl.split({a.name})", first, second)
    elif kind == "cat":
        axis = random.randrange(len(a.shape))
        shape = (*a.shape[:axis], a.shape[axis] * 2, *a.shape[axis + 1 :])
        maker.define(f"tl.cat({a.name}, {b.name}, dim={axis})", a.element, shape, **tame)
    elif kind == "interleave" and a.element is not BOOL:
        maker.define(f"tl.interleave({a.name}, {b.name})", a.element, (*a.shape[:-1], a.shape[-1] * 2), **tame)


def broadcasting(maker):
    """A row and a column to a matrix."""
    row = maker.pick(lambda v: len(v.shape) == 1 and v.shape[0] <= 32 and v.element.is_integer)
    column = row and maker.pick(lambda v: len(v.shape) == 1 and v.shape[0] <= 32 and v.element is row.element)
    if column:
        text = f"{column.name}[:, None] {maker.random.choice('+-*^')} {row.name}[None, :]"
        maker.define(f"({text}).to({row.element.triton})", row.element, (column.shape[0], row.shape[0]))


def reduction(maker):
    """Sums, extremes with their places (ties included), exclusive or, and functions of our own."""
    value = maker.pick(lambda v: v.shape != () and v.element is not BOOL)
    if value is None:
        return
    random, name, element = maker.random, value.name, value.element
    axis = random.choice((None, *range(len(value.shape))))
    keep = random.random() < 0.3
    shape = _reduced(value.shape, axis, keep)
    along = f"axis={axis}, keep_dims={keep}"
    count = prod(value.shape) if axis is None else value.shape[axis]
    kinds = ["max", "min"]
    if maker.plain:
        axis = axis or 0
        shape, along, count = _reduced(value.shape, axis, keep), f"axis={axis}, keep_dims={keep}", value.shape[axis]
        kinds += ["sum"] if element.is_integer or value.is_tame else []
    elif element.is_integer:
        kinds += ["sum", "xor_sum", "argmax", "argmin", "places"]
        kinds += ["custom", "pair"] if prod(value.shape) <= _SLOW else []
    elif value.is_tame:
        kinds += ["sum", "argmax", "argmin", "places"]
    kind = random.choice(kinds)
    # The interpreter compares the bits of bfloat16.
    wide = f"{name}.to(tl.float32)" if element is BF16 else name
    if kind in ("argmax", "argmin"):
        if axis is None:
            return
        maker.define(f"tl.{kind}({wide}, {along})", I32, shape)
    elif kind == "places":
        if axis is None:
            return
        best, at = maker.fresh(F32 if element is BF16 else element, shape, visible=False), maker.fresh(I32, shape)
        extreme = random.choice(("max", "min"))
        maker.say(f"{best.name}, {at.name} = tl.{extreme}({wide}, {along}, return_indices=True)", best, at)
        maker.define(f"{best.name}.to({element.triton})" + (" + 0.0" if element.is_float else ""), element, shape, **same(value))
    elif kind == "custom":
        maker.define(f"tl.reduce({name}, {axis}, combine_xor, keep_dims={keep})", element, shape)
    elif kind == "pair" and axis is not None:  # The interpreter flattens the first of several tiles only.
        other = maker.pick(lambda v: v.element is element and v.shape == value.shape)
        first, second = maker.fresh(element, shape), maker.fresh(element, shape)
        # Reductions may take elements in any order: this one is commutative as well.
        maker.say(f"{first.name}, {second.name} = tl.reduce(({name}, {other.name}), {axis}, combine_both, keep_dims={keep})", first, second)
    elif kind == "pair":
        return
    elif element.is_float:
        wide, tame = (name, same(value)) if kind != "sum" else (f"{name}.to(tl.float32)" if element in (F16, BF16) else name, {})
        if kind == "sum":
            result = F64 if element is F64 else F32
            tame = exact(value.bound * count, value.step, result)
            if not tame:
                return
            maker.define(f"tl.sum({wide}, {along}) + 0.0", result, shape, **tame)
        else:
            maker.define(f"tl.{kind}({wide}, {along}).to({element.triton}) + 0.0", element, shape, **tame)
    else:
        maker.define(f"tl.{kind}({name}, {along}).to({element.triton})", element, shape)


def _reduced(shape, axis, keep: bool):
    if axis is None:
        return (1,) * len(shape) if keep else ()
    return (*shape[:axis], *((1,) if keep else ()), *shape[axis + 1 :])


def scan(maker):
    """Running sums and products, and associative functions of our own with one, two or three results, both ways."""
    value = maker.pick(lambda v: v.shape != () and (v.element.is_integer or v.is_tame))
    if value is None:
        return
    random, name, element = maker.random, value.name, value.element
    axis, reverse = random.randrange(len(value.shape)), random.random() < 0.5
    along = f"axis={axis}, reverse={reverse}"
    if element.is_float:
        tame = exact(value.bound * value.shape[axis], value.step, element)
        if tame and element in (F32, F64):
            maker.define(f"tl.cumsum({name}, {along}) + 0.0", element, value.shape, **tame)
        return
    kind = random.choice(("cumsum", "cumprod", "one", "two", "three") if prod(value.shape) <= _SLOW else ("cumsum", "cumprod"))
    if kind in ("cumsum", "cumprod"):
        maker.define(f"tl.{kind}({name}, {along}).to({element.triton})", element, value.shape)
    elif kind == "one":
        maker.define(f"tl.associative_scan({name}, {axis}, {random.choice(('combine_xor', 'combine_larger_product'))}, reverse={reverse})", element, value.shape)
    elif kind == "two":
        other = maker.pick(lambda v: v.element is element and v.shape == value.shape)
        first, second = maker.fresh(element, value.shape), maker.fresh(element, value.shape)
        text = f"tl.associative_scan(({name}, {other.name}), {axis}, {random.choice(_PAIRS)}, reverse={reverse})"
        maker.say(f"{first.name}, {second.name} = {text}", first, second)
    else:
        # Triton's own tests have this one; it is associative where the first operand is a count of ones.
        one = maker.define(f"tl.full({list(value.shape)}, 1, {element.triton})", element, value.shape)
        results = [maker.fresh(element, value.shape) for _ in range(3)]
        text = f"tl.associative_scan(({one.name}, {one.name} * 0, {name}), {axis}, combine_roll, reverse={reverse})"
        maker.say(f"{', '.join(result.name for result in results)} = {text}", *results)


def product(maker):
    """`tl.dot` of what is exact in any order, with and without an accumulator."""
    random = maker.random
    m, k, n = (random.choice((16, 16, 32)) for _ in range(3))
    element = random.choice((F16, F16, BF16, F32, I8))
    a, b = maker.operand(element, (m, k)), maker.operand(element, (k, n))
    if a is None or b is None:
        return
    result = I32 if element is I8 else F32
    tame = {} if element is I8 else exact(a.bound * b.bound * k, a.step * b.step, F32)
    if element is not I8 and not tame:
        return
    precision = ', input_precision="ieee"' if element is F32 else ""
    accumulator = maker.pick(lambda v: v.element is result and v.shape == (m, n) and (v.is_tame or result is I32))
    text = f"tl.dot({a.name}, {b.name}{precision}" + (", out_dtype=tl.int32" if element is I8 else "")
    if accumulator is not None and random.random() < 0.7:
        sums = exact(tame["bound"] + accumulator.bound, min(tame["step"], accumulator.step), F32) if tame else {}
        if tame and not sums:
            return
        text, tame = f"tl.dot({a.name}, {b.name}, {accumulator.name}{precision}" + (", out_dtype=tl.int32" if element is I8 else ""), sums
    maker.define(text + ")" + (" + 0.0" if tame else ""), result, (m, n), **tame)


def arranging(maker):
    """Gather, sort, histogram."""
    random = maker.random
    kind = random.choice(("gather", "gather", "sort", "histogram"))
    if kind == "gather":
        value = maker.pick(lambda v: v.shape != ())
        index = value and maker.pick(lambda v: v.shape == value.shape and v.element.is_integer)
        if index:
            axis = random.randrange(len(value.shape))
            text = f"tl.gather({value.name}, ({index.name} & {value.shape[axis] - 1}).to(tl.int32), {axis})"
            maker.define(text, value.element, value.shape, **same(value))
    elif kind == "sort":
        value = maker.pick(lambda v: v.shape != () and v.shape[-1] > 1 and prod(v.shape) <= 64 and v.element.is_integer)
        if value is not None:
            maker.define(f"tl.sort({value.name}, descending={random.random() < 0.5})", value.element, value.shape)
    else:
        value = maker.pick(lambda v: len(v.shape) == 1 and v.element.name == "int32")
        if value is not None:
            bins = random.choice((4, 8, 32))
            maker.define(f"tl.histogram({value.name} & {2 * bins - 1}, {bins})", I32, (bins,))
