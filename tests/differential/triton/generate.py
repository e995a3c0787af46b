"""Makes random kernels: what is visible where, control flow, and how often each family of statements is taken."""

from __future__ import annotations

import random
import re
from contextlib import contextmanager
from math import prod

from . import memory, operations, shapes
from .case import Buffer, Case, Statement, Value
from .elements import ALL, BF16, BOOL, F16, F32, F64, FLOATS, I8, I32, Element

_COMMON = (I32, I32, F32, F32, BOOL, I8, F16, BF16, F64, *ALL)
_MOST_ELEMENTS = 1024


class Maker:
    """One kernel in the making."""

    def __init__(self, seed: str, apart: bool):
        #: Memory is either loaded or stored, by one statement: threads of a GPU do not see each other's stores in order.
        self.apart = apart
        self.random = random.Random(seed)
        self.statements: list[Statement] = []
        self.visible: list[Value] = []
        self.names = 0
        self.buffers: list[Buffer] = []
        self.parameters: list = []
        self.pointers: list[memory.Pointer] = []
        #: Buffers that were perhaps written: what is loaded from them is no longer what they began with.
        self.touched: set[int] = set()
        #: Inside a loop, the buffers that it may write.
        self.allowed: set[int] | None = None
        #: Inside a loop, its variable and the largest value of it.
        self.loop: tuple[str, int] | None = None
        #: Parameters that masks compare element numbers with, and indices along one axis.
        self.bounds: list[str] = []
        self.edges: list[str] = []
        #: Only what is planned as loops over rows and columns on the host; all else is executed tile by tile, which is other code.
        self.plain = self.random.random() < 0.5
        self.grid = self.random.choice(((1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (2, 2, 1), (1, 2, 2)))
        self.programs = prod(self.grid)
        largest = self.random.choice((16, 32, 64, 128, 128, 256, 512))
        self.shapes = [self.shape_of(largest >> self.random.choice((0, 0, 0, 1, 2))) for _ in range(3)]

    # What statements are made of.

    def shape(self) -> tuple[int, ...]:
        return self.random.choice(self.shapes)

    def shape_of(self, count: int) -> tuple[int, ...]:
        """Some shape of so many elements, a power of two."""
        powers, sizes = count.bit_length() - 1, []
        for _ in range(self.random.choice((0, 0, 1, 1, 1 if self.plain else 2))):
            taken = self.random.randint(0, powers)
            sizes.append(1 << taken)
            powers -= taken
        return (*sizes, 1 << powers)

    def pick(self, accept) -> Value | None:
        """A visible value, the newer the likelier."""
        fitting = [value for value in self.visible if accept(value)]
        return self.random.choice(fitting[-6:] if self.random.random() < 0.6 else fitting) if fitting else None

    def source(self, accept) -> memory.Pointer | None:
        """Something to load from."""
        fitting = [pointer for pointer in self.pointers if accept(pointer) and not (self.apart and pointer.writable)]
        return self.random.choice(fitting) if fitting else None

    def target(self, count: int, accept, element: Element | None = None) -> memory.Pointer | None:
        """Something to store so many elements to."""
        fitting = [pointer for pointer in self.pointers if pointer.span >= count and accept(pointer) and pointer.writable and self.may_write(pointer.buffer)]
        if self.apart and (fitting or element):
            element = element or self.random.choice(fitting).element
            return self.new_pointer(element, count * self.random.choice((1, 2)), "small" if element.is_integer else "tame", writable=True)
        return self.random.choice(fitting) if fitting else None

    def itself(self, pointer: memory.Pointer) -> memory.Pointer | None:
        """What is stored to, as something to load from."""
        return None if self.apart else pointer

    def may_write(self, buffer: int) -> bool:
        return self.allowed is None or buffer in self.allowed

    def literal(self, element: Element) -> str:
        if element.is_float:
            return self.random.choice(("0.0", "0.5", "-1.5", "2.0"))
        return self.random.choice(("0", "1") if element is BOOL else ("0", "1", "7") if element.kind == "unsigned" else ("0", "-3", "5"))

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def fresh(self, element: Element, shape, visible: bool = True, **tame) -> Value:
        value = Value(self.name("v"), element, tuple(shape), **tame)
        if visible:
            self.visible.append(value)
        return value

    def say(self, line: str, *defines: Value, bodies=()) -> None:
        self.statements.append(Statement(line.split("\n"), list(defines), list(bodies)))

    def define(self, text: str, element: Element, shape, visible: bool = True, **tame) -> Value:
        value = self.fresh(element, shape, visible, **tame)
        self.say(f"{value.name} = {text}", value)
        return value

    def converted(self, value: Value, target: Element) -> Value | None:
        return operations.converted(self, value, target)

    def new_pointer(self, element: Element, span: int, values: str, writable: bool, per_program: bool = True, tolerance: int = 0) -> memory.Pointer:
        count = span * self.programs if per_program else span
        self.buffers.append(Buffer(element, count, values, self.random.randrange(2**31), tolerance))
        return self._point(len(self.buffers) - 1, 0, span, writable)

    def _point(self, buffer: int, offset: int, span: int, writable: bool) -> memory.Pointer:
        pointer = memory.Pointer(self.name("p"), buffer, self.buffers[buffer].element, offset, span, writable)
        self.parameters.append((pointer.name, (buffer, offset)))
        return pointer

    def operand(self, element: Element, shape) -> Value | None:
        """A value of exactly this type and shape, tame where it is a float."""
        value = self.pick(lambda v: v.element is element and v.shape == shape and (v.is_tame or not element.is_float))
        if value is not None and self.random.random() < 0.6:
            return value
        pointer = self.new_pointer(element, prod(shape) * self.random.choice((1, 2)), "tame" if element.is_float else "wide", writable=False)
        self.pointers.append(pointer)
        before, self.pointers = self.pointers, [pointer]
        value = memory.load(self, shape, element)
        self.pointers = before
        return value if value is not None and (value.is_tame or not element.is_float) else None

    def observe(self, value: Value, tolerance: int = 0) -> None:
        """Stores a value where nothing else is."""
        pointer = self.new_pointer(value.element, prod(value.shape), "zero", writable=True, tolerance=tolerance)
        place = "pid" if value.shape == () else f"pid * {pointer.span} + {memory.places(memory.dense(value.shape), value.shape)}"
        self.say(f"tl.store({pointer.name} + {place}, {value.name})")

    # The kernel as a whole.

    def make(self, title: str) -> Case:
        x, y, _ = self.grid
        self.say(f"pid = tl.program_id(0) + {x} * (tl.program_id(1) + {y} * tl.program_id(2))")
        self.visible.append(Value("pid", I32, ()))
        self._memory()
        for _ in range(self.random.randint(2, 4)):
            memory.load(self)
        self.some(self.random.randint(4, 18), depth=0)
        self._observe()
        return Case(title, shapes.HELPERS, self.statements, self.grid, self.buffers, self.parameters)

    def _memory(self) -> None:
        sizes = [prod(shape) for shape in self.shapes]
        for _ in range(self.random.randint(2, 5)):
            size = self.random.choice(sizes)
            span = size * self.random.choice((1, 1, 2, 4)) + self.random.choice((0, 0, 0, 3))
            element = self.random.choice(_COMMON)
            values = self.random.choice(("tame", "tame", "wild") if element.is_float else ("small", "wide"))
            writable = self.random.random() < 0.65
            pointer = self.new_pointer(element, span, values, writable)
            self.pointers.append(pointer)
            while self.random.random() < 0.3:
                self.pointers.append(self._point(pointer.buffer, self.random.choice((0, 1, 4, 16, self.random.randint(0, span // 2))), span, writable))
            if element.is_integer and self.random.random() < 0.3:
                self._pun(pointer)
        for _ in range(2):
            total = max(pointer.span for pointer in self.pointers) * self.programs
            self.bounds.append(self.name("n"))
            self.parameters.append((self.bounds[-1], self.random.choice((total, total - 1, self.random.randint(1, total), self.random.randint(1, total)))))

        for _ in range(2):
            self.edges.append(self.name("n"))
            self.parameters.append((self.edges[-1], self.random.choice((0, 1, 2, 7, 16, self.random.randint(1, 70)))))

    def _pun(self, pointer: memory.Pointer) -> None:
        """The same memory as integers of the other sign."""
        name = ("int" if pointer.element.kind == "unsigned" else "uint") + str(pointer.element.bits)
        element = next(element for element in ALL if element.name == name)
        twin = memory.Pointer(self.name("q"), pointer.buffer, element, pointer.offset, pointer.span, pointer.writable)
        self.say(f"{twin.name} = {pointer.name}.to(tl.pointer_type({element.triton}))")
        self.pointers.append(twin)

    def _observe(self) -> None:
        text = "\n".join(line for statement in self.statements for line in statement.text(0))
        unread = [value for value in self.visible if len(re.findall(rf"\b{value.name}\b", text)) == 1]
        for value in self.random.sample(unread, min(len(unread), 6)):
            self.observe(value)

    def some(self, count: int, depth: int) -> None:
        """So many statements of any family."""
        families = _PLAIN if self.plain else _FAMILIES
        families, weights = zip(*((*families, *_CONTROL[: 1 if self.plain else 2]) if depth < 2 else families), strict=True)
        for _ in range(count):
            family = self.random.choices(families, weights)[0]
            family(self, depth) if family in (loop, branch) else family(self)
            self.visible = [value for value in self.visible if prod(value.shape) <= _MOST_ELEMENTS]

    @contextmanager
    def inside(self):
        """Statements of a body; what it defines is gone behind it."""
        before, visible, self.statements = self.statements, list(self.visible), []
        try:
            yield self.statements
        finally:
            self.statements, self.visible = before, visible


def _carried(maker: Maker) -> list[Value]:
    """Copies of values that a body changes."""
    copies = []
    for _ in range(maker.random.randint(0, 2)):
        value = maker.pick(lambda v: v.name != "pid")
        if value is not None:
            copies.append(maker.define(value.name, value.element, value.shape))
    return copies


def _change(maker: Maker, copies: list[Value]) -> None:
    for copy in copies:
        other = maker.pick(lambda v, copy=copy: v.element is copy.element and v.shape in (copy.shape, ()))
        operation = "+" if copy.element.is_float else "^" if copy.element is BOOL else maker.random.choice("+-*^&")
        text = f"({copy.name} {operation} {other.name}).to({copy.element.triton})"
        if copy.element.is_float and maker.random.random() < 0.3:
            text = f"tl.maximum({copy.name}, {other.name}) + 0.0"
        maker.say(f"{copy.name} = {text}", copy)


def loop(maker: Maker, depth: int) -> None:
    """`for` over constants or numbers of run time, or `while`, with values that are carried along and memory that is changed in place."""
    random = maker.random
    copies, count = _carried(maker), random.randint(0, 4)
    before = maker.allowed, maker.loop
    written = sorted({pointer.buffer for pointer in maker.pointers if pointer.writable and maker.may_write(pointer.buffer)})
    maker.allowed = set(random.sample(written, min(len(written), random.randint(0, 2))))
    maker.touched |= maker.allowed
    variable, number = maker.name("k"), maker.name("v")
    limit = str(count)
    if random.random() < 0.5:
        limit = maker.name("n")
        maker.parameters.append((limit, count))
    with maker.inside() as body:
        maker.loop = (variable, count)
        maker.say(f"{number} = {variable} + 0")
        maker.visible.append(Value(number, I32, ()))
        maker.some(random.randint(1, 4), depth + 1)
        _change(maker, copies)
    maker.allowed, maker.loop = before
    if random.random() < 0.75:
        maker.say(f"for {variable} in range(0, {limit}):\n{{body}}", bodies=[body])
    else:
        body.append(Statement([f"{variable} += 1"]))
        maker.say(f"{variable} = pid * 0\nwhile {variable} < {limit}:\n{{body}}", bodies=[body])


def branch(maker: Maker, depth: int) -> None:
    """`if` on a number of the program, perhaps loaded; with `else` or without."""
    random = maker.random
    copies = _carried(maker)
    scalar = maker.pick(lambda v: v.shape == () and v.element is not BOOL and v.element not in FLOATS)
    condition = random.choice((f"{scalar.name} > {random.randint(0, 4)}", f"{scalar.name} % 2 == 0", f"pid < {random.randint(0, maker.programs)}", f"{random.choice(maker.bounds)} > 40"))
    bodies = []
    for _ in range(random.randint(1, 2)):
        with maker.inside() as body:
            maker.some(random.randint(1, 3), depth + 1)
            _change(maker, copies)
        bodies.append(body)
    maker.say(f"if {condition}:\n{{body}}" + ("\nelse:\n{body}" if len(bodies) == 2 else ""), bodies=bodies)


_PLAIN = (
    (memory.load, 10),
    (memory.store, 9),
    (memory.move, 5),
    (memory.chain, 5),
    (memory.index, 3),
    (operations.integers, 8),
    (operations.floats, 8),
    (operations.comparison, 5),
    (operations.flags, 3),
    (operations.choice, 5),
    (operations.mixed, 2),
    (operations.conversion, 5),
    (operations.function, 2),
    (shapes.broadcasting, 2),
    (shapes.reduction, 4),
    (shapes.product, 2),
)
_FAMILIES = (
    *_PLAIN,
    (memory.atomic, 2),
    (operations.bits, 1),
    (shapes.reshaping, 5),
    (shapes.joining, 2),
    (shapes.reduction, 3),
    (shapes.scan, 4),
    (shapes.arranging, 2),
)
_CONTROL = ((loop, 4), (branch, 3))


def case(seed: int, number: int, apart: bool = False) -> Case:
    """The kernel of this number in the run of this seed; `apart` for a GPU, where what a program stored it may not load."""
    return Maker(f"{seed} {number}", apart).make(f"Differential test of Triton: seed {seed}, kernel {number}")
