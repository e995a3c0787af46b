"""Numbers where formulas have corners: values and gradients at ties, zeros, infinities, NaN, of integers, of tensors without elements or axes.

Everything is compared with Paddle's CPU, without fallback. Where Paddle's CPU is wrong or undefined, the expected value stands here, and the
reason in docs/operators.md.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

INF, NAN = np.inf, np.nan


def floats(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array(values, dtype)


def integers(*values: int, dtype: str = "int32") -> np.ndarray:
    return np.array(values, dtype)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def run(device: str, call, inputs) -> list[np.ndarray]:
    """Results and the gradients of a weighed sum of the first."""
    paddle.set_device(device)
    tensors = [paddle.to_tensor(array.copy()) for array in inputs]
    for tensor in tensors:
        tensor.stop_gradient = not paddle.is_floating_point(tensor)
    results = call(*tensors)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    values = [result.numpy() for result in results]
    if not results[0].stop_gradient:
        weights = (1 + np.arange(results[0].size) % 7).reshape(values[0].shape).astype(values[0].dtype)
        (results[0] * paddle.to_tensor(weights)).sum().backward()
        values += [tensor.grad.numpy() for tensor in tensors if tensor.grad is not None]
    return values


def expect(got: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> None:
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance if tolerance else 0.0)


EDGES = floats(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 6.0, 0.1, 1e30, INF, -INF, NAN)
PAIRS = [part.ravel() for part in np.meshgrid(EDGES, EDGES)]
WHOLE = [part.ravel() for part in np.meshgrid(integers(-7, -3, -1, 0, 1, 2, 5, 2**31 - 1, -(2**31)), integers(-7, -3, 1, 2, 3, 2**31 - 1))]
TIED = np.array([[1, 2, 2], [0, 0, 3], [5, 5, 5]], "float32")
ZEROS = np.array([[1, 2, 3], [0, 2, 3], [0, 0, 3], [0, 0, 0]], "float32")
BATCHES = [np.arange(24, dtype="int32").reshape(2, 1, 3, 4), np.arange(24, dtype="int32").reshape(3, 4, 2)]
# One zero in the first product, two in the second, whose weights are 1 and 2.
TWO_AXES = np.array([[[2, 0], [0, 3]], [[3, 4], [0, 5]]], "float32")
TWO_AXES_GRADIENT = np.array([[[0, 24], [0, 0]], [[0, 0], [0, 0]]], "float32")
FAR = floats(-38, -20, -5, 25, NAN, dtype="float64")
IMAGE, WEIGHT = random(2, 4, 5, 6), random(4, seed=1)
LAST = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))

FLAT, IMAGES_OF_NONE, FILTERS = np.zeros([2, 3, 0, 7], "float32"), np.zeros([0, 3, 6, 6], "float32"), random(4, 3, 3, 3)
NO_PIXELS = {
    **{f"conv2d, {padding}": (lambda x, w, p=padding: F.conv2d(x, w, padding=p), FLAT, FILTERS) for padding in ("same", 1)},
    "conv2d of no images": (F.conv2d, IMAGES_OF_NONE, FILTERS),
    **{f"{f.__name__}, {padding}": (lambda x, f=f, p=padding: f(x, 2, padding=p), FLAT) for f in (F.max_pool2d, F.avg_pool2d) for padding in (0, "SAME")},
    **{f"{f.__name__}": (lambda x, f=f: f(x, 2, padding="SAME"), np.zeros([2, 3, 4, 4, 0], "float32")) for f in (F.max_pool3d, F.avg_pool3d)},
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 1), np.zeros([3, 4, 0], "float32")),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2.0, 2, 2, data_format="NHWC"), np.zeros([2, 0, 8, 3], "float32")),
    "fractional_max_pool2d": (lambda x: F.fractional_max_pool2d(x, output_size=3, random_u=0.3), FLAT),
    **{f"interpolate, {mode}": (lambda x, m=mode: F.interpolate(x, scale_factor=[1.8, 2.3333333], mode=m), IMAGES_OF_NONE) for mode in ("nearest", "bilinear", "bicubic")},
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 3), np.zeros([2, 0, 4, 4], "float32")),
    "instance_norm": (F.instance_norm, np.zeros([2, 0, 4], "float32")),
    "median": (lambda x: paddle.median(x, 1), np.zeros([0, 4], "float32")),
    "rfft": (lambda x: paddle.fft.rfft(x.detach()).abs(), np.zeros([2, 0], "float32")),
    "einsum with one of size 1": (lambda x, y: paddle.einsum("i...,i...", x, y), np.ones([1, 3], "float32"), np.ones([0, 3], "float32")),
    "add_n": (lambda x, y, z: paddle.add_n([x, y, z]), np.ones([0], "float32"), floats(1), floats(2)),
}
CASES = {
    # Quotients.
    "1.0 // 0.1": (paddle.floor_divide, floats(1.0, 6.0, 7.5, -1.0, 1.0), floats(0.1, 0.2, 0.1, INF, -0.1)),
    "float64 // ": (paddle.floor_divide, floats(1.0, 6.0, 7.5, -1.0, dtype="float64"), floats(0.1, 0.2, 0.1, INF, dtype="float64")),
    "floor_divide": (paddle.floor_divide, *PAIRS),
    "remainder": (paddle.remainder, floats(5, -5, 5, -5, 0, 1, INF), floats(3, 3, -3, -3, 2, 0, 0)),
    "integers, floor_divide": (paddle.floor_divide, *WHOLE),
    "integers, remainder": (paddle.remainder, *WHOLE),
    "integers, power": (lambda x: paddle.pow(x, 3), integers(2, -3, 0, 2**30, 5)),
    "integers, powers": (paddle.pow, integers(2, -3, 0, 7, 5, 1), integers(10, 3, 4, 0, 13, 2**30)),
    "int64, powers": (paddle.pow, integers(3, -7, 10, dtype="int64"), integers(30, 11, 15, dtype="int64")),
    # Gradients at ties, corners, zeros.
    **{name: (getattr(paddle, name), *PAIRS) for name in ("maximum", "minimum", "fmax", "fmin", "heaviside")},
    **{f"{name}, axis {axis}": (lambda x, f=getattr(paddle, name), a=axis: f(x, axis=a), TIED) for name in ("max", "min", "amax", "amin") for axis in (None, 0, 1)},
    "pow": (paddle.pow, floats(0, 0, 0, 0, 2, -2), floats(0, 1, 2, 0.5, 3, 2)),
    "pow, 0": (lambda x: paddle.pow(x, 0), floats(0, 1, -2, NAN)),
    "0, pow": (lambda x: 0**x, floats(1, 2, 0.5)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), EDGES),
    "hardshrink": (F.hardshrink, floats(0.5, -0.5, 0.4, 1.0, -2.0)),
    "clip": (lambda x: paddle.clip(x, -1, 3), EDGES),
    "clip, below": (lambda x: paddle.clip(x, min=1), EDGES),
    "clip, integers below": (lambda x: paddle.clip(x, min=1), integers(-5, 0, 1, 2, 2**31 - 1)),
    **{name: (getattr(F, name), floats(0.0, 6.0, -1.0, 1.0, 3.0, -3.0, 0.5)) for name in ("relu6", "hardtanh", "hardswish", "hardsigmoid", "softshrink", "thresholded_relu", "elu")},
    **{f"cumprod, zeros, axis {axis}": (lambda x, a=axis: paddle.cumprod(x, dim=a), ZEROS) for axis in (None, 0, 1)},
    "prod, two axes": (lambda x: paddle.prod(x, axis=[0, 2]), random(2, 3, 4)),
    "prod, int32": (paddle.prod, integers(2, 3)),
    "logsumexp": (lambda x: paddle.logsumexp(x, axis=1), np.array([[-INF, 1], [1000, 1000]], "float32")),
    # Element types.
    "mean, int32": (lambda x: paddle.mean(x, axis=1), integers(1, 2, 5, -1, -1, -3).reshape(2, 3)),
    "mean, bool": (paddle.mean, np.array([True, False, False])),
    "sum, uint8": (paddle.sum, integers(200, 100, 3, dtype="uint8")),
    **{f"{name}, int32": (getattr(paddle, name), integers(3, -2, 0)) for name in ("floor", "ceil", "round", "trunc", "isinf", "isfinite", "sign", "frac")},
    **{f"{name}, bool": (getattr(paddle, name), np.array([True, True, False, False]), np.array([True, False, True, False])) for name in ("add", "multiply", "less_than", "less_equal", "greater_than", "greater_equal")},
    "scale, bool": (lambda x: -x, np.array([True, False])),
    "put_along_axis, mean of large integers": (lambda x, v: paddle.put_along_axis(x, paddle.zeros([1], "int64"), v, 0, reduce="mean"), integers(5, dtype="int64"), integers(2**63 - 1, dtype="int64")),
    "norm, zeros": (lambda x: paddle.linalg.norm(x, p="fro", axis=[-2, -1]), ZEROS[[[3, 3], [0, 1]]]),
    "norm, p=0, infinity and NaN": (lambda x: paddle.linalg.norm(x, p=0, axis=0), floats(INF, NAN, 0, 2)),
    "selu of NaN": (F.selu, floats(NAN, 1, 0, -1)),
    "pad, circular, beyond the size": (lambda x: F.pad(x, [7, 5], mode="circular", data_format="NCL"), random(1, 2, 3)),
    "equal_ of an empty view": (lambda x: (lambda view: view.equal_(view.clone()))(x.detach()[3:]), floats(1, 2, 3)),
    # Without axes.
    **{f"no axes, {name}": (lambda x, f=getattr(paddle, name): f(x, axis=0) + f(x, axis=-1, keepdim=True) + f(x, axis=[]), floats(3.5)[0]) for name in ("sum", "mean", "max", "min", "amax", "amin", "prod", "logsumexp")},
    "no axes, softmax": (lambda x: F.softmax(x, axis=0) + F.log_softmax(x, axis=-1), floats(3.5)[0]),
    "no axes, order": (lambda x: (paddle.sort(x, axis=-1), paddle.argsort(x, axis=0), paddle.argmax(x, axis=0)), floats(3.5)[0]),
    "no axes, running": (lambda x: paddle.cumsum(x, axis=0) + paddle.cumsum(x, axis=-1) + paddle.cumprod(x, dim=0), floats(3.5)[0]),
    # Without elements.
    **{f"empty {shape}, {name}": (lambda x, f=getattr(paddle, name): f(x), np.zeros(shape, "float32")) for shape in ((0,), (2, 0, 3)) for name in ("sum", "mean")},
    **{f"empty, {name}, axis {axis}": (lambda x, f=getattr(paddle, name), a=axis: f(x, axis=a), np.zeros([2, 0, 3], "float32")) for axis in (0, 2) for name in ("sum", "mean", "max", "prod", "logsumexp")},
    **{f"empty, {name}, {other}": (getattr(paddle, name), np.zeros([2, 0, 3], "float32"), np.ones(other, "float32")) for name in ("add", "multiply", "divide", "maximum") for other in ((2, 1, 3), (3,), ())},
    **{f"empty, matmul {x} {y}": (paddle.matmul, np.ones(x, "float32"), np.ones(y, "float32")) for x, y in (((3, 0), (0, 4)), ((0, 3), (3, 4)), ((2, 3, 0), (2, 0, 4)), ((3, 4), (4, 0)))},
    "empty, softmax": (lambda x: F.softmax(x, -1), np.zeros([2, 0], "float32")),
    "empty, concat": (lambda x, y: paddle.concat([x, y]), np.zeros([0, 3], "float32"), np.ones([2, 3], "float32")),
    # Repeated and clipped.
    "hardtanh, bounds the wrong way round": (lambda x: F.hardtanh(x, 3.3, -3.3), floats(-5, 0, 4)),
    **{f"logit, {epsilon}": (lambda x, e=epsilon: paddle.logit(x, e), floats(-0.5, 0, 0.1, 0.5, 1, 1.5)) for epsilon in (0.2, 1e-6)},
    "lp_pool1d, infinite norm": (lambda x: F.lp_pool1d(x, INF, 2, 2), floats(-3, 1, 2, 5, 0.5, -4).reshape(1, 1, 6)),
    "lp_pool2d, infinite norm, padded": (lambda x: F.lp_pool2d(x, INF, 3, 2, padding=1), random(1, 2, 5, 6)),
    "sequence_mask of fractions": (lambda x: F.sequence_mask(x.detach(), maxlen=4), floats(0.4, 1.5, 2.0, -1.0)),
    "atan2 of integers": (paddle.atan2, integers(2, 7, 0), integers(3, -5, -1)),
    **{f"allclose of {dtype}": (paddle.allclose, np.array([1, 0, 1], dtype), np.array([1, 0, 1], dtype)) for dtype in ("int32", "int64", "bool")},
    "kron of many axes": (paddle.kron, random(2, 1, 3, 2, 1, 2), random(3, 1, 2)),
    "kron of numbers": (paddle.kron, floats(3)[0], floats(2, 4)),
    # Where the result is what is read.
    "assign of its own transpose": (lambda x: paddle.assign(x.detach().t(), x.detach()), random(4, 4)),
    "assign of itself backwards": (lambda x: (lambda y: paddle.assign(y[::-1], y))(x.detach() * 1), random(7)),
    "addmm_ of a column": (lambda i, x, y: (i.detach() * 1).addmm_(x.detach(), y.detach()), random(5, 1), random(5, 4), random(4, 5, seed=1)),
    # Labels that are between classes, and labels that do not count.
    "pos_weight of soft labels": (lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.detach(), pos_weight=w.detach()), random(4, 3), np.linspace(0, 1, 12, dtype="float32").reshape(4, 3), floats(3, 0.5, 1)),
    "pos_weight far from 0": (lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.detach(), pos_weight=w.detach()), floats(-90, 90, 80, -80), floats(0, 1, 0.25, 0.5), floats(2)),
    **{f"cross_entropy of probabilities, ignored, {r}": (lambda x, y, r=r: F.cross_entropy(x, y, ignore_index=0, use_softmax=False, reduction=r), np.array([[0, 0.3, 0.7], [0.2, 0.3, 0.5]], "float32"), integers(0, 1, dtype="int64")) for r in ("mean", "none")},
    "nll_loss, ignored": (lambda x, y: F.nll_loss(x, y, ignore_index=0), np.array([[-INF, -1], [-2, -3]], "float32"), integers(0, 1, dtype="int64")),
    # Sums of products of numbers, and along a diagonal.
    **{f"einsum {e}": (lambda *x, e=e: paddle.einsum(e, *x), *x) for e, x in ((",->", [floats(2)[0], floats(3)[0]]), ("ij,->ij", [random(2, 3), floats(3)[0]]), ("i->ii", [random(3)]))},
    **{f"einsum {e}": (lambda *x, e=e: paddle.einsum(e, *(y.detach() for y in x)), *x) for e, x in (("ij->iij", [random(2, 3)]), ("ij,j->iji", [random(2, 3), random(3)]))},
    # Images without pixels, or of none.
    **{f"empty, {name}": case for name, case in NO_PIXELS.items()},
    # Normalisation.
    **{
        f"group_norm, {layout}, {'weights' if weights else 'plain'}": (lambda x, *w, d=layout: F.group_norm(x, 2, weight=w[0], bias=w[1], data_format=d), image, *weights)
        for layout, image in (("NCHW", IMAGE), ("NHWC", LAST))
        for weights in ((WEIGHT, WEIGHT + 1),)
    },
    "batch_norm, float64": (lambda x: F.batch_norm(x, paddle.zeros([4], "float64"), paddle.ones([4], "float64"), training=True), IMAGE.astype("float64")),
    "batch_norm, no weights": (lambda x: F.batch_norm(x, paddle.zeros([4]), paddle.ones([4]), training=True), IMAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_on_the_cpu(name):
    call, *inputs = CASES[name]
    expected = run("cpu", call, inputs)
    expect(run("mps", call, inputs), expected, 0.0 if expected[0].dtype.kind in "biu" else 2e-5)


# Where we differ from Paddle's CPU: what it gives there, and why, is in docs/operators.md.
OWN = {
    "mish of far negative numbers": (F.mish, [FAR], [FAR * np.tanh(np.log1p(np.exp(FAR))), None]),
    "atan2 where squares vanish": (paddle.atan2, [floats(0, 1e-30, 1e30), floats(0, 1e-30, 1e30)], [None, floats(0, 1e30, 1.5e-30), floats(-0.0, -1e30, -1.5e-30)]),
    "sums of halves beyond their largest": (paddle.divide, [floats(400, -199, dtype="float16"), floats(0.05, dtype="float16")], [None, None, floats(-800, dtype="float16")]),
    "average pooling of padding": (lambda x: F.avg_pool1d(x, 2, stride=3, padding=1, ceil_mode=True, exclusive=True), [np.ones((1, 1, 2), "float32")], [np.array([[[1, 0]]], "float32"), None]),
    "max pooling of -inf": (lambda x: F.max_pool2d(x, 1), [np.full((1, 1, 1, 1), -INF, "float32")], [None, np.ones((1, 1, 1, 1), "float32")]),
    "softmax of one NaN": (lambda x: F.softmax(x, axis=0), [floats(NAN)[0]], [floats(NAN)[0], None]),
    "log_softmax far below": (lambda x: F.log_softmax(x, axis=0), [floats(0, -200)], [floats(0, -200), None]),
    "group_norm with a weight of 0": (lambda x, w: F.group_norm(x, 1, weight=w), [random(2, 3, 1, 1), floats(0, 1, 2)], None),
    "relu of NaN": (F.relu, [floats(NAN, 1.0)], [floats(NAN, 1.0), floats(0, 2)]),
    "softshrink of infinity": (F.softshrink, [floats(INF, -INF)], [floats(INF, -INF), floats(1, 2)]),
    "thresholded_relu of NaN": (F.thresholded_relu, [floats(NAN, -INF)], [floats(NAN, 0), floats(0, 0)]),
    "sqrt of infinity": (paddle.sqrt, [floats(INF, 1e-40)], [floats(INF, 1e-20), None]),
    "equal near zero": (paddle.equal, [floats(1e-30, 0), floats(0, -0.0)], [np.array([False, True])]),
    "negative powers of integers": (paddle.pow, [integers(1, -1, -1, 2, 0), integers(-3, -3, -2, -1, -2)], [integers(1, -1, 1, 0, 0)]),
    "infinity // 1": (paddle.floor_divide, [floats(INF, -0.0), floats(1.0, 1.0)], [floats(NAN, -0.0)]),
    "abs at NaN and infinity": (paddle.abs, [floats(INF, -INF, NAN)], [floats(INF, INF, NAN), floats(1, -2, NAN)]),
    "celu of large numbers": (F.celu, [floats(100.0)], [floats(100.0), floats(1.0)]),
    "hardswish of large numbers": (F.hardswish, [floats(3e38, NAN)], [None, floats(1, NAN)]),
    "gradient of prod at zeros": (lambda x: paddle.prod(x, axis=1), [ZEROS], [floats(6, 0, 0, 0), np.array([[6, 3, 2], [12, 0, 0], [0, 0, 0], [0, 0, 0]], "float32")]),
    "gradient of prod of two axes": (lambda x: paddle.prod(x, axis=[0, 2]), [TWO_AXES], [floats(0, 0), TWO_AXES_GRADIENT]),
    "logsumexp of minus infinities": (paddle.logsumexp, [floats(-INF, -INF)], [np.array(-INF, "float32"), None]),
    "batches of integer products": (paddle.matmul, BATCHES, [np.matmul(*BATCHES)]),
    "logsumexp of infinity": (paddle.logsumexp, [floats(INF, 1.0)], [np.array(INF, "float32"), None]),
}


@pytest.mark.parametrize("name", OWN)
def test_where_we_differ(name):
    call, inputs, expected = OWN[name]
    got = run("mps", call, inputs)
    if expected is None:  # the limit of numbers that are nearly 0
        expected = run("mps", call, [array + (array == 0) * np.float32(1e-6) for array in inputs])
        return expect(got, expected, 1e-4)
    for mine, value in zip(got, expected, strict=False):
        if value is not None:
            np.testing.assert_allclose(mine, value, rtol=1e-5)
            np.testing.assert_array_equal(np.signbit(mine[mine == 0]), np.signbit(value[value == 0]))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_group_norm_without_weights_is_that_with_ones(layout):
    """Paddle's CPU leaves out the mean of the gradient there."""
    image = IMAGE if layout == "NCHW" else LAST
    ones = np.ones(4, "float32")
    plain = run("mps", lambda x: F.group_norm(x, 2, data_format=layout), [image])
    weighed = run("mps", lambda x, w: F.group_norm(x, 2, weight=w, bias=w - 1, data_format=layout), [image, ones])
    expect(plain, weighed[:2], 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_does_not_vary_is_normalised_to_zero(dtype):
    """Also where the sum of equal numbers is rounded: a mean that is off by one place is 1e-4 off where the deviation is the epsilon's root."""
    paddle.set_device("mps")
    for value in (0.3, -7.1, 1234.567):
        for shape in ((3, 4, 7), (2, 4, 5, 11), (2, 4, 9001)):
            x = paddle.full(shape, value, dtype)
            weights = {"weight": paddle.full([4], 2.0, dtype), "bias": paddle.full([4], 0.25, dtype)}
            statistics = [paddle.zeros([4], dtype), paddle.ones([4], dtype)]
            found = {
                "layer_norm": F.layer_norm(x, x.shape[1:]),
                "layer_norm of the last axis": F.layer_norm(x, x.shape[-1:]),
                "group_norm": F.group_norm(x, 2, **weights) - 0.25,
                "instance_norm": F.instance_norm(x, **weights) - 0.25,
                "batch_norm": F.batch_norm(x, *statistics, **weights, training=True) - 0.25,
            }
            allowed = 0.0 if dtype == "float32" else 1e-9
            wrong = {name: float(y.abs().max()) for name, y in found.items() if not (y.abs() <= allowed).all()}
            assert not wrong, f"{shape} of {value}: {wrong}"


def test_what_does_not_vary_is_normalised_to_zero_on_a_gpu(program):
    output = program(
        """
        import paddle
        from paddle.nn import functional as F
        paddle.set_device("mps")
        x = paddle.full([3, 2, 7], 0.3)
        found = [F.layer_norm(x, 7), F.batch_norm(x, paddle.zeros([2]), paddle.ones([2]), training=True)]
        print([float(y.abs().max()) for y in found])
        """,
        OPENMPS_DEVICE="metal-emulated",
    )
    assert output.splitlines()[-1] == "[0.0, 0.0]"


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_have_no_quotient_by_zero(dtype):
    paddle.set_device("mps")
    x, zero = paddle.to_tensor(integers(5, 7, dtype=dtype)), paddle.to_tensor(integers(1, 0, dtype=dtype))
    for function in (paddle.floor_divide, paddle.remainder):
        with pytest.raises(ValueError, match="divisor is a tensor with 0"):
            function(x, zero)
    assert (x[:0] // zero[1:]).shape == [0]


def test_bounds_that_cross_are_refused():
    paddle.set_device("mps")
    with pytest.raises(ValueError, match="attribute min is 2"):
        paddle.clip(paddle.ones([2]), 2.0, 1.0)


@pytest.mark.parametrize("axis", [2, -3, [0, 0]])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "prod", "logsumexp"])
def test_wrong_axes_are_refused_as_on_the_cpu(name, axis):
    raised = []
    for device in ("cpu", "mps"):
        paddle.set_device(device)
        with pytest.raises(Exception) as error:
            getattr(paddle, name)(paddle.ones([2, 3]), axis=axis)
        raised.append(error.type)
    assert raised[0] is raised[1]


