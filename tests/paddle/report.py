"""The seeds' test scripts as data: checks by name, printed as a report by a script and asserted one by one by pytest.

A check computes something on device `mps` and returns the largest difference from the reference, or None where there is nothing to
compare. A difference beyond the tolerance raises AssertionError.
"""

from __future__ import annotations

import os

os.environ.setdefault("FLAGS_enable_api_kernel_fallback", "0")
os.environ.setdefault("GLOG_minloglevel", "1")

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

RULE = "=" * 60
# Largest difference that is allowed, relative to the reference (to 1 where that is smaller): a few units in the last place.
TOLERANCES = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


@dataclass(frozen=True)
class Check:
    """One line of a report."""

    name: str
    run: Callable[[], float | None]

    def __str__(self) -> str:
        return self.name


def difference(result, expected: np.ndarray, magnitude: np.ndarray | float = 0.0) -> float:
    """The largest absolute difference of a tensor from its reference in float64; asserts place, shape and closeness.

    NaN and infinities have to be at the same places. Where numbers are summed, `magnitude` is the sum of their absolute values: what
    cancels there is lost to rounding.
    """
    assert result.place.is_custom_place(), f"the result is on {result.place}"
    dtype = str(result.dtype).rpartition(".")[2]
    values = (result.astype("float32") if dtype == "bfloat16" else result).numpy()
    expected = np.asarray(expected)
    assert values.shape == expected.shape, f"shape {values.shape}, expected {expected.shape}"
    if dtype not in TOLERANCES:
        assert np.array_equal(values, expected)
        return 0.0
    values, finite = values.astype(np.float64), np.isfinite(expected)
    assert np.array_equal(values[~finite], expected[~finite], equal_nan=True), f"{values[~finite]} instead of {expected[~finite]}"
    distance = np.abs(values[finite] - expected[finite])
    scale = np.maximum(np.abs(expected), magnitude)[finite]
    allowed = TOLERANCES[dtype] * np.maximum(scale, 1.0)
    assert (distance <= allowed).all(), f"max diff: {distance.max():.2e}, allowed {allowed[distance.argmax()]:.2e}"
    return float(distance.max(initial=0.0))


def parametrize(sections: dict[str, list[Check]]):
    """pytest's parametrisation over all checks of a report."""
    import pytest

    checks = [check for section in sections.values() for check in section]
    return pytest.mark.parametrize("check", checks, ids=[str(check) for check in checks])


def header(title: str) -> None:
    print(f"{RULE}\n{title}\n{RULE}")


def start(title: str) -> None:
    """The head of every report: PaddlePaddle is there, and so is the device. Exits where it is not."""
    header(title)
    import paddle

    print("✓ PaddlePaddle imported")
    if not paddle.mps.is_available():
        raise SystemExit(f"✗ MPS not available: {paddle.mps.unavailable_reason()}")
    paddle.mps.set_device(0)
    print("✓ MPS available, device set to 0")


def print_report(title: str, sections: dict[str, list[Check]]) -> int:
    """Runs and prints all checks; the number that failed."""
    start(title)
    failed, total = 0, 0
    for name, checks in sections.items():
        print()
        header(name)
        for check in checks:
            print(f"\n{check.name}:")
            total += 1
            failed += not _passes(check)
    print()
    header(f"{total - failed} of {total} passed")
    return failed


def _passes(check: Check) -> bool:
    try:
        largest = check.run()
    except Exception as error:
        print(f"  ✗ Fail ({type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''})")
        return False
    print("  ✓ Pass" if largest is None else f"  ✓ Pass (max diff: {largest:.2e})")
    return True


def tensors(*arrays: np.ndarray, dtype: str | None = None, gradient: bool = False) -> Iterable:
    """Arrays as tensors on the device, in a type of Paddle's where it is named."""
    import paddle

    made = [paddle.to_tensor(array, place="mps") for array in arrays]
    made = [tensor if dtype is None else tensor.astype(dtype) for tensor in made]
    for tensor in made:
        tensor.stop_gradient = not gradient
    return made
