"""What comes out of a call: values, gradients or what was raised. Known to the process that compares, which never loads Paddle."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

MISSING = re.compile(r"The kernel with key \((\w+), .*?, (\w+)\) of kernel `(\w+)` is not registered")


@dataclass(frozen=True)
class Missing:
    """A kernel that a device lacks."""

    backend: str
    type: str
    kernel: str


@dataclass
class Result:
    """What came out: arrays with their element types, gradients of the inputs, or what was raised."""

    values: list[tuple[str, np.ndarray] | object] = field(default_factory=list)
    gradients: list[tuple[str, np.ndarray] | None] = field(default_factory=list)
    raised: str | None = None
    message: str = ""
    where: str = "value"
    missing: Missing | None = None
