"""Loads, stores and atomics of random kernels: which element each place of a tile is in memory, under which mask.

Every program has a part of each buffer that is written, so that programs do not race; inside its part anything may overlap."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .elements import BOOL, I32, TAME_BOUND, TAME_STEP, Element


@dataclass
class Pointer:
    """A pointer argument: the buffer, the element that it points to, and the elements between one program's part and the next's."""

    name: str
    buffer: int
    element: Element
    offset: int
    span: int
    writable: bool


def axis_range(shape, axis: int) -> str:
    """`tl.arange` along one axis of a tile."""
    index = ", ".join(":" if at == axis else "None" for at in range(len(shape)))
    return f"tl.arange(0, {shape[axis]})" + (f"[{index}]" if len(shape) > 1 else "")


def places(strides, shape) -> str:
    """The sum of the indices by their strides."""
    terms = [axis_range(shape, axis) + (f" * {stride}" if stride != 1 else "") for axis, stride in enumerate(strides)]
    return " + ".join(terms)


def dense(shape) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _layout(maker, shape, room: int, duplicates: bool) -> tuple[str, int]:
    """An expression of a tile's places and the largest of them; distinct unless duplicates may be."""
    random, count = maker.random, prod(shape)
    order = list(range(len(shape)))
    if random.random() < 0.4:
        random.shuffle(order)
    strides, stride = [0] * len(shape), 1
    if random.random() < 0.15 and count * 2 <= room:
        stride = 2
    for axis in reversed(order):
        strides[axis] = stride
        stride *= shape[axis]
    if duplicates and random.random() < 0.1:
        strides[random.randrange(len(shape))] = 0
    top = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    text = places(strides, shape)
    if top + 1 == count and random.random() < 0.35:
        # All places of a power of two: permuted they are the same places.
        change = random.choice(("xor", "rotate", "multiply", "scalar"))
        constant = random.randrange(count)
        if change == "xor":
            text = f"(({text}) ^ {constant})"
        elif change == "rotate":
            text = f"(({text} + {constant}) % {count})"
        elif change == "multiply":
            text = f"((({text}) * {random.randrange(1, 16, 2)} + {constant}) & {count - 1})"
        elif (scalar := maker.pick(lambda v: v.shape == () and v.element.name == "int32")) is not None:
            text = f"(({text}) ^ ({scalar.name} & {count - 1}))"
    if random.random() < 0.25:
        text = f"{top} - ({text})"
    return text, top


def access(maker, pointer: Pointer, shape, duplicates: bool) -> tuple[str, str]:
    """The text of a tile of pointers, and that of the element's number in the buffer."""
    room = pointer.span
    text, top = _layout(maker, shape, room, duplicates)
    if duplicates and maker.random.random() < 0.15:
        index = maker.pick(lambda v: v.shape == tuple(shape) and v.element.is_integer and v.element.bits <= 32)
        if index is not None:
            size = 1 << (room.bit_length() - 1)
            text, top = f"({index.name}.to(tl.int32) & {size - 1})", size - 1
    moved = maker.random.choice((0, 0, room - 1 - top, maker.random.randint(0, room - 1 - top)))
    local = f"{text} + {moved}" if moved else text
    if maker.loop is not None and (duplicates or not maker.apart) and moved + top + maker.loop[1] < room and maker.random.random() < 0.6:
        local = f"{local} + {maker.loop[0]}"
    number = f"pid * {pointer.span} + {local}" if pointer.writable or maker.random.random() < 0.7 else local
    return f"{pointer.name} + ({number}" + (f" - {pointer.offset})" if pointer.offset else ")"), number


def mask(maker, shape, number: str) -> str | None:
    """The text of a mask, or none."""
    random = maker.random
    kind = random.choice(("none", "none", "bound", "bound", "corner", "flag", "both", "both"))
    if kind == "corner":
        return corner(maker, shape)
    bound = f"({number} < {random.choice(maker.bounds)})"
    if kind == "none":
        return None
    flag = maker.pick(lambda v: v.shape == tuple(shape) and v.element is BOOL)
    if kind == "bound" or flag is None:
        return bound
    if kind == "flag":
        return flag.name
    return random.choice((f"{bound} & {flag.name}", f"{bound} & ~{flag.name}", f"{flag.name} & {bound}", f"{bound} | {flag.name}", f"{bound} ^ {flag.name}"))


