"""``openmps inspect``, ``openmps run`` and ``openmps profile``: what a program is made of, its results, where its time goes."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from openmps.cli import CommandError, Unavailable

try:
    import numpy as np
except ImportError:
    raise Unavailable("the command needs the package numpy: pip install numpy") from None

from openmps import native
from openmps.inference import Config, Predictor, create_predictor
from openmps.inference.predictor import as_native, noise

# Events of the timeline that hold others.
_AROUND = ("Executable", "callback")

_BY_RUN = "The program depends on values that it computes: each run finds out anew which steps it takes."

# Steps that the table of a profile names one by one; the rest is one line.
_LISTED = 40


def inspect(model: Path, parameters: Path | None, shapes: list[list[int]], console) -> int:
    """Operations and how often, what cannot run, inputs and outputs; with shapes, what was fused and the memory of a run.

    The exit status is 1 where something cannot run.
    """
    config = _config(model, parameters)
    try:
        missing = native.unsupported_operations(Path(config.prog_file()).read_bytes())
    except (OSError, ValueError) as error:
        raise CommandError(f"{config.prog_file()}: {error}") from None
    if missing:
        console.print(f"[bold red]{escape(config.prog_file())} has operations that openmps cannot run:[/] {escape(', '.join(missing))}")
        return 1
    predictor = _load(config)
    program = predictor._model
    for title, ports in (("inputs", program.inputs()), ("outputs", program.outputs())):
        table = Table("name", "shape", "type", title=title, title_justify="left")
        for name, dims, dtype in ports:
            table.add_row(escape(name), _shape(dims), dtype or "")
        console.print(table)
    operations = program.operations()
    table = Table("operation", title="operations, all of which run on openmps", title_justify="left")
    table.add_column("count", justify="right")
    for name, count in sorted(operations, key=lambda row: (-row[1], row[0])):
        table.add_row(name, str(count))
    console.print(table)
    if any(name == "print" for name, _ in operations):
        console.print("[yellow]print: openmps hands the tensor on and prints nothing[/]")
    if shapes or not any(dim < 0 for _, dims, _ in program.inputs() for dim in dims):
        _compiled(predictor, _noise(predictor, shapes), sum(count for _, count in operations), console)
    else:
        console.print("With --shape for each input: what is fused for these shapes, and the memory of a run.", highlight=False)
    return 0


def _compiled(predictor: Predictor, arrays: list[np.ndarray], operations: int, console) -> None:
    """The steps that a program becomes for these inputs, and its memory."""
    plan = _checked(lambda: predictor._model.plan(_given(predictor, arrays)))
    if plan is None:
        console.print(_BY_RUN, highlight=False)
        return
    steps, memory = plan
    counts = Counter((operator, *included) for operator, included, *_ in steps)
    console.print(f"{operations} operations became {len(steps)} steps:", highlight=False)
    table = Table("step", "with")
    table.add_column("count", justify="right")
    for (operator, *included), count in counts.most_common():
        table.add_row(operator, ", ".join(f"{name} x {times}" if times > 1 else name for name, times in Counter(included).items()), str(count))
    console.print(table)
    constants, packed, results, peak, everything = (memory[name] / 2**20 for name in ("constants", "packed", "results", "peak", "sum"))
    console.print(
        f"memory in MiB: weights {constants:.1f}, {packed:.1f} of them packed for kernels, between inputs and results {peak:.1f} in one block "
        f"({everything:.1f} if nothing were given back), results {results:.2f}",
        highlight=False,
        soft_wrap=True,
    )  # fmt: skip


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
            np.savez(output, **results)  # pyright: ignore[reportArgumentType]  (names are the program's)
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error}") from None
    return 0


def profile(model: Path, parameters: Path | None, shapes: list[list[int]], runs: int, trace: Path | None, console) -> int:
    """Times each step over some runs on noise, beside what the machine can do; ``trace`` is where a timeline goes, for Perfetto."""
    predictor = _load(_config(model, parameters))
    arrays = _noise(predictor, shapes)
    start = time.perf_counter()
    _run(predictor, arrays)
    first = time.perf_counter() - start
    plan = predictor._model.plan(_given(predictor, arrays))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Running", total=(runs if plan is None else 2 * runs) + 1)
        durations, events = _timeline(predictor, arrays, runs, trace, lambda: progress.advance(task))
        ceilings = None
        if plan is None:
            table = _by_kind([event for event in events if event.get("ph") == "X" and event["name"] not in _AROUND], runs)
        else:
            times = []
            for _ in range(runs):
                times.append(predictor._model.time_steps(_given(predictor, arrays)))
                progress.advance(task)
            bandwidth, arithmetic = (ceiling / 1e9 for ceiling in native.ceilings(predictor._config.custom_device_id()))
            table = _by_step(plan[0], np.median(np.array(times).reshape(runs, -1), axis=0), (bandwidth, arithmetic))
            ceilings = f"ceilings of this machine: {bandwidth:.1f} GB/s (copy), {arithmetic:.1f} GFLOP/s (multiply-add of float32)"
    if ceilings is not None:
        console.print(f"{ceilings}; each step is waited for", highlight=False, soft_wrap=True)
    console.print(table)
    counted = [event for event in events if event.get("cat") == "counters"]
    if counted:
        console.print(_by_counters(counted, runs))
    elif native.setting("OPENMPS_EMULATOR_COUNT"):
        console.print("Nothing was counted: only OPENMPS_DEVICE=metal-emulated counts what kernels do.", highlight=False)
    median = statistics.median(durations) * 1e3
    console.print(f"first run with these shapes {first * 1e3:.1f} ms, then {median:.2f} ms (median of {runs}, traced)", highlight=False)
    if plan is None:
        console.print(_BY_RUN, highlight=False)
    return 0


def _timeline(predictor: Predictor, arrays: list[np.ndarray], runs: int, trace: Path | None, advance) -> tuple[list[float], list[dict]]:
    """Seconds of each run, and the events of all."""
    with tempfile.TemporaryDirectory() as folder:
        path = trace or Path(folder) / "trace.json"
        _checked(lambda: native.trace_start(path))
        durations = []
        for _ in range(runs):
            start = time.perf_counter()
            _run(predictor, arrays)
            durations.append(time.perf_counter() - start)
            advance()
        native.trace_stop()
        return durations, json.loads(path.read_text())["traceEvents"]


def _by_step(steps: list[tuple], seconds: np.ndarray, ceilings: tuple[float, float]) -> Table:
    """Each step with its share of the time and of what the machine can do, the longest first."""
    bandwidth, arithmetic = ceilings
    table = Table("#", "step", "output")
    for column in ("ms", "share", "GB/s", "GFLOP/s", "of ceiling"):
        table.add_column(column, justify="right")
    everything = seconds.sum() or 1.0
    order = np.argsort(-seconds)
    for number in order[:_LISTED]:
        operator, included, shape, nbytes, operations = steps[number]
        rates = nbytes / max(seconds[number], 1e-9) / 1e9, operations / max(seconds[number], 1e-9) / 1e9
        name = " + ".join([operator, *included])
        cells = f"{seconds[number] * 1e3:.3f}", f"{seconds[number] / everything:.1%}", f"{rates[0]:.1f}", f"{rates[1]:.1f}"
        table.add_row(str(number), name, _shape(shape), *cells, f"{max(rates[0] / bandwidth, rates[1] / arithmetic):.0%}")
    rest = seconds[order[_LISTED:]]
    if rest.size:
        table.add_row("", f"{rest.size} others", "", f"{rest.sum() * 1e3:.3f}", f"{rest.sum() / everything:.1%}", "", "", "")
    nbytes, operations = (sum(step[column] for step in steps) / everything / 1e9 for column in (3, 4))
    table.add_section()
    table.add_row("", f"all {len(steps)}", "", f"{everything * 1e3:.3f}", "", f"{nbytes:.1f}", f"{operations:.1f}", "")
    return table


def _by_kind(events: list[dict], runs: int) -> Table:
    """Milliseconds a run by the names of commands, the longest first."""
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


#: Columns of the table of counters: title, what an event calls it, a divisor, decimals.
_COUNTERS = (
    ("device MB", "device_bytes", 1e6, 2),
    ("threadgroup MB", "threadgroup_bytes", 1e6, 2),
    ("conflicts", "bank_conflicts", 1, 0),
    ("barriers", "threadgroup_barriers", 1, 0),
    ("products", "matrix_products", 1, 0),
    ("M1, us", "M1_us", 1, 2),
    ("M4, us", "M4_us", 1, 2),
)


def _by_counters(events: list[dict], runs: int) -> Table:
    """What kernels do in a run, as the emulator counts it; those first that an M1 needs longest for."""
    kernels: dict[str, list[dict]] = defaultdict(list)
    for event in events:
        kernels[event["name"]].append(event["args"])
    title = "kernels in a run, counted by the emulator; times are a model's lower bounds, nothing ran on Apple hardware"
    table = Table(title=title, title_justify="left")
    table.add_column("kernel", min_width=24)
    for title in ("times", *(row[0] for row in _COUNTERS)):
        table.add_column(title, justify="right")

    def total(dispatches: list[dict], key: str) -> float:
        return sum(dispatch[key] for dispatch in dispatches) / runs

    for kernel, dispatches in sorted(kernels.items(), key=lambda row: -total(row[1], "M1_us")):
        cells = (f"{total(dispatches, key) / divisor:.{decimals}f}" for _, key, divisor, decimals in _COUNTERS)
        table.add_row(kernel, f"{len(dispatches) / runs:g}", *cells)
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
    try:
        return [noise(dtype, shape, random) for shape, (_, _, dtype) in zip(shapes, declared, strict=True)]
    except (MemoryError, ValueError) as error:
        raise CommandError(f"inputs of {', '.join('x'.join(map(str, shape)) for shape in shapes)} cannot be made: {error}") from None


def _given(predictor: Predictor, arrays: list[np.ndarray]) -> list[tuple]:
    """Arrays as the native module takes them."""
    return [as_native(dtype, array) for array, (_, _, dtype) in zip(arrays, predictor._model.inputs(), strict=True)]


def _shape(dims: list[int]) -> str:
    return " x ".join("?" if dim < 0 else str(dim) for dim in dims)


def _checked(call):
    """The result of a call of the native module; what it refuses is an error of the command."""
    try:
        return call()
    except (OSError, ValueError, RuntimeError) as error:
        raise CommandError(str(error)) from None


def _config(model: Path, parameters: Path | None) -> Config:
    if not model.exists():
        raise CommandError(f"{model} does not exist")
    try:
        if model.is_dir() or model.suffix == ".onnx":
            return Config(model, parameters)
        beside = model.with_suffix(".pdiparams")
        # A network without weights has no second file; a program that wants weights says which are missing.
        return Config(model, parameters or (beside if beside.exists() else ""))
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
        raise CommandError(f"{path} is an archive of arrays: write one file, NAME.npy, for each input")
    return array


def _run(predictor: Predictor, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    names = predictor.get_input_names()
    if len(arrays) != len(names):
        raise CommandError(f"the program has {len(names)} inputs ({', '.join(names)}), {len(arrays)} were given")
    return _checked(lambda: dict(zip(predictor.get_output_names(), predictor.run(arrays), strict=True)))
