"""Each model of PP-OCRv4 at many sizes: the same numbers as Paddle's CPU, and no kernel of the CPU in secret."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pipeline import Predictor

# Detection takes multiples of 32, recognition any width of height 48, the angle classifier 48 x 192: batch, height, width.
SIZES = {
    "det": [(1, 32, 32), (1, 64, 96), (2, 64, 64), (1, 96, 32), (1, 160, 192), (3, 96, 128), (1, 320, 320), (1, 352, 640), (1, 736, 736)],
    "rec": [(1, 48, 32), (1, 48, 80), (2, 48, 100), (6, 48, 160), (6, 48, 320), (1, 48, 333), (3, 48, 480), (8, 48, 240), (1, 48, 1200)],
    "cls": [(1, 48, 192), (2, 48, 192), (3, 48, 192), (5, 48, 192), (6, 48, 192), (16, 48, 192)],
}
CASES = [pytest.param(name, size, id=f"{name}-{'x'.join(map(str, size))}") for name, sizes in SIZES.items() for size in sizes]
FEW = [pytest.param(name, sizes[i], id=f"{name}-{'x'.join(map(str, sizes[i]))}") for name, sizes in SIZES.items() for i in (1, 4)]
TOLERANCE = 1e-4  # of the largest value


@cache
def predictor(name: str, device: str) -> Predictor:
    return Predictor(name, device)


def noise(size: tuple[int, int, int]) -> np.ndarray:
    """An image of noise between -1 and 1, the range of a prepared photograph."""
    batch, height, width = size
    return np.random.default_rng(sum(size)).uniform(-1, 1, (batch, 3, height, width)).astype(np.float32)


def assert_close(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.dtype == expected.dtype and result.shape == expected.shape
    largest = np.abs(expected).max()
    difference = np.abs(result - expected).max()
    assert difference <= TOLERANCE * largest, f"difference {difference:.3g}, largest value {largest:.3g}"


@pytest.mark.parametrize(("name", "size"), CASES)
def test_same_numbers_as_the_cpu(name: str, size: tuple[int, int, int], device: str) -> None:
    data = noise(size)
    assert_close(predictor(name, device)(data), predictor(name, "cpu")(data))


@pytest.mark.parametrize("new_executor", [False, True], ids=["legacy", "new"])
@pytest.mark.parametrize(("name", "size"), FEW)
def test_same_numbers_on_paddles_executors(
    name: str, size: tuple[int, int, int], new_executor: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmps.paddle.inference._ours", lambda *_: None)
    data = noise(size)
    assert_close(Predictor(name, device, new_executor=new_executor)(data), predictor(name, "cpu")(data))


@pytest.mark.parametrize("name", SIZES)
def test_same_bits_twice(name: str, device: str) -> None:
    data = noise(SIZES[name][2])
    first = predictor(name, device)(data)
    predictor(name, device)(noise(SIZES[name][0]))
    assert np.array_equal(first, predictor(name, device)(data))


def missing_kernels(name: str, device: str, **environment: str) -> Counter[str]:
    """The operators of a model that Paddle ran on the CPU for want of a kernel.

    `FLAGS_enable_api_kernel_fallback=0` does not reach `paddle.inference`; its log at level 3 tells.
    """
    batch, height, width = SIZES[name][1]
    program = (
        f"import numpy, pipeline\npipeline.Predictor({name!r}, {device!r})(numpy.zeros(({batch}, 3, {height}, {width}), numpy.float32))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=Path(__file__).parent,
        env=os.environ | {"GLOG_vmodule": "phi_utils=3", "GLOG_minloglevel": "0"} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Counter(re.findall(r"phi missing \w+ kernel: (\w+)", done.stderr))


@pytest.mark.parametrize("name", SIZES)
def test_no_kernel_of_the_cpu_on_paddles_executor(name: str, device: str) -> None:
    assert missing_kernels(name, device, OPENMPS_EXECUTOR="paddle") == Counter()


def test_the_log_tells_of_a_missing_kernel(device: str) -> None:
    """The check above sees what it looks for: Paddle is told to run one operator on the CPU."""
    if device == "cpu":
        pytest.skip("the CPU misses no kernel of its own")
    assert missing_kernels("cls", device, OPENMPS_EXECUTOR="paddle", CUSTOM_DEVICE_BLACK_LIST="softmax")["softmax"] == 1