def corner(maker, shape) -> str:
    """Up to some index along each axis, as matrices are masked at their edges."""
    terms = []
    for axis in range(len(shape)):
        limit = maker.random.choice((*maker.edges, str(shape[axis]), str(shape[axis] - 1)))
        index = axis_range(shape, axis)
        terms.append(maker.random.choice((f"({index} < {limit})", f"({index} <= {limit})", f"({limit} > {index})", f"({index} >= {limit})", f"({index} + 1 < {limit})")))
    # The range of one axis alone is broadcast by the operation that it is used in; a mask must have the tile's shape.
    whole = f"({places(dense(shape), shape)} >= 0)"
    return " & ".join(terms if len(terms) == len(shape) > 1 else [*terms, whole])


def index(maker):
    """The numbers of a tile's places as data, with the program's number and without."""
    shape = maker.shape()
    text = places(dense(shape), shape)
    if maker.random.random() < 0.3:
        text = " + ".join(f"{axis_range(shape, axis)} * {maker.random.choice((0, 1, -1, 3))}" for axis in range(len(shape)))
    if maker.random.random() < 0.5:
        text = f"pid * {prod(shape)} + {text}"
    maker.define(text, I32, shape)


def chain(maker):
    """Loads without `other`, arithmetic and a store under one mask: what lies outside is undefined and must not be seen."""
    random, shape = maker.random, maker.shape()
    pointer = maker.target(prod(shape), lambda p: p.element is not BOOL)
    if pointer is None:
        return
    target, number = access(maker, pointer, shape, duplicates=False)
    flags = maker.define(mask(maker, shape, number) or f"{number} >= 0", BOOL, shape)
    values = []
    for _ in range(random.randint(1, 3)):
        source = maker.source(lambda p: p.element is pointer.element and p.span >= prod(shape)) or maker.itself(pointer)
        if source is None:
            return
        text, _ = access(maker, source, shape, duplicates=True)
        values.append(maker.define(f"tl.load({text}, mask={flags.name})", pointer.element, shape, visible=False))
    store(maker)
    operations = "+-" if pointer.element.is_float else "+-*^"
    total = values[0].name
    for value in values[1:]:
        total = f"({total} {random.choice(operations)} {value.name})"
    maker.touched.add(pointer.buffer)
    stricter = flags.name if random.random() < 0.6 else f"{flags.name} & {corner(maker, shape)}"
    maker.say(f"tl.store({target}, {total}, mask={stricter})")


def load(maker, shape=None, element: Element | None = None):
    """A load, masked or not; what a mask leaves out is given by `other` or replaced at once."""
    random = maker.random
    shape = maker.shape() if shape is None else shape
    pointer = maker.source(lambda p: p.span >= prod(shape) and (element is None or p.element is element))
    if pointer is None:
        return None
    buffer = maker.buffers[pointer.buffer]
    tame = {"bound": TAME_BOUND, "step": TAME_STEP} if buffer.values == "tame" and pointer.buffer not in maker.touched else {}
    if shape == ():
        index = random.randrange(pointer.span)
        number = f"pid * {pointer.span} + {index}" if pointer.writable or random.random() < 0.5 else f"{index}"
        return maker.define(f"tl.load({pointer.name} + ({number} - {pointer.offset}))", pointer.element, (), **tame)
    pointers, number = access(maker, pointer, shape, duplicates=True)
    masked = mask(maker, shape, number)
    if masked is None:
        return maker.define(f"tl.load({pointers})", pointer.element, shape, **tame)
    other = maker.literal(pointer.element)
    given = maker.pick(lambda v: v.shape == tuple(shape) and v.element is pointer.element and (v.is_tame or not tame))
    if given is not None and random.random() < 0.4:
        other = given.name
        tame = {"bound": max(tame["bound"], given.bound), "step": min(tame["step"], given.step)} if tame else {}
    if random.random() < 0.3:
        flags = maker.define(masked, BOOL, shape)
        loaded = maker.define(f"tl.load({pointers}, mask={flags.name})", pointer.element, shape, visible=False)
        return maker.define(f"tl.where({flags.name}, {loaded.name}, {other}).to({pointer.element.triton})", pointer.element, shape, **tame)
    return maker.define(f"tl.load({pointers}, mask={masked}, other={other})", pointer.element, shape, **tame)