@pytest.mark.parametrize("operator", ["elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div"])
def test_legacy_operators_align_their_second_operand(operator):
    """Programs of the old kind say at which axis of x the axes of y begin."""
    x, y = random(2, 3, 4), random(3, seed=1) + 3
    found = []
    paddle.enable_static()
    old = paddle.base.framework.get_flags("FLAGS_enable_pir_api")
    try:
        with paddle.pir_utils.OldIrGuard():
            for place in (paddle.CPUPlace(), paddle.CustomPlace("mps", 0)):
                main = paddle.static.Program()
                with paddle.static.program_guard(main, paddle.static.Program()):
                    feeds = [paddle.static.data(name, array.shape, "float32") for name, array in (("x", x), ("y", y))]
                    weights = paddle.static.data("weights", x.shape, "float32")
                    block = main.global_block()
                    out = block.create_var(name="out", dtype="float32", shape=x.shape)
                    for feed in feeds:
                        feed.stop_gradient = False
                    block.append_op(type=operator, inputs={"X": feeds[0], "Y": feeds[1]}, outputs={"Out": out}, attrs={"axis": 1})
                    gradients = paddle.static.gradients([out], feeds, target_gradients=[weights])
                    found.append(paddle.static.Executor(place).run(main, feed={"x": x, "y": y, "weights": x * 2}, fetch_list=[out, *gradients]))
    finally:
        paddle.set_flags(old)
        paddle.disable_static()
    expect([np.asarray(value) for value in found[1]], [np.asarray(value) for value in found[0]], 2e-5)


