"""Text recognition on the emulated Apple GPU: the same text as on Paddle's CPU, through the encoder and the kernels that a Mac would get.

The kernels' Metal text is executed on the CPU; convolutions and products go to the stand-ins of MPSGraph and MPS, unless own kernels are
forced.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline import IMAGES, Predictor, Reader

HERE = Path(__file__).resolve().parent
PAGE = next(path for path in IMAGES if path.stem == "low_contrast")

READ = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pipeline import Reader
reader = Reader("mps")
# MPSGraph takes a shape when it comes in a second run.
first, again = ([line.text for line in reader(sys.argv[2])] for _ in range(2))
assert first == again, (first, again)
print("LINES", json.dumps(again))
"""


@pytest.mark.parametrize("engine", ["", "kernels"], ids=["the table", "own kernels"])
def test_same_text(program, cpu_reader: Reader, tmp_path: Path, engine: str) -> None:
    trace = tmp_path / "trace.json"
    environment = {"OPENMPS_DEVICE": "metal-emulated", "OPENMPS_TRACE": str(trace), "OPENMPS_METAL_ENGINE": engine}
    printed = program(READ, str(HERE), str(PAGE), **{name: value for name, value in environment.items() if value})
    lines = json.loads(printed.partition("LINES ")[2].splitlines()[0])
    assert lines == [line.text for line in cpu_reader(PAGE)]
    assert lines
    # Commands by kind: kernels of ours, and calls of the stand-ins.
    kinds = Counter(event.get("cat") for event in json.loads(trace.read_text())["traceEvents"])
    assert kinds["dispatch"] > 20, kinds
    assert (kinds["vendor"] > 20) == (engine == ""), kinds


RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from openmps import native
from openmps.inference import Config, create_predictor
from pipeline import model_files
counts, inputs = {}, np.load(sys.argv[2])
for name in inputs:
    predictor = create_predictor(Config(*map(str, model_files(name))))
    predictor.run([inputs[name]])
    before = native.command_buffers(0)
    (result,) = predictor.run([inputs[name]])
    counts[name] = native.command_buffers(0) - before
    np.save(f"{sys.argv[3]}/{name}.npy", result)
print("COUNTS", json.dumps(counts))
"""


def test_a_run_is_few_command_buffers_and_the_cpus_numbers(program, tmp_path: Path) -> None:
    """The executor hands a whole program over: the feed, the steps, and what the caller waits for."""
    shapes = {"det": (1, 3, 64, 64), "rec": (1, 3, 48, 64), "cls": (1, 3, 48, 192), "det v5": (1, 3, 64, 96), "rec v5": (2, 3, 48, 64)}
    numbers = np.random.default_rng(0)
    inputs = {name: numbers.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "inputs.npz", **inputs)
    printed = program(RUN, str(HERE), str(tmp_path / "inputs.npz"), str(tmp_path), OPENMPS_DEVICE="metal-emulated")
    counts = json.loads(printed.partition("COUNTS ")[2].splitlines()[0])
    assert counts.keys() == inputs.keys() and all(1 <= count <= 6 for count in counts.values()), counts
    for name, data in inputs.items():
        result, expected = np.load(tmp_path / f"{name}.npy"), Predictor(name, "cpu")(data)
        assert result.shape == expected.shape
        assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max(), name