def store(maker):
    """A store of what there is, into memory that was perhaps loaded before."""
    value = maker.pick(lambda v: v.shape != ())
    if value is None:
        return
    count = prod(value.shape)
    pointer = maker.target(count, lambda p: p.element is value.element, value.element) or maker.target(count, lambda p: True)
    if pointer is None:
        return
    text = value.name
    if pointer.element is not value.element:
        converted = maker.converted(value, pointer.element)
        if converted is None:
            return
        text = converted.name
    maker.touched.add(pointer.buffer)
    pointers, number = access(maker, pointer, value.shape, duplicates=False)
    masked = mask(maker, value.shape, number)
    maker.say(f"tl.store({pointers}, {text}" + (f", mask={masked})" if masked else ")"))


def move(maker):
    """Loads and a store of the same memory in one statement, under one mask and without `other`."""
    shape = maker.shape()
    pointer = maker.target(prod(shape), lambda p: True)
    source = pointer and (maker.source(lambda p: p.element is pointer.element and p.span >= prod(shape)) or maker.itself(pointer))
    if source is None:
        return
    maker.touched.add(pointer.buffer)
    pointers, number = access(maker, pointer, shape, duplicates=False)
    masked = mask(maker, shape, number)
    condition = f", mask={masked}" if masked else ""
    sources, _ = access(maker, source, shape, duplicates=True)
    loaded = f"tl.load({sources}{condition})"
    if pointer.element.kind != "bool" and not maker.apart and maker.random.random() < 0.5:
        loaded = f"({loaded} + tl.load({pointers}{condition})).to({pointer.element.triton})"
    maker.say(f"tl.store({pointers}, {loaded}{condition})")


_ATOMICS = {"add": "wide", "max": "wide", "min": "wide", "and": "wide", "or": "wide", "xor": "wide"}


def atomic(maker):
    """An atomic whose outcome no order of the programs changes: the old values are looked at only where addresses are a program's own."""
    random = maker.random
    value = maker.pick(lambda v: v.element.name in ("int32", "uint32", "int64", "uint64") and v.shape != ())
    if value is None:
        return
    operation = random.choice(tuple(_ATOMICS))
    count = prod(value.shape)
    if random.random() < 0.5:
        shared = maker.new_pointer(value.element, random.choice((1, 4, count)), "small", writable=False, per_program=False)
        places_text = f"(({places(dense(value.shape), value.shape)}) % {maker.buffers[shared.buffer].count})"
        masked = mask(maker, value.shape, places_text)
        condition = f", mask={masked}" if masked else ""
        maker.say(f"tl.atomic_{operation}({shared.name} + {places_text}, {value.name}{condition})")
        shared.name = ""  # Nobody else looks at it.
        return
    pointer = maker.target(count, lambda p: p.element is value.element, value.element)
    if pointer is None:
        return
    maker.touched.add(pointer.buffer)
    pointers, _ = access(maker, pointer, value.shape, duplicates=False)
    if random.random() < 0.25:
        expected = maker.pick(lambda v: v.element is value.element and v.shape == value.shape)
        maker.define(f"tl.atomic_cas({pointers}, {expected.name}, {value.name})", value.element, value.shape)
    else:
        operation = random.choice((operation, "xchg"))
        maker.define(f"tl.atomic_{operation}({pointers}, {value.name})", value.element, value.shape)
