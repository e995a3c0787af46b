"""Operators over awkward shapes, forward and backward, on `mps` beside Paddle's CPU in one process: what is far slower stands out.

    python benches/sweep.py                     # everything: some 2,000 rows, a quarter of an hour
    python benches/sweep.py --only softmax      # operators with this in their name
    python benches/sweep.py --below 1           # also what is less far behind

benches/compare.py measures what users do most, in large regular shapes; a dimension of 1, 2 or 3 in the wrong place has cost a factor
of 160 unseen. A figure is the least of all samples, as the two devices take turns. Host only: no device is waited for.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

Operator = Callable[[Any], Any]

SHAPES = (
    (1,),
    (7,),
    (100_000,),
    (65_536, 1),
    (1, 65_536),
    (50_000, 8),
    (8, 50_000),
    (2, 20_000),
    (1000, 1000),
    (20_000, 2, 2),
    (4000, 2, 3),
    (3, 300, 300),
    (17, 19, 23),
    (8, 16, 32, 2),
    (16, 3, 33, 33),
)


@dataclass(frozen=True)
class Row:
    """One call on both devices, in microseconds."""

    name: str
    shape: tuple[int, ...]
    ours: float
    cpu: float

    @property
    def ratio(self) -> float:
        return self.cpu / self.ours


def elementwise(paddle) -> dict[str, Operator]:
    functional = paddle.nn.functional
    return {
        "abs": paddle.abs,
        "exp": paddle.exp,
        "sqrt": lambda x: paddle.sqrt(x * x + 1),
        "relu": functional.relu,
        "gelu": functional.gelu,
        "silu": functional.silu,
        "leaky_relu": functional.leaky_relu,
        "hardswish": functional.hardswish,
        "clip": lambda x: paddle.clip(x, -0.5, 0.5),
        "pow 3": lambda x: x**3,
        "cast int32": lambda x: x.cast("int32"),
        "cast int64": lambda x: x.cast("int64"),
        "add number": lambda x: x + 1.5,
        "multiply itself": lambda x: x * x,
        "maximum of a row": lambda x: paddle.maximum(x, x[:1]),
        "maximum of a column": lambda x: paddle.maximum(x, x[..., :1]),
        "where": lambda x: paddle.where(x > 0, x, -x),
        "dropout": lambda x: functional.dropout(x, 0.3),
    }


def along(paddle, axis: int) -> dict[str, Operator]:
    functional = paddle.nn.functional
    return {
        "sum": lambda x: x.sum(axis),
        "mean": lambda x: x.mean(axis),
        "max": lambda x: x.max(axis),
        "amin": lambda x: x.amin(axis),
        "prod": lambda x: x.prod(axis),
        "logsumexp": lambda x: x.logsumexp(axis),
        "norm": lambda x: x.norm(2, axis),
        "var": lambda x: x.var(axis),
        "argmax": lambda x: x.argmax(axis),
        "any": lambda x: (x > 0).any(axis),
        "softmax": lambda x: functional.softmax(x, axis),
        "log_softmax": lambda x: functional.log_softmax(x, axis),
        "cumsum": lambda x: x.cumsum(axis),
        "cumprod": lambda x: x.cumprod(axis),
        "cummax": lambda x: x.cummax(axis)[0],
        "sort": lambda x: x.sort(axis),
        "topk": lambda x: x.topk(min(3, x.shape[axis]), axis)[0],
        "flip": lambda x: x.flip(axis),
        "roll": lambda x: x.roll(1, axis),
        "concat": lambda x: paddle.concat([x, x], axis),
        "chunk": lambda x: paddle.chunk(x, x.shape[axis] if x.shape[axis] < 9 else 1, axis)[0] + 0,
        "stack": lambda x: paddle.stack([x, x], axis),
        "repeat_interleave": lambda x: x.repeat_interleave(2, axis),
        "index_select": lambda x: x.index_select(paddle.zeros([1], "int64"), axis),
        "take_along_axis": lambda x: x.take_along_axis(x.argsort(axis), axis),
        "every second": lambda x: paddle.strided_slice(x, [axis % x.ndim], [0], [x.shape[axis]], [2]) + 0,
    }


def movement(paddle) -> dict[str, Operator]:
    functional = paddle.nn.functional
    return {
        "turn": lambda x: x.transpose(list(range(x.ndim))[::-1]).contiguous(),
        "add number, turned": lambda x: x.transpose(list(range(x.ndim))[::-1]) + 1.5,
        "tile": lambda x: x.tile([1] * (x.ndim - 1) + [2]),
        "expand": lambda x: x.unsqueeze(0).expand([2, *x.shape]) + 0,
        "pad": lambda x: functional.pad(x, [1, 1] * x.ndim),
        "tril": lambda x: paddle.tril(x) if x.ndim > 1 else x + 0,
        "masked_select": lambda x: x.masked_select(x > 0),
        "nonzero": lambda x: (x > 0).nonzero(),
        "one of its rows": lambda x: x[0] + 0,
        "rows by index": lambda x: x[paddle.arange(x.shape[0]).flip(0)],
        "elements by indices": lambda x: x[tuple(paddle.arange(1000) % size for size in x.shape)],
        "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
        "embedding": lambda x: functional.embedding(paddle.arange(x.shape[0]), x) if x.ndim == 2 else x + 0,
        "linear to 3": lambda x: functional.linear(x, paddle.ones([x.shape[-1], 3])),
    }


def operators(paddle, only: str) -> Iterator[tuple[str, Operator]]:
    """Those with `only` in their name."""
    groups = [("", elementwise(paddle)), (" of the last", along(paddle, -1)), (" of the first", along(paddle, 0)), ("", movement(paddle))]
    for suffix, group in groups:
        for name, work in group.items():
            if only in name + suffix:
                yield name + suffix, work


def refuses(paddle, operator: Operator, x) -> bool:
    """Whether Paddle's own CPU does not take these dimensions; what only `mps` refuses ends the run."""
    paddle.set_device("cpu")
    try:
        operator(x)
    except (RuntimeError, ValueError):
        return True
    return False


