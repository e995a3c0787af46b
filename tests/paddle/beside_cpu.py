"""Calls that are made on device mps and on Paddle's CPU, and compared: values, gradients, element types and shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import paddle


@dataclass(frozen=True)
class Case:
    """A call of arrays, and how many of them, the first ones, have gradients."""

    call: Callable[..., object]
    arrays: tuple[np.ndarray, ...]
    differentiated: int = 0


def drawn(*shape: int, low: float = -2.0, high: float = 2.0, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).uniform(low, high, shape).astype(dtype)


def whole(*numbers: object, dtype: str = "int64") -> np.ndarray:
    return np.asarray(numbers, dtype)


def replaced(case: Case, number: int, array: np.ndarray) -> Case:
    """The call with another array in a place."""
    return replace(case, arrays=(*case.arrays[:number], array, *case.arrays[number + 1 :]))


def weights_of(result: np.ndarray) -> np.ndarray:
    """What a result is multiplied by, to be summed up and differentiated."""
    return drawn(*result.shape, low=0.5, high=1.5).astype(result.dtype)


def evaluated(case: Case, device: str) -> list[np.ndarray]:
    """The results, and the gradients of a weighted sum of the first."""
    paddle.set_device(device)
    tensors = [paddle.to_tensor(array) for array in case.arrays]
    for tensor in tensors[: case.differentiated]:
        tensor.stop_gradient = False
    found = case.call(*tensors)
    results = [result for result in (found if isinstance(found, tuple | list) else [found]) if result is not None]
    if case.differentiated:
        (results[0] * paddle.to_tensor(weights_of(results[0].numpy()))).sum().backward()
    return [result.numpy() for result in results] + [tensor.grad.numpy() for tensor in tensors[: case.differentiated]]


def assert_as_on_cpu(case: Case, rtol: float, atol: float) -> None:
    expected, found = evaluated(case, "cpu"), evaluated(case, "mps")
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
