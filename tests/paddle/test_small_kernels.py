"""Linear layers, losses with margins, neighbouring numbers and shuffled batches on device mps, without fallback.

Values and gradients are those of Paddle's CPU; where it has no kernel, those of numpy.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from beside_cpu import Case, assert_as_on_cpu, drawn

operators = paddle._C_ops


def linear(transposed: bool, bias: tuple[int, ...], shape: tuple[int, ...] = (2, 3, 4), dtype: str = "float32") -> Case:
    weight = (5, shape[-1]) if transposed else (shape[-1], 5)
    arrays = (drawn(*shape, dtype=dtype), drawn(*weight, dtype=dtype), drawn(*bias, dtype=dtype))
    return Case(lambda x, w, b: operators.linear_v2(x, w, b, transposed), arrays, 3)


EDGES = np.asarray([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, 2.0])


def neighbours(dtype: str) -> Case:
    x, y = np.meshgrid(EDGES.astype(dtype), EDGES.astype(dtype))
    return Case(lambda x, y: paddle.nextafter(x, y), (x.copy(), y.copy()))


def fused(name: str, dtype: str = "float32") -> Case:
    def call(x, y):
        return getattr(operators, f"fused_elementwise_{name}")(x, y, -1, "", 0.0, 0.0, 1.0, [], 1.0, 1.0, 1.0)

    return Case(call, (drawn(2, 3, 4, low=1, high=9).astype(dtype), drawn(4, low=1, high=5, seed=1).astype(dtype)))


CASES = {
    "linear_v2": linear(False, (5,)),
    "linear_v2, transposed": linear(True, (5,)),
    "linear_v2, float64": linear(True, (5,), dtype="float64"),
    "linear_v2, one row": linear(False, (5,), (1, 4)),
    "nextafter": neighbours("float32"),
    "nextafter, float64": neighbours("float64"),
    "fused_elementwise_add": fused("add"),
    "fused_elementwise_sub": fused("sub", "float64"),
    "fused_elementwise_mul": fused("mul", "int64"),
    "fused_elementwise_div": fused("div"),
}


@pytest.mark.parametrize("name", CASES)
def test_as_on_paddle_s_cpu(name):
    exact = "nextafter" in name
    assert_as_on_cpu(CASES[name], rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6)


# Of a residual, of a bias, a shape and the first axis that is normalised.
SUMS = {
    "nothing": (False, False, (2, 3, 20), 2),
    "a residual": (True, False, (2, 3, 20), 2),
    "a residual and a bias": (True, True, (2, 3, 20), 2),
    "two axes": (True, True, (4, 3, 5), 1),
    "one axis": (True, True, (4, 33), 1),
}


@pytest.mark.parametrize("what", SUMS)
@pytest.mark.parametrize("norm", ["fused_bias_residual_layernorm", "fused_rms_norm_quant"])
def test_norms_of_sums(norm, what):
    """Against their definition: Paddle's CPU kernels are of AVX-512 instructions and end the process on a CPU without them."""
    past, biased, shape, axis = SUMS[what]
    of_layer = norm == "fused_bias_residual_layernorm"
    width = int(np.prod(shape[axis:]))
    x, residual, bias = drawn(*shape), drawn(*shape, seed=1), drawn(*(shape[axis:] if of_layer else (width,)))
    weight, norm_bias, alpha = drawn(width, seed=2), drawn(width, seed=3), 0.7
    paddle.set_device("mps")
    tensors = [paddle.to_tensor(array) for array in (x, bias, residual, weight, norm_bias)]
    given = (tensors[0], tensors[1] if biased else None, tensors[2] if past else None, *tensors[3:], 1e-5)
    factor = (alpha,) if of_layer else ()
    found = getattr(operators, norm)(*given, *factor, axis, -1.0, 0, 0.0, 0.0)

    total = x.astype("float64") + (bias.reshape(shape[axis:]) if biased else 0.0) + (residual * (alpha if of_layer else 1.0) if past else 0.0)
    rows = total.reshape(-1, width)
    centred = rows - rows.mean(-1, keepdims=True) if of_layer else rows
    inverse = 1.0 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    expected = centred * inverse * weight + norm_bias
    for ours, exact in zip(found[: 2 if past else 1], (expected, total), strict=False):
        assert (ours.dtype, tuple(ours.shape)) == (paddle.float32, shape)
        np.testing.assert_allclose(ours.numpy(), exact.reshape(shape), rtol=1e-5, atol=1e-6)
    if of_layer:  # Paddle names it the variance; the other norm keeps its own to itself.
        np.testing.assert_allclose(found[-1].numpy(), inverse[:, 0], rtol=1e-5)