def forward(paddle, operator: Operator, x) -> Callable:
    return lambda: operator(x)


def backward(paddle, operator: Operator, x) -> Callable | None:
    """The gradient of `operator` alone, or nothing where it has none."""
    x.stop_gradient = False
    y = operator(x)
    return None if y.stop_gradient else lambda: paddle.grad(y, x, retain_graph=True)


def least(paddle, works: dict[str, Callable], seconds: float) -> dict[str, float]:
    """The least microseconds of a call of each device's work, in turns of six calls."""
    found = dict.fromkeys(works, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for device, work in works.items():
            paddle.set_device(device)
            work()
            for _ in range(5):
                start = time.perf_counter()
                work()
                found[device] = min(found[device], (time.perf_counter() - start) * 1e6)
    return found


def rows(paddle, only: str, seconds: float) -> Iterator[Row]:
    for shape in SHAPES:
        values = paddle.randn(shape)
        for name, operator in operators(paddle, only):
            if refuses(paddle, operator, values.to("cpu")):
                continue
            for kind, prepared in (("", forward), ("gradient of ", backward)):
                works = {}
                for device in ("cpu", "mps"):
                    paddle.set_device(device)
                    works[device] = prepared(paddle, operator, values.to(device).detach())
                if None not in works.values():
                    found = least(paddle, works, seconds)
                    yield Row(kind + name, shape, found["mps"], found["cpu"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operators with this in their name")
    parser.add_argument("--below", type=float, default=0.5, help="list rows with less than this share of the CPU's speed")
    parser.add_argument("--over", type=float, default=10, help="leave out rows that take fewer microseconds: those are the call, not the operator")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each row")
    options = parser.parse_args()
    os.environ |= {f"{name}_NUM_THREADS": str(options.threads) for name in ("OMP", "OPENBLAS", "MKL", "OPENMPS")}
    os.environ["OPENMPS_DEVICE"] = "host"
    warnings.simplefilter("ignore")  # of shapes that are the point here
    import paddle

    table = Table(title=f"below {options.below} of Paddle's CPU, {options.threads} thread(s)")
    for heading in ("operator", "shape", "mps, us", "CPU, us", "CPU / mps"):
        table.add_column(heading)
    found = list(track(rows(paddle, options.only, options.seconds), "rows", total=None))
    slow = sorted((row for row in found if row.ratio < options.below and row.ours > options.over), key=lambda row: row.ratio)
    for row in slow:
        table.add_row(row.name, str(list(row.shape)), f"{row.ours:.1f}", f"{row.cpu:.1f}", f"{row.ratio:.2f}")
    console = Console()
    console.print(table)
    console.print(f"{len(slow)} of {len(found)} rows; in the middle the CPU takes {median(row.ratio for row in found):.2f} times as long")


if __name__ == "__main__":
    main()
