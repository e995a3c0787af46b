"""openmps beside other libraries: one table of our time, the peer's time and the ratio, as text, JSON and a picture.

    python benches/compare.py                  # everything
    python benches/compare.py --only matmul    # works with this in their name
    python benches/compare.py --level avx2     # as on a machine without AVX-512

Every library runs in a process of its own; the processes take turns at each work, several rounds of it, so that what else the
machine does meets all alike. A figure is the median of all samples. A peer that is not installed is left out, and said so. With each
work the machine's own ceilings are measured, and our share of them is printed where a work's amount is known.

A run is compared with the last one that was recorded (`--record`) for the same processor, threads and level; what has become slower
beside the fastest peer is listed as a warning.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import networks
import recorded
from libraries import shapes

HERE = Path(__file__).resolve().parent
# Module in libraries/, the package it needs, its name in the table.
LIBRARIES = {
    "openmps": ("openmps", "openmps"),
    "paddle_cpu": ("paddle", "Paddle CPU"),
    "numpy_cpu": ("numpy", "NumPy"),
    "torch_cpu": ("torch", "PyTorch CPU"),
    "onnxruntime_cpu": ("rapidocr_onnxruntime", "ONNX Runtime"),
}
# It has no word that would hold it to AVX2, and is left out where others are.
NOT_HELD = "onnxruntime_cpu"
# What holds the other libraries to AVX2, each by its own word for it.
HELD_TO_AVX2 = {
    "OPENMPS_HOST_LEVEL": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}


@dataclass
class Worker:
    """A library's process."""

    library: str
    process: subprocess.Popen
    works: list[str]
    version: str

    @staticmethod
    def start(library: str, options: argparse.Namespace, without_plugins: str) -> Worker:
        environment = dict(os.environ)
        environment |= HELD_TO_AVX2 if options.level == "avx2" else {}
        environment |= {f"{name}_NUM_THREADS": str(options.threads) for name in ("OMP", "OPENBLAS", "MKL", "OPENMPS")}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(HERE), "PYTHONWARNINGS": "ignore"}
        if library != "openmps":
            environment["CUSTOM_DEVICE_ROOT"] = without_plugins  # Paddle as its users have it
        command = [sys.executable, str(HERE / "worker.py"), library]
        pipe = subprocess.PIPE
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True)
            first = process.stdout.readline()
            if not first:
                log.seek(0)
                raise SystemExit(f"{library} did not start:\n{log.read()[-2000:]}")
        hello = json.loads(first)
        return Worker(library, process, hello["works"], hello["version"])

    def measure(self, work: str, seconds: float) -> list[float]:
        """Microseconds of single runs."""
        self.process.stdin.write(json.dumps({"work": work, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.library} ended at {work!r} with exit status {self.process.wait()}")
        return json.loads(answer)

    def ceilings(self) -> dict[str, float]:
        """What the machine does at most, in a second."""
        self.process.stdin.write(json.dumps({"work": None}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    options = _options()
    installed = [library for library, (package, _) in LIBRARIES.items() if find_spec(package)]
    console = Console(width=None if sys.stdout.isatty() else 140)
    for library in LIBRARIES.keys() - set(installed):
        console.print(f"[yellow]{LIBRARIES[library][1]} is not installed: left out (requirements-bench.txt)[/]")
    if options.level == "avx2" and NOT_HELD in installed:
        installed.remove(NOT_HELD)
        console.print(f"{LIBRARIES[NOT_HELD][1]} takes what the processor has: left out")
    networks.ensure(shapes.NETWORKS)
    with tempfile.TemporaryDirectory() as empty:
        workers = [Worker.start(library, options, empty) for library in installed]
        figures, shares = _measure(workers, options, console)
        for worker in workers:
            worker.stop()
    console.print(_table(figures, shares, installed, options))
    result = {
        "machine": {"processor": _processor(), "system": platform.platform(), "threads": options.threads, "level": options.level},
        "versions": {worker.library: worker.version for worker in workers},
        "microseconds": figures,
        "shares": shares,
    }
    warnings = list(recorded.slower(result))
    for warning in warnings:
        console.print(warning, soft_wrap=True, highlight=False)
    if options.record and warnings:
        console.print("Not recorded: later runs are still compared with what was faster", soft_wrap=True)
    elif options.record:
        console.print(f"Recorded: {recorded.record(result)}", soft_wrap=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"Figures: {options.output / 'bench.json'}", soft_wrap=True)
    if find_spec("matplotlib"):
        from picture import draw

        draw(figures, {library: LIBRARIES[library][1] for library in installed}, _processor(), options.output / "bench.svg")
        console.print(f"Picture: {options.output / 'bench.svg'}", soft_wrap=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="works with this in their name")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of every library alike")
    parser.add_argument("--level", choices=("native", "avx2"), default="native", help="native: what the processor has")
    parser.add_argument("--seconds", type=float, default=0.25, help="for one work of one library in one round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--record", action="store_true", help="keep this run, unless it is slower, to compare later ones on such a machine with")
    parser.add_argument("--output", type=Path, default=HERE.parent / "target" / "bench", help="folder of JSON and picture")
    return parser.parse_args()


def _measure(workers: list[Worker], options: argparse.Namespace, console: Console) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Work -> library -> median microseconds; work -> the share of the machine's ceiling that openmps reaches."""
    names = [work for work in workers[0].works if options.only in work]
    if not names:
        raise SystemExit(f"no work has {options.only!r} in its name; there are: {', '.join(workers[0].works)}")
    figures: dict[str, dict[str, float]] = {}
    shares: dict[str, float] = {}
    amounts = shapes.amounts()
    columns = (TextColumn("{task.description:45}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            able = [worker for worker in workers if name in worker.works]
            samples: dict[str, list[float]] = {worker.library: [] for worker in able}
            for _ in range(options.rounds):
                for worker in able:
                    samples[worker.library] += worker.measure(name, options.seconds)
            figures[name] = {library: statistics.median(values) for library, values in samples.items()}
            if name in amounts:
                shares[name] = amounts[name].seconds(workers[0].ceilings()) * 1e6 / figures[name]["openmps"]
            progress.advance(task)
    return figures, shares


def _table(figures: dict[str, dict[str, float]], shares: dict[str, float], libraries: list[str], options: argparse.Namespace) -> Table:
    """One row a work: our time, our share of the machine's ceiling, and each peer's time with how many times faster we are."""
    machine = f"{_processor()}, {options.threads} threads, {options.level}"
    table = Table(title=f"Median milliseconds, and how many times faster openmps is ({machine})", title_justify="left")
    table.add_column("work", no_wrap=True)
    table.add_column(LIBRARIES[libraries[0]][1], justify="right", no_wrap=True)
    table.add_column("of ceiling", justify="right", no_wrap=True)
    for library in libraries[1:]:
        table.add_column(LIBRARIES[library][1], justify="right", no_wrap=True)
    for work, times in figures.items():
        ours = times["openmps"]
        cells = [f"[bold]{ours / 1e3:.4g}[/]", f"{shares[work]:.2f}" if work in shares else ""]
        for peer in libraries[1:]:
            ratio = times[peer] / ours if peer in times else None
            colour = "green" if (ratio or 0) >= 1 else "red"
            cells.append("" if ratio is None else f"{times[peer] / 1e3:.4g}  [{colour}]{ratio:.2f} x[/]")
        table.add_row(work, *cells)
    return table


def _processor() -> str:
    """What the system calls its processor, with family and model, as clouds call several generations alike, and the cores that this process may use."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().split("\n\n")[0].splitlines() if path.exists() else []
    first = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = first.get("model name", platform.processor())
    generation = f" (family {first['cpu family']}, model {first['model']})" if "cpu family" in first else ""
    return f"{name}{generation}, {len(os.sched_getaffinity(0))} cores"


if __name__ == "__main__":
    main()
