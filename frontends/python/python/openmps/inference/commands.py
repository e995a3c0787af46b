"""``openmps inspect``, ``openmps run`` and ``openmps profile``: what a program is made of, its results, where its time goes."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from openmps.cli import CommandError, Unavailable

try:
    import numpy as np
except ImportError:
    raise Unavailable("the command needs the package numpy: pip install numpy") from None

from openmps import native
from openmps.inference import Config, Predictor, create_predictor

# Events of the timeline that hold others.
_AROUND = ("Executable", "callback")


def inspect(model: Path, parameters: Path | None, console) -> int:
    """Operations and how often, what cannot run, inputs and outputs. The exit status is 1 where something cannot run."""
    config = _config(model, parameters)
    try:
        missing = native.unsupported_operations(Path(config.prog_file()).read_bytes())
    except (OSError, ValueError) as error:
        raise CommandError(f"{config.prog_file()}: {error}") from None
    if missing:
        console.print(f"[bold red]{escape(config.prog_file())} has operations that openmps cannot run:[/] {escape(', '.join(missing))}")
        return 1
    program = _load(config)._model
    for title, ports in (("inputs", program.inputs()), ("outputs", program.outputs())):
        table = Table("name", "shape", "type", title=title, title_justify="left")
        for name, dims, dtype in ports:
            table.add_row(escape(name), " x ".join("?" if dim < 0 else str(dim) for dim in dims), dtype or "")
        console.print(table)
    table = Table("operation", "count", title="operations, all of which run on openmps", title_justify="left")
    for name, count in sorted(program.operations(), key=lambda row: (-row[1], row[0])):
        table.add_row(name, str(count))
    console.print(table)
    return 0


def run(model: Path, parameters: Path | None, inputs: list[Path], output: Path | None, console) -> int:
    """Runs a program on arrays from files (``.npy``), prints what comes out, and writes it where ``output`` says (``.npz``)."""
    predictor = _load(_config(model, parameters))
    results = _run(predictor, [_array(path) for path in inputs])
    table = Table("output", "shape", "type", "least", "mean", "most", title_justify="left")
    for name, result in results.items():
        figures = [f"{value:.6g}" for value in (result.min(), result.mean(), result.max())] if result.size else ["", "", ""]
        table.add_row(escape(name), " x ".join(map(str, result.shape)), str(result.dtype), *figures)
    console.print(table)
    if output is not None:
        try:
            np.savez(output, **results)
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error}") from None
    return 0


def profile(model: Path, parameters: Path | None, shapes: list[list[int]], runs: int, trace: Path | None, console) -> int:
    """Times each kind of step over some runs on noise; ``trace`` is where the timeline goes, for Perfetto."""
    predictor = _load(_config(model, parameters))
    arrays = _noise(predictor, shapes)
    start = time.perf_counter()
    _run(predictor, arrays)
    first = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = trace or Path(folder) / "trace.json"
        native.trace_start(path)
        durations = []
        for _ in range(runs):
            start = time.perf_counter()
            _run(predictor, arrays)
            durations.append(time.perf_counter() - start)
        native.trace_stop()
        events = json.loads(path.read_text())["traceEvents"]
    console.print(_steps([event for event in events if event.get("ph") == "X" and event["name"] not in _AROUND], runs))
    median = statistics.median(durations) * 1e3
    console.print(f"first run with these shapes {first * 1e3:.1f} ms, then {median:.2f} ms (median of {runs}, traced)", highlight=False)
    return 0


def _steps(events: list[dict], runs: int) -> Table:
    """Milliseconds a run by the names of steps, the longest first."""
    total, count = defaultdict(float), defaultdict(int)
    for event in events:
        total[event["name"]] += event["dur"] / 1e3 / runs
        count[event["name"]] += 1
    everything = sum(total.values()) or 1.0
    table = Table("step", title=f"milliseconds a run, of {runs}", title_justify="left")
    for title in ("steps", "ms", "share"):
        table.add_column(title, justify="right")
    for name, duration in sorted(total.items(), key=lambda row: -row[1]):
        table.add_row(name, f"{count[name] / runs:g}", f"{duration:.3f}", f"{duration / everything:.1%}")
    return table


def _noise(predictor: Predictor, shapes: list[list[int]]) -> list[np.ndarray]:
    """Inputs of these shapes; the program's own where none are given and none is left open."""
    declared = predictor._model.inputs()
    if not shapes:
        shapes = [dims for _, dims, _ in declared]
    if len(shapes) != len(declared) or any(dim < 0 for shape in shapes for dim in shape):
        wanted = ", ".join(f"{name} {'x'.join('?' if dim < 0 else str(dim) for dim in dims)}" for name, dims, _ in declared)
        raise CommandError(f"the shapes of all inputs are needed, one --shape each: {wanted}")
    random = np.random.default_rng(0)
    return [random.uniform(0, 1, shape).astype(dtype or "float32") for shape, (_, _, dtype) in zip(shapes, declared, strict=True)]


def _config(model: Path, parameters: Path | None) -> Config:
    if not model.exists():
        raise CommandError(f"{model} does not exist")
    try:
        if model.is_dir():
            return Config(model)
        return Config(model, parameters or model.with_suffix(".pdiparams"))
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None


def _load(config: Config) -> Predictor:
    try:
        return create_predictor(config)
    except (OSError, ValueError, NotImplementedError) as error:
        raise CommandError(f"{config.prog_file()}: {error}") from None


def _array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} holds no array: {error}") from None
    if not isinstance(array, np.ndarray):
        raise CommandError(f"{path} holds several arrays: write one file, NAME.npy, for each input")
    return array


def _run(predictor: Predictor, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    names = predictor.get_input_names()
    if len(arrays) != len(names):
        raise CommandError(f"the program has {len(names)} inputs ({', '.join(names)}), {len(arrays)} were given")
    try:
        return dict(zip(predictor.get_output_names(), predictor.run(arrays), strict=True))
    except (ValueError, RuntimeError) as error:
        raise CommandError(str(error)) from None
