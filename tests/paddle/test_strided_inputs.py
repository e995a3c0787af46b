"""Every case of the everyday functions again with inputs, and gradients, that are views: the elements do not follow each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest

import test_everyday
import test_functions
from test_everyday import Case

TABLES = [table for module in (test_everyday, test_functions) for table in vars(module).values() if isinstance(table, dict)]
CASES = {name: case for table in TABLES for name, case in table.items() if isinstance(case, Case)}

FLOATS = (paddle.float32, paddle.float64)


def dense(array: np.ndarray) -> paddle.Tensor:
    return paddle.to_tensor(array)


def transposed(array: np.ndarray) -> paddle.Tensor:
    """The same numbers as the transpose of a dense tensor."""
    if array.ndim == 0:
        return paddle.to_tensor(array)
    order = list(range(array.ndim))[::-1]
    return paddle.to_tensor(np.ascontiguousarray(array.transpose(order))).transpose(order)


def stepped(array: np.ndarray) -> paddle.Tensor:
    """The same numbers as every other one of a tensor's last axis."""
    if array.ndim == 0:
        return paddle.to_tensor(array)
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return paddle.to_tensor(wide)[..., ::2]


def outcome(case: Case, laid_out: Callable[[np.ndarray], paddle.Tensor]) -> list[np.ndarray]:
    """The results of a case and the gradients of its inputs, where the upstream gradients lie in that way, too."""
    paddle.seed(1)
    inputs = [laid_out(array) for array in case.inputs]
    for tensor in inputs:
        tensor.stop_gradient = tensor.dtype not in FLOATS
    results = case.call(*inputs)
    results = [result for result in (results if isinstance(results, (list, tuple)) else [results]) if isinstance(result, paddle.Tensor)]
    arrays = [result.numpy() for result in results]
    leaves = [result for result in results if result.dtype in FLOATS and not result.stop_gradient]
    if case.differentiates and leaves:
        weights = [laid_out((np.arange(result.size).reshape(result.shape) % 5 + 1).astype(result.numpy().dtype)) for result in leaves]
        paddle.autograd.backward(leaves, weights)
        arrays += [tensor.grad.numpy() for tensor in inputs if tensor.grad is not None]
    return arrays


@pytest.mark.parametrize("name", CASES)
def test_views_give_what_dense_tensors_give(name):
    case = CASES[name]
    expected = outcome(case, dense)
    for laid_out in (transposed, stepped):
        for own, other in zip(outcome(case, laid_out), expected, strict=True):
            assert own.shape == other.shape, laid_out.__name__
            np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-4, err_msg=laid_out.__name__)