@pytest.mark.parametrize("shape", [[0, 3], [0, 3, 4, 4], [2, 3, 0, 4]])
def test_an_empty_batch_leaves_batch_norm_as_it_was(shape):
    paddle.set_device("mps")
    layer = (paddle.nn.BatchNorm1D if len(shape) == 2 else paddle.nn.BatchNorm2D)(3)
    layer.train()
    image = paddle.zeros(shape)
    image.stop_gradient = False
    layer(image).sum().backward()
    assert image.grad.shape == image.shape and layer.weight.grad.tolist() == [0, 0, 0]
    assert layer._mean.tolist() == [0, 0, 0] and layer._variance.tolist() == [1, 1, 1]


def test_what_is_multiplied_is_read_before_it_is_overwritten():
    """Paddle's CPU reads rows of the result there."""
    paddle.set_device("mps")
    x = random(4, 4)
    y = paddle.to_tensor(x)
    np.testing.assert_allclose(y.addmm_(y, y).numpy(), x + x @ x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(("image", "network"), [("float16", "float16"), ("float32", "float16"), ("float32", "float64"), ("float64", "float32")])
def test_batch_norm_of_a_network_in_another_type(image, network, trains):
    """Paddle's CPU refuses it. What runs along keeps its type, as do the weights' gradients."""
    paddle.set_device("mps")
    layer = paddle.nn.BatchNorm2D(3)
    layer.to(dtype=network)
    layer._mean.set_value(paddle.to_tensor([1.0, 2.0, 3.0]).astype(network))
    layer._variance.set_value(paddle.to_tensor([1.0, 4.0, 9.0]).astype(network))
    layer.train() if trains else layer.eval()
    numbers = random(4, 3, 5, 5)
    x = paddle.to_tensor(numbers.astype(image), stop_gradient=False)
    y = layer(x)
    y.sum().backward()
    wide = numbers.astype("float64")
    mean, variance = (wide.mean((0, 2, 3)), wide.var((0, 2, 3))) if trains else (np.array([1, 2, 3]), np.array([1, 4, 9]))
    along = (slice(None), None, None)
    expected = (wide - mean[along]) / np.sqrt(variance[along] + 1e-5)
    np.testing.assert_allclose(y.numpy().astype("float64"), expected, atol=4e-3 if image == "float16" else 1e-5)
    running = [0.9 * np.array([1, 2, 3]) + 0.1 * mean, 0.9 * np.array([1, 4, 9]) + 0.1 * variance] if trains else [mean, variance]
    for found, value in zip((layer._mean, layer._variance), running, strict=True):
        assert str(found.dtype) == f"paddle.{network}"
        np.testing.assert_allclose(found.astype("float64").numpy(), value, rtol=2e-3)
    assert layer.weight.grad.dtype == layer.weight.dtype and layer.bias.grad.dtype == layer.bias.dtype
    np.testing.assert_allclose(layer.bias.grad.astype("float64").numpy(), [100, 100, 100], rtol=1e-3)


def test_a_frozen_sync_batch_norm_has_the_gradients_of_batch_norm():
    paddle.set_device("mps")
    found = []
    for kind in paddle.nn.BatchNorm2D, paddle.nn.SyncBatchNorm:
        layer = kind(2)
        layer._mean.set_value(paddle.to_tensor([0.5, -1.0]))
        layer._variance.set_value(paddle.to_tensor([4.0, 0.25]))
        layer.eval()
        x = paddle.to_tensor(random(2, 2, 3, 3), stop_gradient=False)
        layer(x).square().sum().backward()
        found.append([x.grad.numpy(), layer.weight.grad.numpy(), layer.bias.grad.numpy()])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_sums_over_axes_on_both_sides_are_rounded_once():
    paddle.set_device("mps")
    x = paddle.to_tensor(random(2, 500, 3)).astype("bfloat16")
    y = paddle.ones([500, 1], "bfloat16")
    y.stop_gradient = False
    (x + y).backward(x)
    exact = paddle.to_tensor(x.astype("float64").numpy().sum((0, 2)).astype("float32")).astype("bfloat16")
    np.testing.assert_array_equal(y.grad.astype("float32").numpy().ravel(), exact.astype("float32").numpy())


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_complex_number_is_true_unless_both_parts_are_zero(dtype):
    numbers = np.array([3.5j, 0, 1, -1j, complex(NAN, 0), complex(0, NAN), -0.0], dtype)
    found = [paddle.to_tensor(numbers, place=place).astype("bool").numpy() for place in (paddle.CPUPlace(), paddle.MPSPlace(0))]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[1], numbers.astype(bool))


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_slices_are_shortened_to_the_bound_itself(order):
    """Nothing is added to a norm before it divides: in float64 a bound of 1e-7 is met to its last digits."""
    rows = np.array([[3e-7, 1e-7], [3.0, 4.0], [1e-8, 2e-8]])
    found = [run(device, lambda x: paddle.renorm(x, order, 0, 1e-7), [rows]) for device in ("mps", "cpu")]
    for mine, theirs in zip(*found):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-15)


