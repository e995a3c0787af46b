"""``openmps bench``: single operators of PaddlePaddle on device ``mps``, next to Paddle's own CPU kernels."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from openmps.cli import require_device

Work = Callable[[], object]


def run(device: str, seconds: float, console) -> int:
    """Measures every work on both devices in turn and prints a table."""
    require_device(device)
    import paddle

    paddle.set_flags({"FLAGS_enable_api_kernel_fallback": False})  # a kernel of the CPU must not stand for one of the device
    paddle.set_grad_enabled(False)
    devices = ["cpu"] if device == "cpu" else [device, "cpu"]
    made = {name: works(name) for name in devices}
    figures: dict[str, dict[str, float | None]] = {name: {} for name in devices}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(made[device]) * len(devices))
        for work in made[device]:
            for name in devices:
                progress.update(task, description=f"{work} on {name}")
                figures[name][work] = _measure(made[name][work], name, seconds)
                progress.advance(task)
    console.print(_table(figures))
    return 0


def works(device: str) -> dict[str, Work]:
    """The operators that are measured, on tensors of a device."""
    import paddle
    from paddle.nn import functional as F

    def tensor(*shape: int):
        return paddle.randn(list(shape)).to(device)

    paddle.seed(0)
    square, rows, image, weight = tensor(1024, 1024), tensor(4096, 1024), tensor(1, 64, 56, 56), tensor(64, 64, 3, 3)
    large, small = tensor(16 << 20), tensor(64 << 10)
    return {
        "matmul 1024x1024": lambda: paddle.matmul(square, square),
        "conv2d 3x3, 64 channels, 56x56": lambda: F.conv2d(image, weight, padding=1),
        "softmax 4096x1024": lambda: F.softmax(rows),
        "layer_norm 4096x1024": lambda: F.layer_norm(rows, [1024]),
        "exp, 16 million": lambda: paddle.exp(large),
        "add, 16 million": lambda: large + large,
        "exp, 65,536": lambda: paddle.exp(small),
        "add, 65,536": lambda: small + small,
        "sum, 16 million": lambda: paddle.sum(large),
    }


def _measure(work: Work, device: str, seconds: float) -> float | None:
    """The smallest duration of a work in milliseconds; None where the device has no kernel for it."""
    import paddle

    from openmps.paddle import mps

    def synchronize() -> None:
        if device != "cpu":
            mps.synchronize(device)

    paddle.device.set_device(device)
    try:
        for _ in range(3):
            work()
        synchronize()
    except (RuntimeError, NotImplementedError):
        return None
    start = time.perf_counter()
    work()
    synchronize()
    inner = max(1, int(200e-6 / max(time.perf_counter() - start, 1e-9)))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(inner):
            work()
        synchronize()
        best = min(best, (time.perf_counter() - start) / inner)
    return best * 1e3


def _table(figures: dict[str, dict[str, float | None]]) -> Table:
    table = Table(title="Milliseconds, the smallest of many", title_justify="left")
    table.add_column("operator")
    for device in figures:
        table.add_column("PaddlePaddle's CPU" if device == "cpu" else f"openmps ({device})", justify="right")
    columns = list(figures.values())
    if len(columns) == 2:
        table.add_column("times faster", justify="right")
    for work in columns[0]:
        times = [column[work] for column in columns]
        cells = ["no kernel" if value is None else f"{value:.4g}" for value in times]
        if len(times) == 2:
            ours, theirs = times
            cells.append("" if ours is None or theirs is None else f"{theirs / ours:.2f}")
        table.add_row(work, *cells)
    return table
