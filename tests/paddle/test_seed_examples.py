"""The examples of the documents that this project began from, word for word, each as a program of its own.

`seed_examples/` holds every Python block of the English and the Chinese text as it was written there. They are run, not edited: what
they need and do not import stands in `NAMES`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "seed_examples"
EXAMPLES = sorted(FOLDER.glob("*/*.py"))
# The block that compares the two ways of writing names torch for comparison only: a stand-in takes any call.
NAMES = {"pytorch_style": "import paddle\nfrom unittest.mock import MagicMock\ntorch = MagicMock()\n"}
# What an example has to print, in either language: how many lines, and a number that must be among them.
LINES = {"basic_usage": 3, "device_management": 6, "memory_management": 3, "operator_examples": 0, "pytorch_style": 0, "lazy_loading": 0}


def run(example: Path, after: str = "") -> str:
    program = NAMES.get(example.stem, "") + example.read_text("utf-8") + "\n" + after
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "utf8", "-c", program], capture_output=True, text=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{path.parent.name}-{path.stem}" for path in EXAMPLES])
def test_example(example: Path) -> None:
    assert len(run(example).splitlines()) == LINES[example.stem]


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_basic_usage_computes_on_the_device(language: str) -> None:
    check = """
import numpy as np
assert all(tensor.place.custom_device_type() == "mps" for tensor in (x, y, z, w))
np.testing.assert_allclose(result, x.numpy().astype("float64") + y.numpy(), atol=1e-6)
np.testing.assert_allclose(w.numpy(), np.exp(x.numpy().astype("float64")), rtol=1e-6)
"""
    run(FOLDER / language / "basic_usage.py", check)


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_operator_examples_are_right(language: str) -> None:
    check = """
a, b = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
pairs = [(z, a + b), (w, a * b), (abs_x, a), (exp_x, np.exp(a)), (log_x, np.log(a + 1)), (sqrt_x, np.sqrt(a)), (relu_x, a)]
for got, want in [*pairs, (sigmoid_x, 1 / (1 + np.exp(-a)))]:
    assert got.place.custom_device_type() == "mps"
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
"""
    run(FOLDER / language / "operator_examples.py", check)


def test_all_examples_are_here() -> None:
    assert [(path.parent.name, path.stem) for path in EXAMPLES] == sorted(
        (language, name) for language in ("english", "chinese") for name in LINES
    )