def test_integers_have_gradients_of_sums_and_products():
    found = {}
    for device in "cpu", "mps":
        paddle.set_device(device)
        for dtype in "int32", "int64":
            x, y, z = (paddle.to_tensor(values, dtype=dtype, stop_gradient=False) for values in ([[1, -2, 3], [4, 5, 2**31 - 1]], [2, 3, 4], [[7]]))
            weights = paddle.to_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], stop_gradient=False)
            (weights * (x * y - z).astype("float32")).sum().backward()
            found[device, dtype] = [tensor.grad.numpy().tolist() for tensor in (x, y, z, weights)]
    for dtype in "int32", "int64":
        assert found["mps", dtype] == found["cpu", dtype]
        assert found["mps", dtype][0] == [[2, 6, 12], [8, 15, 24]]


def test_an_infinite_gradient_of_a_median_stays_where_it_belongs():
    paddle.set_device("mps")
    x = paddle.to_tensor([[1.0, 2.0, 3.0, 2.0, 0.0], [5.0, 6.0, 7.0, 8.0, 9.0]], stop_gradient=False)
    (paddle.median(x, 1) * float("inf")).sum().backward()
    infinity = float("inf")
    assert x.grad.numpy().tolist() == [[0, infinity, 0, infinity, 0], [0, 0, infinity, 0, 0]]
    y = paddle.to_tensor([1.0, 3.0, 2.0, 4.0], stop_gradient=False)
    (paddle.median(y) * infinity).backward()
    assert y.grad.numpy().tolist() == [0, infinity, infinity, 0]
