"""Memory at the peak of a process that loads a model and runs it: openmps' executor beside ONNX Runtime.

    python benches/memory.py

One process for each model and library, with nothing in it but NumPy and the library; resident memory as the system counts it.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
from rich.console import Console
from rich.table import Table

import networks
from libraries import shapes

RUNS = 20


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


LIBRARIES = {"openmps": openmps, "ONNX Runtime": onnxruntime}


def _input(model: shapes.Model) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(model.shape, dtype=np.float32)


def _measure(library: str, model: str) -> float:
    """MiB at the peak of a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, library, model]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> None:
    if len(sys.argv) == 3:
        LIBRARIES[sys.argv[1]](shapes.MODELS[sys.argv[2]])
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    networks.ensure(shapes.NETWORKS)
    table = Table(title="Resident memory at the peak, MiB", title_justify="left")
    for column in ("model", *LIBRARIES, "openmps / ONNX Runtime"):
        table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
    for name in [name for name in shapes.models("program") if name in shapes.models("onnx")]:
        ours, theirs = (_measure(library, name) for library in LIBRARIES)
        table.add_row(name, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}")
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
