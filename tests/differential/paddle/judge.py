"""Which cases there are, and what the results of one say."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

import numpy as np

from . import known
from .compare import problem
from .result import Result
from .row import Gradient, Row, Tolerance, source
from .table import ROWS


@dataclass(frozen=True)
class Case:
    """A call that can be repeated."""

    number: int
    row: Row
    text: str
    gradients: bool

    @property
    def has_floats(self) -> bool:
        return any(f'"{kind}"' in self.text for kind in ("float16", "bfloat16", "float32", "float64"))

    @property
    def noisy(self) -> int | None:
        """How often to evaluate with inputs off by one rounding, in float64; none where there is nothing to round."""
        return None if not self.has_floats else 3 if self.row.tolerance is Tolerance.SUM else 0


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    kind: str  # right, wrong, missing (a kernel), different (on purpose), refused (by both devices) or unsupported (by Paddle's CPU)
    detail: str = ""


def case_of(seed: int, number: int) -> Case:
    """Every row comes once before any comes again, in an order of its own each time."""
    order = list(range(len(ROWS)))
    random.Random(f"{seed}/{number // len(ROWS)}").shuffle(order)
    row = ROWS[order[number % len(ROWS)]]
    gradients = row.gradient is Gradient.YES and random.Random(f"{seed}#{number}").random() < 0.7
    return Case(number, row, source(row, f"{seed}:{number}", gradients), gradients)


# Exceptions of a row that is no Python or calls what is not there, which would pass as refused by both.
MALFORMED = re.compile(r"NameError|SyntaxError|AttributeError|unexpected keyword argument")


def judge(case: Case, ours: Result, theirs: Result, exact: Result | None, noisy: list[Result]) -> Outcome:
    if theirs.raised and MALFORMED.search(f"{theirs.raised}: {theirs.message}"):
        return Outcome("wrong", f"the call itself raises {theirs.raised}: {theirs.message}")
    if ours.missing and ours.missing.backend != "CPU":
        return missing(theirs, ours)
    if theirs.missing:
        # Paddle's CPU cannot: float64's result, rounded, is what is wanted.
        if ours.raised or exact is None or exact.raised:
            return Outcome("unsupported")
        theirs = rounded(exact, ours)
        if overflows(exact, theirs):
            # The gradient of a result that the type cannot hold is not float64's.
            ours, theirs = (replace(result, gradients=[]) for result in (ours, theirs))
    exact = exact if exact and not exact.raised else None
    if exact and '"float' in case.text and not re.search(r'"(b?float16|float32)"', case.text) and problem(theirs, exact, None, [], Tolerance.CLOSE):
        return Outcome("undefined on Paddle's CPU")  # the same call twice, and two results
    found = problem(ours, theirs, exact, [other for other in noisy if not other.raised], case.row.tolerance)
    if not found:
        return Outcome("refused" if theirs.raised else "right")
    reason = known.difference(case.text, found)
    return Outcome("different", reason.title) if reason else Outcome("wrong", found)


def missing(theirs: Result, ours: Result) -> Outcome:
    if theirs.missing and theirs.missing.kernel == ours.missing.kernel:
        return Outcome("unsupported")
    kernel = (ours.missing.kernel, ours.missing.type)
    if kernel[0] in known.WITHOUT_KERNEL or kernel in known.WITHOUT_TYPE:
        return Outcome("missing", kernel[0])
    return Outcome("wrong", f"no kernel {kernel[0]} of {kernel[1]}")


def overflows(exact: Result, theirs: Result) -> bool:
    """Whether a number of float64's is infinite in the element type."""
    pairs = [(own[1], other[1]) for own, other in zip(exact.values, theirs.values) if isinstance(own, tuple) and own[1].dtype.kind == "f"]
    return any((np.isfinite(own) & np.isinf(other)).any() for own, other in pairs)


def rounded(exact: Result, ours: Result) -> Result:
    """float64's results in the element types of ours."""

    def convert(have, want):
        if not isinstance(have, tuple) or not isinstance(want, tuple) or have[0] != "float64":
            return have
        with np.errstate(all="ignore"):
            return (want[0], have[1].astype(want[1].dtype))

    return Result(
        values=[convert(have, want) for have, want in zip(exact.values, ours.values)] + exact.values[len(ours.values) :],
        gradients=[convert(have, want) for have, want in zip(exact.gradients, ours.gradients)],
    )
