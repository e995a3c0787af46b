"""``openmps collective bench``: all-reduce on device ``mps`` between the processes of this machine, next to Gloo, which Paddle uses on the CPU.
``openmps collective plan``: what it would take on a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from openmps.cli import CommandError, require_device

#: Bytes of the arrays that are reduced.
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]


def run(ranks: int, seconds: float, console) -> int:
    """Starts the ranks, and prints what the first one has measured."""
    require_device("mps")
    figures = measure(ranks, seconds)
    console.print(_table(figures, ranks))
    console.print(f"memory: {figures['memory'] / 1e9:.1f} GB/s in copies of 64 MiB by {ranks} processes at once, each")
    return 0


def plan(hosts: int, ranks: int, cores: int, latency: float, bandwidth: float, console) -> int:
    """Prints the simulated time of each algorithm for each size."""
    from rich.table import Table

    from paddle_custom_device import openmps_native

    try:
        rows = openmps_native.collective_plan(hosts, ranks, cores, latency, bandwidth, SIZES)
    except ValueError as error:
        raise CommandError(str(error)) from None
    names = [name for name, _ in rows[0][1]]
    table = Table(title=f"all-reduce of float32, {hosts} x {ranks} processes, simulated")
    for column in ("bytes", *names, "fastest", "taken"):
        table.add_column(column, justify="right")
    for size, times, best, taken in rows:
        table.add_row(f"{size:,}", *("-" if time is None else _time(time) for _, time in times), best or "-", taken)
    console.print(table)
    return 0


def measure(ranks: int, seconds: float) -> dict:
    """The figures of a job of so many ranks."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch"]
        command += ["--devices", ",".join(map(str, range(ranks))), "--log_dir", folder]
        # A program of its own: this file's folder must not come before the packages that Python finds.
        program = Path(folder) / "rank.py"
        program.write_text("import sys\nfrom openmps import collective\ncollective.rank(sys.argv[1], float(sys.argv[2]))\n")
        command += [str(program), str(result), str(seconds)]
        environment = {**os.environ, "OPENMPS_HOST_DEVICES": str(ranks), "OPENMPS_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode or not result.exists():
            logs = sorted(Path(folder).glob("workerlog.*"))
            raise CommandError("the ranks ended with: " + (logs[0].read_text()[-1000:] if logs else done.stderr[-1000:]))
        return json.loads(result.read_text())


def traffic(size: int, ranks: int) -> float:
    """Bytes that one rank reads and writes in an all-reduce that sends each part to the rank that folds it, and the result to all."""
    return size * (7 * (ranks - 1) + 2) / ranks


def _table(figures: dict, ranks: int):
    from rich.table import Table

    table = Table(title=f"all-reduce of float32, {ranks} processes")
    for column in ("bytes", "mps", "GB/s", "share of memory", "Gloo", "Gloo / mps"):
        table.add_column(column, justify="right")
    for row in figures["rows"]:
        share = traffic(row["bytes"], ranks) / row["mps"] / figures["memory"]
        cells = [f"{row['bytes']:,}", _time(row["mps"]), f"{row['bytes'] / row['mps'] / 1e9:.2f}", f"{share:.2f}"]
        table.add_row(*cells, _time(row["gloo"]), f"{row['gloo'] / row['mps']:.1f}")
    return table


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def rank(result: str, seconds: float):
    """One rank: both ways in turn, and copies of the largest array, so that what else runs on the machine slows all; the best of many counts."""
    import numpy
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    everyone = list(range(dist.get_world_size()))
    gloo = dist.new_group(everyone, backend="gloo")  # pyright: ignore[reportArgumentType]  (Paddle has it)
    rows, memory = [], 0.0
    for size in SIZES:
        on_device = paddle.ones([size // 4], dtype="float32")
        on_cpu = paddle.ones([size // 4], dtype="float32").cpu()
        ways: dict[str, Callable[[], object]] = {"mps": lambda: dist.all_reduce(on_device), "gloo": lambda: dist.all_reduce(on_cpu, group=gloo)}
        if size == SIZES[-1]:
            source, target = numpy.ones(size // 4, "float32"), numpy.ones(size // 4, "float32")
            # Until all have copied: a rank that copies while others do not run has more of the memory than its share.
            ways["memory"] = lambda source=source, target=target: (numpy.copyto(target, source), dist.barrier())
        best = dict.fromkeys(ways, float("inf"))
        rounds = paddle.to_tensor(_rounds(ways, seconds))
        dist.all_reduce(rounds, op=dist.ReduceOp.MIN)
        for _ in range(int(rounds)):
            for name, work in ways.items():
                on_device.fill_(1.0)
                on_cpu.fill_(1.0)
                dist.barrier()
                best[name] = min(best[name], _once(work))
        memory = 2 * size / best.pop("memory", float("inf"))
        rows.append({"bytes": size, **best})
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps({"rows": rows, "memory": memory}))
    dist.barrier()


def _rounds(ways: dict, seconds: float) -> int:
    for work in ways.values():
        work()
    once = sum(_once(work) for work in ways.values())
    return max(5, min(2000, int(seconds / max(once, 1e-6))))


def _once(work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin

