"""Element types of random kernels, and the values that buffers begin with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Element:
    """One of Triton's element types; NumPy has no bfloat16, whose bits are kept as uint16."""

    name: str
    kind: str  # "bool", "signed", "unsigned" or "float"
    bits: int
    storage: np.dtype
    mantissa: int = 0

    @property
    def triton(self) -> str:
        return f"tl.{self.name}"

    @property
    def argument(self) -> str:
        """As Triton reads the type of a pointer argument."""
        return "bool" if self.kind == "bool" else self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")


def _integer(kind: str, bits: int) -> Element:
    name = f"int{bits}" if kind == "signed" else f"uint{bits}"
    return Element(name, kind, bits, np.dtype(name))


BOOL = Element("int1", "bool", 1, np.dtype(bool))
SIGNED = tuple(_integer("signed", bits) for bits in (8, 16, 32, 64))
UNSIGNED = tuple(_integer("unsigned", bits) for bits in (8, 16, 32, 64))
F16 = Element("float16", "float", 16, np.dtype("float16"), 11)
BF16 = Element("bfloat16", "float", 16, np.dtype("uint16"), 8)
F32 = Element("float32", "float", 32, np.dtype("float32"), 24)
F64 = Element("float64", "float", 64, np.dtype("float64"), 53)
FLOATS = (F16, BF16, F32, F64)
INTEGERS = SIGNED + UNSIGNED
ALL = (BOOL, *INTEGERS, *FLOATS)
I8, I32 = SIGNED[0], SIGNED[2]
BY_NAME = {element.name: element for element in ALL}


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """Rounded to the nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def bfloat16_values(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


#: Of a tame float: a multiple of the step, at most the bound, so that sums and products of a few are exact in any order.
TAME_BOUND, TAME_STEP = 4.0, 0.5
_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5, 1e-3, -7e4, 3e38, 1e-40, 6e-8)


def fill(element: Element, count: int, values: str, seed: int) -> np.ndarray:
    """What a buffer begins with: "small" integers, "wide" ones, "tame" floats, "wild" ones, or "zero"."""
    random = np.random.default_rng(seed)
    if values == "zero":
        return np.zeros(count, element.storage)
    if element.kind == "bool":
        return random.integers(0, 2, count).astype(bool)
    if element.is_integer:
        limits = np.iinfo(element.storage)
        if values == "small":
            return random.integers(max(limits.min, -9), 10, count).astype(element.storage)
        drawn = random.integers(limits.min, limits.max, count, dtype=element.storage, endpoint=True)
        edges = np.array([limits.min, limits.max, 0, 1, limits.max - 1], element.storage)
        return np.where(random.random(count) < 0.2, random.choice(edges, count), drawn)
    steps = int(TAME_BOUND / TAME_STEP)
    drawn = random.integers(-steps, steps, count, endpoint=True) * TAME_STEP
    if values == "wild":
        drawn = random.standard_normal(count) * 10.0 ** random.integers(-3, 4, count)
        drawn = np.where(random.random(count) < 0.25, random.choice(_SPECIAL, count), drawn)
    with np.errstate(over="ignore"):
        return bfloat16_bits(drawn.astype(np.float32)) if element is BF16 else drawn.astype(element.storage)
