"""The largest error of every float32 operator, beside that of Paddle's CPU: at most twice as large, or two roundings.

python tests/paddle/test_accuracy.py   writes the table to docs/accuracy.md
"""

from __future__ import annotations

import os

os.environ.setdefault("FLAGS_enable_api_kernel_fallback", "0")
os.environ.setdefault("GLOG_minloglevel", "1")

from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from test_everyday import CASES as EVERYDAY
from test_everyday import Case, normal, positive

ROUNDING = float(np.finfo("float32").eps)

# Sizes at which what is summed up shows.
LARGE = {
    "conv2d, 3x3, 16 channels": Case(lambda x, w: F.conv2d(x, w, padding=1), (normal(2, 16, 40, 40), normal(16, 16, 3, 3))),
    "conv2d, 3x3, 128 channels": Case(lambda x, w: F.conv2d(x, w, padding=1), (normal(1, 128, 28, 28), normal(64, 128, 3, 3))),
    "conv2d, 3x3, 32 channels": Case(lambda x, w: F.conv2d(x, w, padding=1), (normal(2, 32, 40, 40), normal(32, 32, 3, 3))),
    "conv2d, 3x3, 64 channels": Case(lambda x, w: F.conv2d(x, w, padding=1), (normal(2, 64, 28, 28), normal(32, 64, 3, 3))),
    "conv2d, 3x3, 256 channels": Case(lambda x, w: F.conv2d(x, w, padding=1), (normal(2, 256, 14, 14), normal(32, 256, 3, 3))),
    "conv2d, 5x5": Case(lambda x, w: F.conv2d(x, w, padding=2), (normal(2, 64, 20, 20), normal(32, 64, 5, 5))),
    "conv2d, 3x3, steps of 2": Case(lambda x, w: F.conv2d(x, w, stride=2, padding=1), (normal(2, 64, 28, 28), normal(32, 64, 3, 3))),
    "conv2d, 1x1": Case(F.conv2d, (normal(2, 256, 14, 14), normal(32, 256, 1, 1))),
    "conv2d_transpose, 3x3": Case(lambda x, w: F.conv2d_transpose(x, w, stride=2), (normal(2, 256, 12, 12), normal(256, 32, 3, 3))),
    "matmul, 256": Case(paddle.matmul, (normal(256, 256), normal(256, 256, seed=1))),
    "matmul, 1000 terms": Case(paddle.matmul, (normal(64, 1000), normal(1000, 64, seed=1))),
    "sum, 100000": Case(paddle.sum, (normal(100000),)),
    "mean, 100000": Case(paddle.mean, (positive(100000),)),
    "softmax, 1000": Case(lambda x: F.softmax(x * 5), (normal(8, 1000),)),
    "layer_norm, 1000": Case(lambda x, w, b: F.layer_norm(x + 10, [1000], w, b), (normal(8, 1000), normal(1000), normal(1000, seed=1))),
    "batch_norm, 4000": Case(
        lambda x, w, b: F.batch_norm(x + 10, paddle.zeros([4], x.dtype), paddle.ones([4], x.dtype), w, b, training=True),
        (normal(4, 4, 32, 32), normal(4), normal(4, seed=1)),
    ),
    "exp, far": Case(paddle.exp, (normal(1000) * 20,)),
    "sin, far": Case(paddle.sin, (normal(1000) * 100,)),
    "log1p, near": Case(paddle.log1p, (normal(1000) * 1e-4,)),
    "cumsum, 1000": Case(lambda x: paddle.cumsum(x, axis=-1), (normal(4, 1000),)),
}
# These compare or round.
LEFT_OUT = {"sort", "argsort", "floor", "ceil", "round", "trunc", "sign"}
CASES = {name: case for name, case in EVERYDAY.items() if name not in LEFT_OUT} | LARGE


def run(case: Case, device: str, dtype: str) -> list[np.ndarray]:
    """The result, and the gradient of a weighed sum of it by each float input."""
    paddle.set_device(device)
    paddle.set_default_dtype(dtype)
    try:
        tensors = [paddle.to_tensor(array.astype(dtype) if array.dtype.kind == "f" else array.copy()) for array in case.inputs]
        for tensor in tensors:
            tensor.stop_gradient = not (case.differentiates and paddle.is_floating_point(tensor))
        result = case.call(*tensors)
        values = [result.numpy()]
        if case.differentiates and not result.stop_gradient:
            # Of both signs, but not of the same sum: what is left of numbers that cancel out is chance, on either side.
            weights = (np.cos(np.arange(result.size)) + 0.5).reshape(values[0].shape).astype("float32").astype(values[0].dtype)
            (result * paddle.to_tensor(weights)).sum().backward()
            values += [tensor.grad.numpy() for tensor in tensors if tensor.grad is not None]
        return values
    finally:
        paddle.set_default_dtype("float32")


def error(got: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """The largest difference, relative to the largest number of the tensor."""
    worst = 0.0
    for mine, reference in zip(got, exact, strict=True):
        if reference.dtype.kind != "f" or not reference.size:
            continue
        finite = np.isfinite(reference) & np.isfinite(mine)
        scale = np.abs(reference[finite]).max(initial=0.0)
        if scale > 0:
            worst = max(worst, float(np.abs(mine[finite].astype("float64") - reference[finite]).max() / scale))
    return worst


def errors(name: str) -> tuple[float, float] | None:
    """Of device mps and of Paddle's CPU; none where Paddle's CPU has no float64 for the call, or no floats come out."""
    case = CASES[name]
    try:
        exact = run(case, "cpu", "float64")
    except Exception:
        return None
    mine, theirs = run(case, "mps", "float32"), run(case, "cpu", "float32")
    if mine[0].dtype != np.float32 or len(mine) != len(exact) or exact[0].dtype != np.float64:
        return None
    return error(mine, exact), error(theirs, exact)


@pytest.mark.parametrize("name", CASES)
def test_it_is_at_most_twice_as_far_off_as_the_cpu(name):
    pair = errors(name)
    if pair is not None:
        mine, theirs = pair
        assert mine <= max(2 * theirs, 3 * ROUNDING), f"{mine:.2e}, Paddle's CPU {theirs:.2e}"


HEAD = """\
# Accuracy

The largest error of each call in float32, of its result and of its gradients: the difference from Paddle's CPU in float64, relative to the
largest number of the tensor. One rounding is 1.2e-7. `tests/paddle/test_accuracy.py` demands at most twice the error of Paddle's CPU, or three
roundings, since the CPU's depends on the machine, and writes this table: `python tests/paddle/test_accuracy.py`.

| call | `mps` | Paddle's CPU |
|---|---|---|
"""


def document() -> str:
    rows = ((name, errors(name)) for name in sorted(CASES))
    return HEAD + "".join(f"| {name} | {pair[0]:.1e} | {pair[1]:.1e} |\n" for name, pair in rows if pair is not None)


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs/accuracy.md").write_text(document())
