"""All rows, and which functions they are of."""

from __future__ import annotations

import re

from .functions import detection, double_gradients, elementwise, fourier, indexing, inplace, linear_algebra, networks, reductions, shapes, training
from .row import Row

ROWS: list[Row] = [*elementwise.ROWS, *reductions.ROWS, *shapes.ROWS, *indexing.ROWS, *networks.ROWS, *inplace.ROWS, *linear_algebra.ROWS, *training.ROWS, *double_gradients.ROWS, *fourier.ROWS, *detection.ROWS]


def functions() -> set[str]:
    """The public functions that the rows call: `paddle.add`, `Tensor.add_`, `F.relu`, and Python's operators."""
    found: set[str] = set()
    for row in ROWS:
        call = re.sub(r"\{[^}]*\}", "x", row.call)
        found |= set(re.findall(r"\b(?:paddle|F)(?:\.\w+)+", call))
        found |= {f"Tensor.{name}" for name in re.findall(r"[)x\]]\.(\w+)", call)}
        found |= {f"Tensor {sign}" for sign in re.findall(r" (\+|-|\*|/|//|%|\*\*|@|==|!=|<|<=|>|>=|&|\||\^) ", call)}
        found |= {"Tensor[]"} if re.search(r"x\[", call) else set()
        found |= {"Tensor[] ="} if "setitem" in call else set()
    return {name.replace("paddle.nn.functional.", "F.") for name in found}
