"""One row of the table of functions, and how its placeholders become arguments."""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from .draw import FLOATS, INTEGERS, SPECIAL, Draw

NUMBERS = (*INTEGERS, *FLOATS)
SIGNED = ("int8", "int16", "int32", "int64", *FLOATS)
WIDE = ("int32", "int64", *FLOATS)
EVERY = ("bool", *NUMBERS)
BITS = ("bool", *INTEGERS)
SINGLE = ("float32", "float64")


class Tolerance(enum.Enum):
    """How a result may differ from the one of float64."""

    EXACT = "not at all, after rounding to the type"
    CLOSE = "by a few units of rounding of each element"
    DIFFERENCE = "as that, and by a few units of rounding of 1: it is what is left of 1 + erf(x)"
    SUM = "by what rounding the inputs does to the result"


class Gradient(enum.Enum):
    """Whether gradients are compared too."""

    YES = "of every input of floats"
    NO = "none"


EXACT, CLOSE, DIFFERENCE, SUM = Tolerance
YES, NO = Gradient


@dataclass(frozen=True)
class Row:
    """A call with placeholders: `{x}` is a tensor, `{axis}` an attribute; `draw` gives those that no rule below knows."""

    call: str
    types: tuple[str, ...]
    gradient: Gradient = NO
    tolerance: Tolerance = CLOSE
    draw: Callable[[Draw], dict[str, object]] | None = None

    @property
    def name(self) -> str:
        """The function, without its arguments."""
        return re.sub(r"\{[^}]*\}", "_", self.call)


def source(row: Row, seed: str, gradients: bool) -> str:
    """The Python source of one random call. What is changed in place or differentiated has no two elements in one place of memory: which of
    the values or gradients stays there is not defined."""
    generator = random.Random(seed)
    draw = Draw(generator, generator.choice(row.types))
    draw.special = draw.chance(SPECIAL)
    # Sums of the largest numbers overflow or not by the order of additions.
    draw.huge = row.tolerance is not Tolerance.SUM
    draw.overlaps = not gradients and not re.search(r"\w_\(|changed|output=|set_value", row.call)
    known = dict(row.draw(draw)) if row.draw else {}
    # What the others' shapes and axes depend on comes first, wherever it stands.
    if "x" not in known and (found := re.search(r"\{x(?::([^}]*))?\}", row.call)):
        known["x"] = argument(draw, known, "x", found[1] or "")
    return re.sub(r"\{(\w+)(?::([^}]*))?\}", lambda match: argument(draw, known, match[1], match[2] or ""), row.call)


def argument(draw: Draw, known: dict[str, object], name: str, options: str) -> str:
    if name in known:
        value = known[name]
        return value if isinstance(value, str) else repr(value)
    shape = draw.shapes.get("x", ())
    rank = len(shape)
    domain = next((word for word in options.split() if word in ("positive", "unit", "bounded", "nonzero")), "any")
    dtype = next((word for word in options.split() if word in EVERY), None)
    match name.rstrip("0123456789"):
        case "x":
            draw.shapes[name] = ranked(draw, options)
            return draw.tensor(draw.shapes[name], dtype, domain)
        case "y":  # broadcasts with x
            draw.shapes[name] = draw.partner(shape)
            mixed = draw.random.choice(("bool", *INTEGERS, *SINGLE)) if draw.chance(0.04) and draw.type not in ("float16", "bfloat16") else None
            return draw.tensor(draw.shapes[name], dtype or mixed, domain)
        case "s":  # x's shape
            return draw.tensor(draw.partner(shape) if draw.chance(0.03) else shape, dtype, domain)
        case "same":  # x's shape for certain
            return draw.tensor(shape, dtype, domain)
        case "c":  # a condition
            return draw.tensor(shape, "bool")
        case "axis":
            return repr(draw.axis(rank))
        case "axes":
            return repr(draw.axes(rank))
        case "order":
            return repr(draw.order(rank))
        case "flag":
            return repr(draw.chance(0.5))
        case "number":
            low, high = map(float, options.split()) if options else (-2.0, 2.0)
            value = draw.random.uniform(low, high)
            # A number that every type can hold: what others do with the rest is rounded once more.
            return repr(round(value * 8) / 8 if draw.type in ("float16", "bfloat16") or draw.chance(0.5) else round(value, 3))
        case "integer":
            low, high = map(int, options.split())
            return repr(draw.random.randint(low, high))
        case "one":  # of the words
            return repr(draw.random.choice(options.split()))
        case "type":
            return repr(draw.random.choice(options.split() or EVERY))
    raise KeyError(f"{name}: no rule")


def ranked(draw: Draw, options: str) -> tuple[int, ...]:
    """A shape of as many dimensions as `2`, `2+` or `1-3` says."""
    found = re.search(r"(\d)(\+|-(\d))?(?!\d)", re.sub(r"[a-z]+\d+", "", options))
    if not found:
        return draw.shape()
    low = int(found[1])
    high = 6 if found[2] == "+" else int(found[3] or low)
    return draw.shape(low, high)
