"""``openmps demo IMAGE``: PP-OCRv4 on device ``mps`` reads a picture, next to Paddle's own CPU kernels where Paddle is installed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from openmps.cli import CommandError, require_executor
from openmps.ocr import reader

_STAGES = ("detection", "angle", "recognition")


@dataclass(frozen=True)
class Line:
    """A line of text: its four corners, what it says, how sure the model is."""

    box: list[list[float]]
    text: str
    confidence: float


@dataclass
class Timed:
    """A pipeline on one device, with the duration of each run in milliseconds, whole and by stage."""

    device: str
    engine: Callable
    lines: list[Line]
    total: list[float]
    stages: list[list[float]]

    def run(self, image) -> None:
        start = time.perf_counter()
        result, seconds = self.engine(image)
        self.total.append((time.perf_counter() - start) * 1e3)
        self.stages.append([value * 1e3 for value in seconds or (0.0,) * len(_STAGES)])
        self.lines = [Line(box, text, float(confidence)) for box, text, confidence in result or []]

    def forget(self) -> None:
        """Leaves the warm-up out of the figures."""
        self.total.clear()
        self.stages.clear()

    def median(self, stage: int | None = None) -> float:
        return statistics.median(self.total if stage is None else [run[stage] for run in self.stages])


def run(image, name: str, output: Path, device: str, runs: int, console) -> int:
    """Reads a ``PIL.Image`` of mode RGB on the device and on the CPU, prints text, times and memory, and writes the annotated picture."""
    require_executor(device)
    from importlib.util import find_spec

    import numpy as np

    picture = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])  # OpenCV's order of colours
    devices = [device] if device == "cpu" or find_spec("paddle") is None else [device, "cpu"]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        loading = progress.add_task("Loading the models", total=len(devices))
        pipelines = []
        for place in devices:
            pipelines.append(Timed(place, reader(place), [], [], []))
            progress.advance(loading)
        reading = progress.add_task("Reading", total=(runs + 1) * len(devices))
        for number in range(runs + 1):  # in turn, so that what else the machine does meets both alike
            for pipeline in pipelines:
                pipeline.run(picture)
                progress.advance(reading)
                if number == 0:
                    pipeline.forget()
    ours = pipelines[0]
    console.print(_text(ours.lines, name))
    console.print(_times(pipelines, runs))
    if device != "cpu":
        console.print(escape(_memory(device)), highlight=False, soft_wrap=True)
    if len(pipelines) == 2:
        _compare(ours, pipelines[1], console)
    from openmps.annotation import annotate

    try:
        annotate(image, ours.lines, output)
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error}") from None
    console.print(f"Annotated picture: [bold]{escape(str(output))}[/]", highlight=False, soft_wrap=True)
    return 0


def _text(lines: list[Line], name: str) -> Table:
    table = Table(title=f"{len(lines)} lines of text in {escape(name)}", title_justify="left")
    table.add_column("#", justify="right", style="dim")
    table.add_column("text", overflow="fold")
    table.add_column("confidence", justify="right")
    for number, line in enumerate(lines, 1):
        colour = "green" if line.confidence >= 0.9 else "yellow"
        table.add_row(str(number), escape(line.text), f"[{colour}]{line.confidence:.3f}[/]")
    return table


def _times(pipelines: list[Timed], runs: int) -> Table:
    table = Table(title=f"Milliseconds, median of {runs} after a warm-up", title_justify="left")
    table.add_column("")
    for pipeline in pipelines:
        table.add_column("PaddlePaddle's CPU" if pipeline.device == "cpu" else f"openmps ({pipeline.device})", justify="right")
    rows = [*((name, index) for index, name in enumerate(_STAGES)), ("whole", None)]
    if len(pipelines) == 2:
        table.add_column("times faster", justify="right")
    for name, stage in rows:
        medians = [pipeline.median(stage) for pipeline in pipelines]
        cells = [f"{value:.1f}" for value in medians]
        if len(medians) == 2:
            cells.append(f"{medians[1] / medians[0]:.2f}" if medians[0] > 0 else "")
        table.add_row(name, *cells, style="bold" if stage is None else "", end_section=stage == len(_STAGES) - 1)
    return table


def _memory(device: str) -> str:
    from openmps import native

    index, mebi = int(device.partition(":")[2] or 0), 2**20
    used = native.memory_statistics(index)
    return (
        f"Memory of {device}: {used['allocated'] / mebi:.1f} MiB allocated, {used['peak_allocated'] / mebi:.1f} MiB at the peak, "
        f"{used['reserved'] / mebi:.1f} MiB reserved ({native.device_properties(index)['name']})"
    )


def _compare(ours: Timed, cpu: Timed, console) -> None:
    """Says whether both devices read the same."""
    mine, theirs = ([line.text for line in pipeline.lines] for pipeline in (ours, cpu))
    if mine == theirs:
        console.print(f"[green]{ours.device} and PaddlePaddle's CPU read the same text.[/]")
    else:
        different = [pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]]
        counts = f"{len(mine)} and {len(theirs)} lines"
        console.print(f"[yellow]{ours.device} and PaddlePaddle's CPU differ: {counts}, {escape(str(different))}[/]")
