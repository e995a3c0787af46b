"""Memory at the peak of a process: of one that loads a model and runs it, openmps' executor beside ONNX Runtime, and of one that trains a network
through Paddle, device mps beside Paddle's CPU.

    python benches/memory.py                  # both tables
    python benches/memory.py --only train     # rows with this in their name

One process for each row and library, with nothing in it but NumPy and the library; resident memory as the system counts it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import networks
from libraries import shapes

RUNS = 20
STEPS = 10
NOTHING = "train nothing"  # what the library itself takes


def openmps(model: shapes.Model) -> None:
    from openmps.inference import Config, create_predictor

    predictor = create_predictor(Config(str(model.program), str(model.program.with_suffix(".pdiparams"))))
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    result = predictor.get_output_handle(predictor.get_output_names()[0])
    data = _input(model)
    for _ in range(RUNS):
        source.copy_from_cpu(data)
        predictor.run()
        result.copy_to_cpu()


def onnxruntime(model: shapes.Model) -> None:
    from onnxruntime import InferenceSession

    session = InferenceSession(model.onnx, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: _input(model)}
    for _ in range(RUNS):
        session.run(None, feed)


def train(library: str, work: str) -> None:
    """Steps of the works of training.py, forward, backward and optimizer."""
    module = import_module(f"libraries.{library}")
    works = module.works()
    if work != NOTHING:
        step = works[work]()
        for _ in range(STEPS):
            step()
    module.synchronize()


# The name in the table -> what a process of its own does with the row's name.
INFERENCE = {
    "openmps": lambda name: openmps(shapes.MODELS[name]),
    "ONNX Runtime": lambda name: onnxruntime(shapes.MODELS[name]),
}
TRAINING = {
    "openmps": lambda name: train("openmps", name),
    "Paddle CPU": lambda name: train("paddle_cpu", name),
}
TABLES = {"inference": INFERENCE, "training": TRAINING}


def _input(model: shapes.Model) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(model.shape, dtype=np.float32)


def _one(table: str, library: str, work: str) -> None:
    """In the process of its own: does the work and prints MiB at the peak."""
    TABLES[table][library](work)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _names() -> None:
    """The works of training.py, in a process of its own: a child's figure begins with what its parent held when it was started."""
    from libraries import training

    print(NOTHING, *training.works(), sep="\n")


def _child(options: argparse.Namespace, *arguments: str) -> list[str]:
    """Runs this file with these arguments; the lines that it printed. Only openmps has its plug-in, Paddle is as its users have it."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {f"{name}_NUM_THREADS": str(options.threads) for name in ("OMP", "OPENBLAS", "MKL", "OPENMPS")}
    command = [sys.executable, "-W", "ignore", __file__, "--child", *arguments]
    with tempfile.TemporaryDirectory() as without_plugins:
        if "openmps" not in arguments:
            environment["CUSTOM_DEVICE_ROOT"] = without_plugins
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with exit status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()


def _table(kind: str, names: list[str], options: argparse.Namespace) -> Table:
    libraries = TABLES[kind]
    what = {"inference": f"{RUNS} runs", "training": f"{STEPS} steps"}[kind]
    table = Table(title=f"Resident memory at the peak, {what}, MiB", title_justify="left")
    for column in ("model", *libraries, " / ".join(libraries)):
        table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
    for name in names:
        ours, theirs = (float(_child(options, kind, library, name)[-1]) for library in libraries)
        table.add_row(name, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}")
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with this in their name; those of training begin with train")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of every library alike")
    return parser.parse_args()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return _one(*sys.argv[2:]) if sys.argv[2:] else _names()
    options = _options()
    networks.ensure(shapes.NETWORKS)
    rows = {
        "inference": [name for name in shapes.models("program") if name in shapes.models("onnx")],
        "training": _child(options),
    }
    console = Console(width=None if sys.stdout.isatty() else 140)
    for kind, names in rows.items():
        if wanted := [name for name in names if options.only in name]:
            console.print(_table(kind, wanted, options))


if __name__ == "__main__":
    main()
