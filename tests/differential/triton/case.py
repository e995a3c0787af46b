"""A random kernel: its statements, its buffers, and its text as a module that can be run by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .elements import Element


@dataclass
class Value:
    """A variable of the kernel. A float with a bound and a step is one of few multiples of the step, never NaN."""

    name: str
    element: Element
    shape: tuple[int, ...]
    bound: float | None = None
    step: float | None = None

    @property
    def is_tame(self) -> bool:
        return self.bound is not None


@dataclass
class Statement:
    """Lines of the kernel; `{body}` stands where the statements inside go, one level deeper."""

    lines: list[str]
    defines: list[Value] = field(default_factory=list)
    bodies: list[list[Statement]] = field(default_factory=list)

    def text(self, depth: int) -> list[str]:
        bodies, lines = iter(self.bodies), []
        for line in self.lines:
            if line == "{body}":
                inside = [text for statement in next(bodies) for text in statement.text(depth + 1)]
                lines += inside or ["    " * (depth + 1) + "pass"]
            else:
                lines.append("    " * depth + line)
        return lines


@dataclass
class Buffer:
    """Memory of a kernel: so many elements for each program (or for all, where nobody writes), guarded on both sides."""

    element: Element
    count: int
    values: str
    seed: int
    #: Units in the last place by which results may differ: 0 where every operation on the way is exact.
    tolerance: int = 0


@dataclass
class Case:
    title: str
    #: Functions that are written where they are used, by name.
    helpers: dict[str, str]
    statements: list[Statement]
    grid: tuple[int, int, int]
    buffers: list[Buffer]
    #: Name, and a buffer with the element that it points to, or a number.
    parameters: list[tuple[str, tuple[int, int] | int]]

    def text(self) -> str:
        body = [line for statement in self.statements for line in statement.text(1)]
        lines = [
            f'"""{self.title}. Run it on both sides again: PYTHONPATH=tests python -m differential.triton THIS_FILE"""',
            "",
            "import triton",
            "import triton.language as tl",
            "",
        ]
        used = "\n".join(body)
        for name, helper in self.helpers.items():
            if name in used:
                lines += ["", "@triton.jit", *helper.splitlines(), ""]
        lines += ["", "@triton.jit", f"def kernel({', '.join(name for name, _ in self.parameters)}):", *(body or ["    pass"]), "", ""]
        lines.append(f"GRID = {self.grid}")
        lines.append("# Element type, elements, kind of values, seed of the values, tolerance in units in the last place")
        lines.append("BUFFERS = [")
        lines += [f"    {(buffer.element.name, buffer.count, buffer.values, buffer.seed, buffer.tolerance)}," for buffer in self.buffers]
        lines.append("]")
        lines.append("# (buffer, its element that is pointed to) or a number")
        lines.append(f"ARGUMENTS = {[given for _, given in self.parameters]}")
        return "\n".join(lines) + "\n"

    def with_statements(self, statements: list[Statement]) -> Case:
        return replace(self, statements=statements)