def with_margins(x: np.ndarray, label: np.ndarray, margins: tuple[float, float, float], scale: float) -> np.ndarray:
    """The losses in float64."""
    x = x.astype("float64").copy()
    rows = np.arange(len(x))
    first, second, third = margins
    x[rows, label] = np.cos(first * np.arccos(x[rows, label]) + second) - third
    x = x * scale
    most = x.max(-1, keepdims=True)
    return (most[:, 0] + np.log(np.exp(x - most).sum(-1))) - x[rows, label]


@pytest.mark.parametrize("margins", [(1.0, 0.0, 0.0), (1.0, 0.5, 0.0), (1.0, 0.0, 0.35), (1.35, 0.2, 0.1)])
def test_cross_entropy_with_margins_in_float64(margins):
    x, label, scale = drawn(4, 6, low=-0.9, high=0.9, dtype="float64"), np.asarray([0, 5, 2, 2]), 8.0
    tensor = paddle.to_tensor(x, stop_gradient=False)
    first, second, third = margins
    loss, softmax = F.margin_cross_entropy(tensor, paddle.to_tensor(label), first, second, third, scale, return_softmax=True, reduction=None)
    # Margins are numbers of 32 bits.
    np.testing.assert_allclose(loss.numpy()[:, 0], with_margins(x, label, margins, scale), rtol=1e-6)
    np.testing.assert_allclose(softmax.numpy().sum(-1), 1, rtol=1e-9)
    weights = np.asarray([1.0, 0.5, 2.0, -1.0])
    (loss[:, 0] * paddle.to_tensor(weights)).sum().backward()
    numeric = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        above, below = [(with_margins(m, label, margins, scale) * weights).sum() for m in moved]
        numeric[place] = (above - below) / 2e-6
    np.testing.assert_allclose(tensor.grad.numpy(), numeric, rtol=1e-5, atol=1e-6)


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(ValueError, match="label"):
        F.margin_cross_entropy(paddle.zeros([2, 3]), paddle.to_tensor([0, 3]))


@pytest.mark.parametrize("format", ["NCHW", "NHWC"])
def test_a_transposed_convolution_with_a_bias_is_one_and_a_bias(format):
    x, weight, bias = [paddle.to_tensor(drawn(*shape)) for shape in [(2, 3, 5, 4), (3, 4, 3, 3), (4,)]]
    if format == "NHWC":
        x = paddle.transpose(x, [0, 2, 3, 1])
    found = operators.conv2d_transpose_bias(x, weight, bias, [2, 2], [1, 1], [], [], "EXPLICIT", 1, [1, 1], format)
    expected = F.conv2d_transpose(x, weight, None, 2, 1, data_format=format)
    expected = expected + (bias if format == "NHWC" else bias.reshape([4, 1, 1]))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_batch_is_shuffled_and_its_gradient_back(dtype):
    paddle.seed(3)
    x = paddle.to_tensor(np.arange(60).reshape(5, 4, 3).astype(dtype))
    x.stop_gradient = "int" in dtype
    out, places, following = operators.shuffle_batch(x, paddle.to_tensor([7]), 0)
    rows, places = x.numpy().reshape(20, 3), places.numpy()
    assert sorted(places) == list(range(20)) and (places != np.arange(20)).any()
    np.testing.assert_array_equal(out.numpy().reshape(20, 3)[places], rows)
    np.testing.assert_array_equal(operators.shuffle_batch(x, paddle.to_tensor([7]), 0)[1].numpy(), places)
    assert (operators.shuffle_batch(x, following, 0)[1].numpy() != places).any()
    if "float" in dtype:
        weights = drawn(5, 4, 3).astype(dtype)
        (out * paddle.to_tensor(weights)).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy().reshape(20, 3), weights.reshape(20, 3)[places])


