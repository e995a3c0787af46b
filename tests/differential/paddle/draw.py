"""Random arguments, as Python source: what a case is made of can be printed and repeated as one line."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")

# Largest finite, smallest normal and smallest positive number of each float type.
EXTREMES = {
    "float16": (65504.0, 2.0**-14, 2.0**-24),
    "bfloat16": (3.3895313892515355e38, 2.0**-126, 2.0**-133),
    "float32": (3.4028234663852886e38, 2.0**-126, 2.0**-149),
    "float64": (1.7976931348623157e308, 2.0**-1022, 2.0**-1074),
}
TIES = (-2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
# How often a tensor has special values, an argument is one that must be refused, a tensor is a view.
SPECIAL, INVALID, VIEW, EMPTY = 0.2, 0.03, 0.45, 0.06

Shape = tuple[int, ...]


@dataclass
class Draw:
    """One case's random numbers, and what its tensors have in common."""

    random: random.Random
    type: str
    shapes: dict[str, Shape] = field(default_factory=dict)
    special: bool = False
    huge: bool = True
    overlaps: bool = True

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *options):
        return self.random.choice(options)

    def word(self, *options: str) -> str:
        """One of these words, as the source of a string."""
        return repr(self.random.choice(options))

    # -- shapes ---------------------------------------------------------------------------------------------------------------------------

    def shape(self, low: int = 0, high: int = 6, empty: bool = True) -> Shape:
        """A shape of so many dimensions: mostly small, now and then one long dimension, a 1 or a 0."""
        rank = self.random.randint(low, high)
        if low == 0 and high >= 3 and self.chance(0.6):
            rank = self.random.randint(1, 3)
        sizes = [self.random.choice((1, 2, 3, 4, 5, 7)) if rank < 5 else self.random.choice((1, 2, 3)) for _ in range(rank)]
        if rank and self.chance(0.12):
            sizes[self.random.randrange(rank)] = self.random.choice((16, 17, 33, 64, 130, 257) if rank < 4 else (16, 17))
        if rank and empty and self.chance(EMPTY):
            sizes[self.random.randrange(rank)] = 0
        return tuple(sizes)

    def partner(self, shape: Shape, prefix: bool = True) -> Shape:
        """A shape that broadcasts with this one, or, seldom, does not."""
        sizes = [size if self.chance(0.75) else 1 for size in shape]
        if prefix and sizes and self.chance(0.25):
            sizes = sizes[self.random.randint(1, len(sizes)) :]
        if sizes and self.chance(INVALID):
            sizes[-1] += 2
        return tuple(sizes)

    # -- values ---------------------------------------------------------------------------------------------------------------------------

    def number(self, dtype: str, domain: str) -> float | int | bool:
        if dtype == "bool":
            return self.chance(0.5)
        if dtype in INTEGERS:
            return self.integer(dtype, domain)
        if self.special and domain == "any" and self.chance(0.3):
            largest, smallest, denormal = EXTREMES[dtype] if self.huge and dtype in ("float32", "float64") else (8.0, *EXTREMES[dtype][1:])
            return self.pick(float("nan"), float("inf"), -float("inf"), 0.0, -0.0, largest, -largest, smallest, -smallest, denormal, largest**0.5)
        if domain == "any" and self.chance(0.25):
            return self.random.choice(TIES)
        value = self.random.gauss(0, 1) * (1.0 if self.chance(0.9) else 20.0)
        match domain:
            case "positive":
                value = abs(value) + 0.05
            case "unit":
                value = self.random.uniform(0.02, 0.98)
            case "bounded":
                value = self.random.uniform(-0.98, 0.98)
            case "nonzero":
                value = value + (0.3 if value >= 0 else -0.3)
        return round(value, 4)

    def integer(self, dtype: str, domain: str) -> int:
        information = np.iinfo(dtype)
        low, high = max(information.min, -9), 9
        if domain in ("positive", "nonzero", "unit"):
            low = 1
        if self.special and domain == "any" and self.chance(0.2):
            return int(self.pick(information.min, information.max, 0, 1))
        return self.random.randint(low, high)

    # -- tensors --------------------------------------------------------------------------------------------------------------------------

    def tensor(self, shape: Shape, dtype: str | None = None, domain: str = "any") -> str:
        """The source of a tensor of this shape; now and then a view of another one."""
        dtype = dtype or self.type
        if not self.chance(VIEW):
            return self.dense(shape, dtype, domain)
        match self.random.randrange(5):
            case 0 if len(shape) > 1:
                order = self.random.sample(range(len(shape)), len(shape))
                base = [0] * len(shape)
                for axis, source in enumerate(order):
                    base[source] = shape[axis]
                return f"{self.dense(tuple(base), dtype, domain)}.transpose({order})"
            case 1 | 2 if shape:
                return self.slice(shape, dtype, domain)
            case 3 if shape and self.overlaps:
                axis = self.random.randrange(len(shape))
                base = (*shape[:axis], 1, *shape[axis + 1 :])
                return f"{self.dense(base, dtype, domain)}.expand({list(shape)})" if shape[axis] else self.dense(shape, dtype, domain)
            case 4 if shape and 0 not in shape and self.overlaps:
                return self.overlapping(shape, dtype, domain)
        return self.dense(shape, dtype, domain)

    def slice(self, shape: Shape, dtype: str, domain: str) -> str:
        """Every so many elements of a longer axis, from an offset."""
        axis, step, start = self.random.randrange(len(shape)), self.pick(1, 2, 3), self.pick(0, 1, 2)
        base = (*shape[:axis], start + shape[axis] * step, *shape[axis + 1 :])
        index = ", ".join([":"] * axis + [f"{start}:{start + shape[axis] * step}:{step}"])
        return f"{self.dense(base, dtype, domain)}[{index}]"

    def overlapping(self, shape: Shape, dtype: str, domain: str) -> str:
        """Windows over a shorter tensor: elements that share memory."""
        strides = [self.pick(0, 1, 2, 3) for _ in shape]
        length = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        return f"{self.dense((length,), dtype, domain)}.as_strided({list(shape)}, {strides})"

    def dense(self, shape: Shape, dtype: str, domain: str) -> str:
        count = int(np.prod(shape, dtype=np.int64))
        if count > 160:
            return f'T({self.many(count, dtype, domain)}, {list(shape)}, "{dtype}")'
        values = [self.number(dtype, domain) for _ in range(count)]
        return f'T([{", ".join(map(repr, values))}], {list(shape)}, "{dtype}")'

    def many(self, count: int, dtype: str, domain: str) -> str:
        """Many values by a generator: nobody reads them."""
        generator = f"np.random.default_rng({self.random.randrange(1000)})"
        if dtype == "bool":
            return f"{generator}.integers(0, 2, {count})"
        if dtype in INTEGERS:
            low = 1 if domain in ("positive", "nonzero", "unit") else max(np.iinfo(dtype).min, -9)
            return f"{generator}.integers({low}, 10, {count})"
        match domain:
            case "positive":
                return f"{generator}.uniform(0.05, 3, {count})"
            case "unit":
                return f"{generator}.uniform(0.02, 0.98, {count})"
            case "bounded":
                return f"{generator}.uniform(-0.98, 0.98, {count})"
        return f"{generator}.standard_normal({count})"

    def indices(self, shape: Shape, bound: int, dtype: str | None = None, negative: bool = False) -> str:
        """Indices below a bound, now and then one that is out of range."""
        count = int(np.prod(shape, dtype=np.int64))
        low = -bound if negative and self.chance(0.3) else 0
        values = [self.random.randint(low, max(bound - 1, low)) for _ in range(count)]
        if values and self.chance(INVALID):
            values[self.random.randrange(count)] = self.pick(bound, -bound - 1, bound + 100)
        return f'T({values}, {list(shape)}, "{dtype or self.pick("int32", "int64")}")'

    # -- attributes -----------------------------------------------------------------------------------------------------------------------

    def axis(self, rank: int) -> int:
        if rank == 0:
            return self.pick(0, -1, 0, -1, 1) if self.chance(0.5) else self.pick(0, -1)
        if self.chance(INVALID):
            return self.pick(rank, -rank - 1, rank + 5)
        return self.random.randint(-rank, rank - 1)

    def axes(self, rank: int) -> int | list[int] | None:
        """Axes of a reduction: none, one, or a list."""
        if self.chance(0.2):
            return None
        if rank == 0 or self.chance(0.5):
            return self.axis(rank)
        if self.chance(INVALID):
            return [0, 0] if self.chance(0.5) else [rank + 1]
        chosen = self.random.sample(range(rank), self.random.randint(1, rank))
        return [axis - rank if self.chance(0.3) else axis for axis in chosen]

    def order(self, rank: int) -> list[int]:
        order = self.random.sample(range(rank), rank)
        if rank and self.chance(INVALID):
            order[0] = self.pick(rank, order[-1])
        return order
