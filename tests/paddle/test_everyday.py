"""What a user calls within the first ten minutes: values and gradients on device mps are those of Paddle's CPU, without fallback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F


@dataclass(frozen=True)
class Case:
    """A call with its inputs; gradients are compared of every float input when `differentiates`."""

    call: Callable
    inputs: tuple[np.ndarray, ...]
    differentiates: bool = True
    tolerance: float = 2e-5


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype("float32")


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) * 2 + 0.1).astype("float32")


def fraction(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) * 0.9 + 0.05).astype("float32")


def integers(low: int, high: int, *shape: int, dtype: str = "int64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def truths(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) > 0.5


X, Y, Z = normal(3, 4, 5), normal(3, 4, 5, seed=1), normal(4, 1, seed=2)
P, U = positive(3, 4, 5), fraction(3, 4, 5)
LABELS, MASK = integers(0, 7, 6), truths(3, 4, 5)
LOGITS = normal(6, 7)
SQUARE = normal(2, 6, 6)
IMAGE, KERNEL = normal(2, 4, 9, 11), normal(8, 4, 3, 3)
POINTS, PLACES = normal(2, 5, 6, 2, seed=3), normal(2, 3, 2, 4, 3, seed=3)


def one(*calls: Callable, on: np.ndarray = X, **options) -> dict[str, Case]:
    return {call.__name__.strip("_"): Case(call, (on,), **options) for call in calls}


CASES: dict[str, Case] = {
    **one(paddle.abs, paddle.exp, paddle.expm1, paddle.sin, paddle.cos, paddle.tan, paddle.atan, paddle.sinh, paddle.cosh, paddle.tanh),
    **one(paddle.square, paddle.erf, paddle.sign, paddle.floor, paddle.ceil, paddle.round, paddle.trunc, paddle.neg),
    **one(paddle.log, paddle.log2, paddle.log10, paddle.log1p, paddle.sqrt, paddle.rsqrt, paddle.reciprocal, on=P),
    **one(paddle.asin, paddle.acos, paddle.logit, on=U, tolerance=1e-4),
    **one(F.relu, F.relu6, F.sigmoid, F.silu, F.swish, F.gelu, F.softplus, F.softsign, F.mish, F.hardswish, F.hardsigmoid, F.hardtanh),
    **one(F.leaky_relu, F.elu, F.celu, F.selu, F.tanhshrink, F.softshrink, F.hardshrink, F.thresholded_relu, F.log_sigmoid),
    "gelu, tanh": Case(lambda x: F.gelu(x, approximate=True), (X,)),
    "prelu": Case(lambda x, w: F.prelu(x, w), (X, np.array([0.25], "float32"))),
    "glu": Case(lambda x: F.glu(x, axis=1), (X,)),
    "pow": Case(lambda x: paddle.pow(x, 3), (X,)),
    "pow, tensor": Case(paddle.pow, (P, Y)),
    "clip": Case(lambda x: paddle.clip(x, -0.5, 0.7), (X,)),
    "scale": Case(lambda x: paddle.scale(x, 2.0, 1.0), (X,)),
    "add": Case(paddle.add, (X, Z)),
    "subtract": Case(paddle.subtract, (X, Z)),
    "multiply": Case(paddle.multiply, (X, Z)),
    "divide": Case(paddle.divide, (X, positive(4, 1))),
    "maximum": Case(paddle.maximum, (X, Z)),
    "minimum": Case(paddle.minimum, (X, Z)),
    "fmax": Case(paddle.fmax, (X, Y)),
    "fmin": Case(paddle.fmin, (X, Y)),
    "atan2": Case(paddle.atan2, (X, Y)),
    "lerp": Case(lambda x, y: paddle.lerp(x, y, 0.3), (X, Y)),
    "floor_divide": Case(paddle.floor_divide, (integers(1, 90, 12), integers(1, 9, 12)), False),
    "remainder": Case(paddle.remainder, (integers(1, 90, 12), integers(1, 9, 12)), False),
    "bitwise": Case(lambda x, y: (x & y) | (x ^ y), (integers(0, 90, 12), integers(0, 9, 12)), False),
    "compare": Case(lambda x, y: (x < y).astype("int32") + (x >= y).astype("int32") * 2 + (x == y).astype("int32"), (X, Y), False),
    "logic": Case(lambda x, y: paddle.logical_and(x, y) | paddle.logical_xor(x, paddle.logical_not(y)), (MASK, truths(3, 4, 5, seed=3)), False),
    "isnan": Case(lambda x: paddle.isnan(x) | paddle.isinf(x) | paddle.isfinite(x), (np.array([1, np.nan, np.inf, -np.inf], "float32"),), False),
    "nan_to_num": Case(paddle.nan_to_num, (np.array([1, np.nan, np.inf, -np.inf], "float32"),), False),
    "isclose": Case(paddle.isclose, (X, X + 1e-6), False),
    "allclose": Case(paddle.allclose, (X, X + 1e-7), False),
    "equal_all": Case(paddle.equal_all, (X, X), False),
    "where": Case(lambda m, x, y: paddle.where(m, x, y), (MASK, X, Y)),
    "masked_fill": Case(lambda x, m: paddle.masked_fill(x, m, 2.0), (X, MASK)),
    "masked_select": Case(paddle.masked_select, (X, MASK)),
    "cast": Case(lambda x: x.astype("float64") * 2, (X,)),
    **one(paddle.sum, paddle.mean, paddle.max, paddle.min, paddle.prod, paddle.amax, paddle.amin, paddle.logsumexp, paddle.std, paddle.var),
    "sum, axis": Case(lambda x: paddle.sum(x, axis=[0, 2]), (X,)),
    "mean, axis": Case(lambda x: paddle.mean(x, axis=1, keepdim=True), (X,)),
    "max, axis": Case(lambda x: paddle.max(x, axis=-1), (X,)),
    "prod, axis": Case(lambda x: paddle.prod(x, axis=1), (P,)),
    "logsumexp, axis": Case(lambda x: paddle.logsumexp(x, axis=1), (X,)),
    "norm": Case(lambda x: paddle.linalg.norm(x), (X,)),
    "norm, 1": Case(lambda x: paddle.linalg.norm(x, p=1, axis=-1), (X,)),
    "norm, 2": Case(lambda x: paddle.linalg.norm(x, p=2, axis=1), (X,)),
    "norm, 3": Case(lambda x: paddle.linalg.norm(x, p=3, axis=1), (P,)),
    "normalize": Case(lambda x: F.normalize(x, axis=-1), (X,)),
    "cosine_similarity": Case(lambda x, y: F.cosine_similarity(x, y, axis=-1), (X, Y)),
    "any, all": Case(lambda m: paddle.any(m, axis=0).astype("int32") + paddle.all(m, axis=0).astype("int32"), (MASK,), False),
    "argmax": Case(lambda x: paddle.argmax(x, axis=1), (X,), False),
    "argmin": Case(lambda x: paddle.argmin(x), (X,), False),
    "cumsum": Case(lambda x: paddle.cumsum(x, axis=1), (X,)),
    "cumprod": Case(lambda x: paddle.cumprod(x, dim=1), (P,)),
    "sort": Case(lambda x: paddle.sort(x, axis=-1), (X,)),
    "argsort": Case(lambda x: paddle.argsort(x, axis=-1), (X,), False),
    "topk": Case(lambda x: paddle.topk(x, 2, axis=-1)[0], (X,)),
    "nonzero": Case(lambda m: paddle.nonzero(m), (MASK,), False),
    "count_nonzero": Case(lambda x: paddle.count_nonzero(x), (integers(0, 2, 20),), False),
    "diff": Case(lambda x: paddle.diff(x), (X,)),
    "reshape": Case(lambda x: x.reshape([-1, 5]) * 2, (X,)),
    "transpose": Case(lambda x: x.transpose([2, 0, 1]) * 2, (X,)),
    "squeeze": Case(lambda x: x.unsqueeze(1).squeeze(1) * 2, (X,)),
    "flatten": Case(lambda x: paddle.flatten(x) * 2, (X,)),
    "concat": Case(lambda x, y: paddle.concat([x, y], axis=1) * 2, (X, Y)),
    "stack": Case(lambda x, y: paddle.stack([x, y], axis=1) * 2, (X, Y)),
    "split": Case(lambda x: paddle.split(x, 2, axis=1)[1] * 2, (X,)),
    "chunk": Case(lambda x: paddle.chunk(x, 2, axis=1)[0] * 2, (X,)),
    "unbind": Case(lambda x: paddle.unbind(x, axis=0)[1] * 2, (X,)),
    "tile": Case(lambda x: paddle.tile(x, [2, 1, 3]), (X,)),
    "expand": Case(lambda x: paddle.expand(x, [3, 4, 5]) * 2, (Z,)),
    "broadcast_to": Case(lambda x: paddle.broadcast_to(x, [3, 4, 5]) * 2, (Z,)),
    "flip": Case(lambda x: paddle.flip(x, [0, 2]) * 2, (X,)),
    "roll": Case(lambda x: paddle.roll(x, 2, 1) * 2, (X,)),
    "rot90": Case(lambda x: paddle.rot90(x, 1, [0, 1]) * 2, (X,)),
    "pad": Case(lambda x: F.pad(x, [1, 2], value=0.5), (X,)),
    "pad, reflect": Case(lambda x: F.pad(x, [1, 2, 2, 1], mode="reflect"), (IMAGE,)),
    "gather": Case(lambda x, i: paddle.gather(x, i, axis=1), (X, integers(0, 4, 6))),
    "gather_nd": Case(lambda x, i: paddle.gather_nd(x, i), (X, integers(0, 3, 6, 2))),
    "index_select": Case(lambda x, i: paddle.index_select(x, i, axis=1), (X, integers(0, 4, 6))),
    "take_along_axis": Case(lambda x, i: paddle.take_along_axis(x, i, 1), (X, integers(0, 4, 3, 2, 5))),
    "put_along_axis": Case(lambda x, i: paddle.put_along_axis(x, i, 1.5, 1), (X, integers(0, 4, 3, 1, 5)), False),
    "scatter": Case(lambda x, i, y: paddle.scatter(x, i, y), (X, np.array([2, 0]), normal(2, 4, 5))),
    "scatter_nd_add": Case(paddle.scatter_nd_add, (X, integers(0, 3, 6, 1), normal(6, 4, 5))),
    "index_add": Case(lambda x, i, y: paddle.index_add(x, i, 0, y), (X, np.array([2, 0]), normal(2, 4, 5))),
    "slice": Case(lambda x: x[1:, ::2, -3:] * 2, (X,)),
    "index": Case(lambda x, i: x[i] * 2, (X, integers(0, 3, 4))),
    "tril": Case(lambda x: paddle.tril(x) + paddle.triu(x, 1) * 2, (SQUARE,)),
    "diag": Case(lambda x: paddle.diag(x), (normal(5),)),
    "diagonal": Case(lambda x: paddle.diagonal(x, axis1=1, axis2=2) * 2, (SQUARE,)),
    "diag_embed": Case(lambda x: paddle.diag_embed(x), (normal(2, 5),), False),
    "trace": Case(lambda x: paddle.trace(x, axis1=1, axis2=2), (SQUARE,), False),
    "kron": Case(paddle.kron, (normal(2, 3), normal(3, 2)), False),
    "meshgrid": Case(lambda x, y: paddle.add(*paddle.meshgrid(x, y)), (normal(4), normal(3))),
    "one_hot": Case(lambda i: F.one_hot(i, 7), (LABELS,), False),
    "repeat_interleave": Case(lambda x: paddle.repeat_interleave(x, 2, axis=1), (X,)),
    "moveaxis": Case(lambda x: paddle.moveaxis(x, 0, 2) * 2, (X,)),
    "full_like": Case(lambda x: paddle.full_like(x, 2) + paddle.ones_like(x) + paddle.zeros_like(x), (X,), False),
    "arange": Case(lambda x: paddle.arange(0, 10, 2) + paddle.linspace(0, 1, 5).astype("int64") + x, (integers(0, 5, 5),), False),
    "eye": Case(lambda x: paddle.eye(6) + x, (SQUARE,)),
    "matmul": Case(paddle.matmul, (normal(2, 3, 4), normal(2, 4, 5))),
    "matmul, transposed": Case(lambda x, y: paddle.matmul(x, y, transpose_y=True), (normal(2, 3, 4), normal(5, 4))),
    "bmm": Case(paddle.bmm, (normal(2, 3, 4), normal(2, 4, 5))),
    "mm, mv, dot": Case(lambda x, y, v: paddle.mm(x, y) + paddle.mv(x, v).unsqueeze(1) + paddle.dot(v, v), (normal(3, 4), normal(4, 5), normal(4))),
    "addmm": Case(paddle.addmm, (normal(3, 5), normal(3, 4), normal(4, 5))),
    "outer": Case(paddle.outer, (normal(3), normal(4))),
    "tensordot": Case(lambda x, y: paddle.tensordot(x, y, axes=1), (normal(2, 3, 4), normal(4, 5))),
    "linear": Case(F.linear, (normal(3, 4), normal(4, 5), normal(5))),
    "embedding": Case(lambda i, w: F.embedding(i, w), (LABELS, normal(7, 3))),
    "softmax": Case(lambda x: F.softmax(x, axis=1), (X,)),
    "log_softmax": Case(lambda x: F.log_softmax(x, axis=1), (X,)),
    "layer_norm": Case(lambda x, w, b: F.layer_norm(x, [4, 5], w, b), (X, normal(20), normal(20))),
    "layer_norm, plain": Case(lambda x: F.layer_norm(x, [5]), (X,)),
    # Without weights the gradient of Paddle's CPU is off by 5e-3 of PyTorch's; ours is compared with weights.
    "group_norm": Case(lambda x: F.group_norm(x, 2), (IMAGE,), False),
    "group_norm, weights": Case(lambda x, w, b: F.group_norm(x, 2, weight=w, bias=b), (IMAGE, normal(4), normal(4))),
    "instance_norm": Case(lambda x: F.instance_norm(x), (IMAGE,)),
    "batch_norm": Case(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), (IMAGE, normal(4), positive(4), normal(4), normal(4))),
    "conv1d": Case(lambda x, w: F.conv1d(x, w, padding=1), (normal(2, 3, 8), normal(4, 3, 3))),
    "conv2d": Case(lambda x, w: F.conv2d(x, w, stride=2, padding=1), (IMAGE, KERNEL), tolerance=1e-4),
    "conv2d, grouped": Case(lambda x, w: F.conv2d(x, w, groups=2, padding=1), (IMAGE, normal(8, 2, 3, 3)), tolerance=1e-4),
    "conv2d, depthwise": Case(lambda x, w: F.conv2d(x, w, groups=4, padding=1), (IMAGE, normal(4, 1, 3, 3)), tolerance=1e-4),
    "conv2d_transpose": Case(lambda x, w: F.conv2d_transpose(x, w, stride=2), (IMAGE, normal(4, 3, 3, 3)), tolerance=1e-4),
    "max_pool2d": Case(lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "avg_pool2d": Case(lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,)),
    "max_pool1d": Case(lambda x: F.max_pool1d(x, 2), (X,)),
    "max_pool1d, window beyond the input": Case(lambda x: F.max_pool1d(x, 12, 12), (X,)),
    "max_pool1d, window beyond the input, ceil": Case(lambda x: F.max_pool1d(x, 12, 12, ceil_mode=True), (X,)),
    "avg_pool1d, window beyond the input": Case(lambda x: F.avg_pool1d(x, 12, 12, ceil_mode=True), (X,)),
    "avg_pool2d, window beyond the input": Case(lambda x: F.avg_pool2d(x, 13, 12, 1, exclusive=False), (IMAGE,)),
    "avg_pool1d": Case(lambda x: F.avg_pool1d(x, 2), (X,)),
    "adaptive_avg_pool2d": Case(lambda x: F.adaptive_avg_pool2d(x, 3), (IMAGE,)),
    "adaptive_max_pool2d": Case(lambda x: F.adaptive_max_pool2d(x, 3), (IMAGE,)),
    "interpolate, nearest": Case(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), (IMAGE,)),
    "interpolate, bilinear": Case(lambda x: F.interpolate(x, size=[5, 17], mode="bilinear"), (IMAGE,)),
    "interpolate, corners": Case(lambda x: F.interpolate(x, size=[12, 7], mode="bilinear", align_corners=True), (IMAGE,)),
    "upsample": Case(lambda x: F.upsample(x, scale_factor=3), (IMAGE,)),
    "pixel_shuffle": Case(lambda x: F.pixel_shuffle(x, 2), (IMAGE,)),
    **{
        f"grid_sample, {mode}, {beyond}": Case(lambda x, at, mode=mode, beyond=beyond: F.grid_sample(x, at, mode, beyond, False), (IMAGE, POINTS), tolerance=1e-4)
        for mode in ("bilinear", "nearest")
        for beyond in ("zeros", "border", "reflection")
    },
    "grid_sample, volume": Case(F.grid_sample, (normal(2, 3, 4, 5, 6), PLACES), tolerance=1e-4),
    "grid_sample, points that are no numbers": Case(
        lambda x, at: F.grid_sample(x, paddle.where(at > 0.5, paddle.full_like(at, float("nan")), at), "nearest"), (IMAGE, POINTS), False
    ),
    "is_empty": Case(lambda x: paddle.stack([paddle.is_empty(x), paddle.is_empty(x[:, :0])]), (X,), False),
    "diagflat of a number": Case(paddle.diagflat, (np.float32(2.5),)),
    "dropout, eval": Case(lambda x: F.dropout(x, 0.5, training=False), (X,)),
    "attention": Case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (normal(2, 5, 2, 8), normal(2, 5, 2, 8, seed=1), normal(2, 5, 2, 8, seed=2))),
    "attention, causal": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (normal(2, 5, 2, 8), normal(2, 5, 2, 8, seed=1), normal(2, 5, 2, 8, seed=2))
    ),
    "cross_entropy": Case(F.cross_entropy, (LOGITS, LABELS)),
    "cross_entropy, ignored": Case(lambda x, y: F.cross_entropy(x, y, ignore_index=3), (LOGITS, LABELS)),
    "cross_entropy, weighted": Case(lambda x, y, w: F.cross_entropy(x, y, weight=w), (LOGITS, LABELS, positive(7)), False),
    **{f"cross_entropy, labels of {dtype}": Case(F.softmax_with_cross_entropy, (LOGITS, LABELS[:, None].astype(dtype))) for dtype in ("uint8", "int8", "int16", "int32")},
    "cross_entropy, axis": Case(lambda x, y: F.cross_entropy(x, y, axis=1), (normal(2, 7, 3), integers(0, 7, 2, 3))),
    "cross_entropy, soft": Case(lambda x, y: F.cross_entropy(x, F.softmax(y), soft_label=True), (LOGITS, normal(6, 7, seed=5))),
    "cross_entropy, smoothed": Case(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), (LOGITS, LABELS)),
    "cross_entropy, probabilities": Case(lambda x, y: F.cross_entropy(F.softmax(x), y, use_softmax=False), (LOGITS, LABELS)),
    "nll_loss": Case(lambda x, y: F.nll_loss(F.log_softmax(x), y), (LOGITS, LABELS)),
    "nll_loss, each": Case(lambda x, y: F.nll_loss(F.log_softmax(x), y, reduction="none"), (LOGITS, LABELS)),
    "nll_loss, each: the total weight": Case(lambda x, y: paddle._C_ops.nll_loss(x, y, None, -100, "none")[1], (LOGITS, LABELS), False),
    "mse_loss": Case(F.mse_loss, (X, Y)),
    "l1_loss": Case(F.l1_loss, (X, Y)),
    "smooth_l1_loss": Case(F.smooth_l1_loss, (X, Y)),
    "kl_div, targets of zero": Case(lambda x, y: F.kl_div(F.log_softmax(x), F.one_hot(y, 7), reduction="none"), (LOGITS, LABELS)),
    "kl_div": Case(lambda x, y: F.kl_div(F.log_softmax(x), F.softmax(y)), (LOGITS, normal(6, 7, seed=5))),
    "binary_cross_entropy": Case(F.binary_cross_entropy, (U, MASK.astype("float32")), tolerance=1e-4),
    "binary_cross_entropy_with_logits": Case(F.binary_cross_entropy_with_logits, (X, MASK.astype("float32"))),
    "sigmoid_focal_loss": Case(lambda x, y: F.sigmoid_focal_loss(x, y), (X, MASK.astype("float32")), False),
    "margin_ranking_loss": Case(lambda x, y: F.margin_ranking_loss(x, y, paddle.sign(x)), (X, Y), False),
    "hinge_embedding_loss": Case(lambda x, y: F.hinge_embedding_loss(x, y), (X, np.sign(Y)), False),
    "triplet_margin_loss": Case(F.triplet_margin_loss, (normal(4, 6), normal(4, 6, seed=1), normal(4, 6, seed=2)), tolerance=1e-4),
    "label_smooth": Case(lambda x: F.label_smooth(x, epsilon=0.1), (fraction(4, 6),), False),
    "multiplex of assignments": Case(lambda x: paddle.assign(x) + x.clone() + x.detach(), (X,)),
    "increment": Case(lambda x: paddle.increment(x.clone(), 2.0), (normal(1),), False),
    "linear layer of a transposed sequence": Case(lambda x, w: paddle.matmul(x.transpose([1, 0, 2]), w), (normal(3, 5, 4), normal(4, 2))),
    "inner": Case(paddle.inner, (normal(3, 4), normal(5, 4))),
    "heaviside": Case(paddle.heaviside, (X, Y), False),
    "deg2rad": Case(lambda x: paddle.deg2rad(x) + paddle.rad2deg(x), (X,)),
    "frac": Case(paddle.frac, (X,), False),
    "addition of many": Case(lambda x, y: paddle.add_n([x, y, x]), (X, Y)),
    "numel, shape": Case(lambda x: paddle.numel(x) + paddle.shape(x).sum(), (X,), False),
}


def run(case: Case, device: str) -> list[np.ndarray]:
    """The result, and the gradient of a weighed sum of it by each float input."""
    paddle.set_device(device)
    tensors = [paddle.to_tensor(array.copy()) for array in case.inputs]
    for tensor in tensors:
        tensor.stop_gradient = not (case.differentiates and tensor.dtype == paddle.float32)
    result = case.call(*tensors)
    values = [result.numpy()]
    if case.differentiates:
        weights = paddle.to_tensor(np.cos(np.arange(result.size)).reshape(result.shape).astype(values[0].dtype))
        (result * weights).sum().backward()
        values += [tensor.grad.numpy() for tensor in tensors if tensor.grad is not None]
    return values


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_on_the_cpu(name):
    case = CASES[name]
    expected, got = run(case, "cpu"), run(case, "mps")
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        if mine.dtype.kind == "f":
            scale = max(1.0, float(np.max(np.abs(theirs[np.isfinite(theirs)]), initial=0.0)))
            np.testing.assert_allclose(mine, theirs, rtol=case.tolerance, atol=case.tolerance * scale)
        else:
            np.testing.assert_array_equal(mine, theirs)


def test_a_point_on_the_last_element_has_the_slope_beyond_it():
    """Paddle's CPU takes the derivative as if zeros lay beyond, where the border or the reflected image does."""
    paddle.set_device("mps")
    image = paddle.arange(1, 13, dtype="float32").reshape([1, 1, 3, 4])
    for beyond, expected in ("zeros", [-18.0, -12.0]), ("border", [0.0, 0.0]), ("reflection", [0.0, 0.0]):
        corner = paddle.ones([1, 1, 1, 2])
        corner.stop_gradient = False
        F.grid_sample(image, corner, "bilinear", beyond, True).backward()
        assert corner.grad.flatten().tolist() == expected


def test_adaptive_max_pooling_to_one_element_is_the_largest():
    """Paddle's CPU takes the first element."""
    paddle.set_device("mps")
    image = paddle.arange(12, dtype="float32").reshape([1, 1, 3, 4])
    image.stop_gradient = False
    largest = paddle._C_ops.pool2d(image, [1, 1], [1, 1], [0, 0], False, True, "NCHW", "max", False, True, "EXPLICIT")
    largest.backward()
    assert largest.item() == 11 and image.grad.flatten().tolist() == [0.0] * 11 + [1.0]