def test_a_gradient_is_over_how_often_a_row_was_looked_up():
    table, index, upstream = drawn(7, 4), np.asarray([1, 1, 3, 6, 1]), drawn(5, 4, seed=1)
    call = operators.embedding_with_scaled_gradient_grad
    found = call(*[paddle.to_tensor(array) for array in (index, table, upstream)], -1).numpy()
    expected = np.zeros_like(table)
    np.add.at(expected, index, upstream)
    expected /= np.maximum(np.bincount(index, minlength=7), 1)[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_noise_of_private_steps_has_its_deviation():
    """One normal number a step, whose deviation is sigma over the batch's size."""
    paddle.seed(4)
    steps = [float(operators.dpsgd(paddle.zeros([1]), paddle.zeros([1]), paddle.ones([1]), 1.0, 4.0, 2.0, 0)[0]) for _ in range(2000)]
    assert abs(np.mean(steps)) < 0.05 and abs(np.std(steps) - 0.5) < 0.05


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_checked_as_on_the_cpu(dtype):
    x = np.asarray([[1.0, np.nan, 0.0], [-np.inf, 2.0, 0.0]], dtype)

    def run(device, array):
        paddle.set_device(device)
        return [part.numpy() for part in operators.check_numerics(paddle.to_tensor(array), "op", "x", 1, 1, "")]

    finite = np.nan_to_num(x, nan=3.0, neginf=-7.0)
    for mine, theirs in zip(run("mps", finite), run("cpu", finite), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    np.testing.assert_array_equal(run("mps", x)[0], [1, 1, 2])
    with pytest.raises(ValueError, match="finite"):
        operators.check_numerics(paddle.to_tensor(x, place=paddle.CustomPlace("mps", 0)), "op", "x", 0, 1, "")


def test_a_tensor_is_set_to_another_s_memory():
    def run(device):
        paddle.set_device(device)
        x, source = paddle.zeros([2]), paddle.arange(24, dtype="float32")
        x.set_(source, [2, 3], [12, 2], 8)
        source += 1
        return x.numpy()

    np.testing.assert_array_equal(run("mps"), run("cpu"))


def test_slots_have_linear_layers_of_their_own():
    x, weight, bias = drawn(3, 4, 5), drawn(3, 5, 2), drawn(3, 2)
    found = operators.batch_fc(*[paddle.to_tensor(array) for array in (x, weight, bias)])
    np.testing.assert_allclose(found.numpy(), x @ weight + bias[:, None], rtol=1e-5, atol=1e-6)


def nothing(*shape: int, dtype: str = "float32") -> paddle.Tensor:
    return paddle.zeros(shape, dtype=dtype)


# Of some of these Paddle's CPU ends the process: what matters is the shape.
EMPTY = {
    "linear_v2": (lambda: operators.linear_v2(nothing(0, 4), nothing(4, 5), nothing(5), False), [0, 5]),
    "lp_pool2d": (lambda: F.lp_pool2d(nothing(0, 3, 8, 8), 2.0, 2), [0, 3, 4, 4]),
    "fractional_max_pool2d": (lambda: F.fractional_max_pool2d(nothing(0, 3, 8, 8), 3, random_u=0.3), [0, 3, 3, 3]),
    "viterbi_decode": (lambda: paddle.text.viterbi_decode(nothing(0, 3, 4), nothing(4, 4), nothing(0, dtype="int64"), False)[1], [0, 0]),
    "nextafter": (lambda: paddle.nextafter(nothing(0, 3), nothing(0, 3)), [0, 3]),
    "bipartite_match": (lambda: operators.bipartite_match(nothing(0, 3), "bipartite", 0.5)[0], [1, 3]),
    "hsigmoid_loss": (lambda: F.hsigmoid_loss(nothing(0, 3), nothing(0, 1, dtype="int64"), 5, nothing(4, 3)), [0, 1]),
    "margin_cross_entropy": (lambda: F.margin_cross_entropy(nothing(0, 3), nothing(0, dtype="int64"), reduction=None), [0, 1]),
    "collect_fpn_proposals": (
        lambda: operators.collect_fpn_proposals([nothing(0, 4)], [nothing(0, 1)], [nothing(2, dtype="int32")], 5)[0], [0, 4]),
    "shuffle_batch": (lambda: operators.shuffle_batch(nothing(0, 3), paddle.to_tensor([3]), 0)[0], [0, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_gives_nothing(name):
    call, shape = EMPTY[name]
    assert list(call().shape) == shape


def test_results_are_checked_against_others():
    x = drawn(3, 4)

    def run(device, y, rtol, atol, equal_nan=False):
        paddle.set_device(device)
        return operators.accuracy_check(paddle.to_tensor(x), paddle.to_tensor(y), "kernel", rtol, atol, equal_nan).numpy()

    for y, rtol, atol in [(x, 0.0, 0.0), (x * (1 + 1e-6), 1e-5, 0.0), (x + 1e-6, 0.0, 1e-5)]:
        np.testing.assert_array_equal(run("mps", y, rtol, atol), run("cpu", y, rtol, atol))
    for device in ("mps", "cpu"):
        with pytest.raises((ValueError, RuntimeError), match="kernel"):
            run(device, x + 1, 1e-5, 1e-5)
    x[0, 0] = np.nan
    assert run("mps", x, 0.0, 0.0, True).all()
    with pytest.raises(ValueError, match="kernel"):
        run("mps", x, 0.0, 0.0)
