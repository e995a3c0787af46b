"""Attention on device mps, without fallback: values and gradients are those of Paddle's CPU, at every length, with every mask."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F


def attention(device: str, length: int, causal: bool, mask: str, dtype: str = "float32") -> list[np.ndarray]:
    paddle.set_device(device)
    random = np.random.default_rng(length)
    q, k, v = (paddle.to_tensor(random.standard_normal((2, length, 3, 8)).astype(dtype), stop_gradient=False) for _ in range(3))
    seen = {"none": None, "additive": random.standard_normal((2, 1, length, length)).astype(dtype), "hidden": np.where(random.random((2, 1, 1, length)) < 0.3, -1e9, 0.0).astype(dtype)}[mask]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=None if seen is None else paddle.to_tensor(seen), is_causal=causal)
    (out * out.cos()).sum().backward()
    return [tensor.astype("float32").numpy() for tensor in (out, q.grad, k.grad, v.grad)]


@pytest.mark.parametrize("length", [1, 31, 32, 33, 70])
@pytest.mark.parametrize("causal, mask", [(True, "none"), (False, "none"), (False, "additive"), (False, "hidden")])
def test_attention_is_that_of_the_cpu(length, causal, mask):
    for mine, theirs in zip(attention("mps", length, causal, mask), attention("cpu", length, causal, mask), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype, tolerance", [("float16", 1e-2), ("float64", 1e-12)])
def test_attention_in_other_types(dtype, tolerance):
    peer = "float64" if dtype == "float64" else "float32"
    for mine, theirs in zip(attention("mps", 40, True, "none", dtype), attention("cpu", 40, True, "none", peer), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-12), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_softmax_with_a_mask(dtype, tolerance):
    random = np.random.default_rng(0)
    scores, mask = random.standard_normal((2, 3, 32, 32)).astype("float32"), random.standard_normal((2, 1, 32, 32)).astype("float32")
    hidden = np.where(np.tril(np.ones((32, 32), "bool")), 0.0, -np.inf).astype("float32")
    for fused, added in ((lambda x: paddle.incubate.softmax_mask_fuse(x, paddle.to_tensor(mask).astype(dtype)), mask), (paddle.incubate.softmax_mask_fuse_upper_triangle, hidden)):
        x = paddle.to_tensor(scores).astype(dtype)
        x.stop_gradient = False
        y = fused(x)
        (y * paddle.arange(32).astype(dtype)).sum().backward()
        z = paddle.to_tensor(scores, dtype="float64", stop_gradient=False)
        w = F.softmax(z + paddle.to_tensor(added).astype("float64"), -1)
        (w * paddle.arange(32, dtype="float64")).sum().backward()
        np.testing.assert_allclose(y.astype("float64").numpy(), w.numpy(), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(x.grad.astype("float64").numpy(), z.grad.numpy(), rtol=10 * tolerance, atol=32 * tolerance)
