"""Products of matrices, convolution, pooling and resizing: device mps against Paddle's CPU, without falling back to it."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

MPS, CPU = paddle.CustomPlace("mps", 0), paddle.CPUPlace()
# What results may differ by, relative to the largest one: the CPU computes in the type itself or in float32.
TOLERANCES = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 2e-5, "float64": 1e-12}
FLOATS = ["float32", "float64"]


def values(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def inputs(arrays, dtype, place):
    paddle.device.set_device("cpu")
    tensors = [paddle.to_tensor(array).astype(dtype)._copy_to(place, True) for array in arrays]
    paddle.device.set_device("cpu" if place is CPU else "mps")
    return tensors


def results(function, arrays, dtype, place, gradient):
    """Results, and gradients of a weighted sum of them, as float64 on the host."""
    tensors = [x.detach() for x in inputs(arrays, dtype, place)]
    for x in tensors:
        x.stop_gradient = not gradient
    out = function(*tensors)
    parts = list(out) if isinstance(out, (list, tuple)) else [out]
    if gradient:
        weights = inputs([values(*parts[0].shape, seed=9)], dtype, place)
        paddle.autograd.backward([parts[0]], weights)
        parts += [x.grad for x in tensors]
    paddle.device.set_device("cpu")
    return [part.detach()._copy_to(CPU, True).astype("float64").numpy() for part in parts]


def check(function, *arrays, dtype="float32", gradient=True, expected_dtype=None, peer=None, tolerance=None):
    """Compares a function with itself, or with ``peer`` where Paddle's CPU needs another way, on the CPU."""
    got = results(function, arrays, dtype, MPS, gradient)
    expected = results(peer or function, arrays, expected_dtype or dtype, CPU, gradient)
    tolerance = TOLERANCES.get(dtype, 0.0) if tolerance is None else tolerance
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.shape == theirs.shape
        scale = max(1.0, np.abs(theirs).max(initial=0.0))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=scale * tolerance)


# ------------------------------------------------------------------------------------------------------------------------- matrices

PRODUCTS = [
    ((5, 7), (7, 3), False, False),
    ((7, 5), (7, 3), True, False),
    ((5, 7), (3, 7), False, True),
    ((7, 5), (3, 7), True, True),
    ((9,), (9,), False, False),
    ((9,), (9, 4), False, False),
    ((4, 9), (9,), False, False),
    ((9,), (2, 9, 4), False, False),
    ((3, 2, 4, 9), (9,), False, False),
    ((6, 4, 5), (5, 8), False, False),
    ((6, 4, 5), (8, 5), False, True),
    ((6, 5, 4), (5, 8), True, False),
    ((6, 4, 5), (6, 5, 8), False, False),
    ((4, 5), (2, 3, 6, 5), False, True),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("x", "y", "transpose_x", "transpose_y"), PRODUCTS)
def test_matmul(x, y, transpose_x, transpose_y, dtype):
    check(lambda x, y: paddle.matmul(x, y, transpose_x, transpose_y), values(*x), values(*y), dtype=dtype)


def test_matmul_of_batches_that_both_repeat():
    # The gradient of this on Paddle's CPU throws, unless it is told of the repetition.
    repeated = lambda x, y: paddle.matmul(x.expand([2, 3, 4, 5]), y.expand([2, 3, 5, 2]))
    check(paddle.matmul, values(2, 1, 4, 5), values(3, 5, 2), peer=repeated)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matmul_half(dtype):
    check(paddle.matmul, values(6, 4, 5), values(5, 8), dtype=dtype, expected_dtype="float32")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_matmul_integers(dtype):
    check(paddle.matmul, 5 * values(6, 4, 5), 5 * values(5, 8), dtype=dtype, gradient=False)


def test_matmul_strided():
    check(lambda x, y: paddle.matmul(x.T, y[:, ::2]), values(7, 5), values(7, 6))


@pytest.mark.parametrize("dtype", FLOATS)
def test_products(dtype):
    check(paddle.bmm, values(3, 4, 5), values(3, 5, 2), dtype=dtype)
    check(paddle.mv, values(4, 5), values(5), dtype=dtype)
    check(paddle.dot, values(7), values(7), dtype=dtype)
    check(paddle.dot, values(3, 7), values(3, 7), dtype=dtype)
    for shape in ((4, 2), (1, 2)):
        check(lambda i, x, y: paddle.addmm(i, x, y, beta=0.5, alpha=2.0), values(*shape), values(4, 5), values(5, 2), dtype=dtype)


def test_linear():
    check(F.linear, values(2, 3, 5), values(5, 4), values(4), gradient=False)


def legacy(kind, slots, attributes, result="Out"):
    """An operator of the old programs, which no function of Paddle's calls any more, run by the executor on a place."""

    def run(place, arrays, dtype="float32"):
        paddle.enable_static()
        try:
            main = paddle.static.Program()
            with paddle.static.program_guard(main):
                block = main.global_block()
                feeds = {f"x{i}": array.astype(dtype) for i, array in enumerate(arrays)}
                variables = [block.create_var(name=name, shape=array.shape, dtype=dtype) for name, array in feeds.items()]
                out = block.create_var(name="out", dtype=dtype)
                outputs = {result: [out]}
                block.append_op(
                    type=kind, inputs={slot: [x] for slot, x in zip(slots, variables, strict=True)}, outputs=outputs, attrs=attributes
                )
            return paddle.static.Executor(place).run(main, feed=feeds, fetch_list=[out])[0]
        finally:
            paddle.disable_static()

    return run


@pytest.fixture
def old_programs():
    with paddle.pir_utils.OldIrGuard():
        yield


def test_mul(old_programs):
    run = legacy("mul", ["X", "Y"], {"x_num_col_dims": 2, "y_num_col_dims": 1})
    arrays = [values(2, 3, 4, 5), values(20, 6)]
    np.testing.assert_allclose(run(MPS, arrays), run(CPU, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["", "relu"])
def test_fc(old_programs, activation):
    x, w, b = arrays = [values(2, 3, 5), values(5, 6), values(6)]
    run = legacy("fc", ["Input", "W", "Bias"], {"in_num_col_dims": 2, "activation_type": activation, "padding_weights": False})
    expected = x @ w + b
    np.testing.assert_allclose(run(MPS, arrays), expected.clip(0) if activation else expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------- convolution

CONVOLUTIONS = {
    "1x1": ((2, 5, 7, 9), (11, 5, 1, 1), {}),
    "3x3": ((2, 13, 21, 23), (9, 13, 3, 3), {"padding": 1}),
    "stride": ((2, 3, 17, 15), (8, 3, 3, 3), {"padding": 1, "stride": 2}),
    "four paddings": ((1, 2, 9, 10), (3, 2, 3, 4), {"padding": [0, 1, 2, 3], "stride": [1, 2]}),
    "dilation": ((1, 4, 13, 14), (5, 4, 3, 3), {"padding": 2, "dilation": [2, 3]}),
    "groups": ((2, 6, 12, 13), (9, 2, 3, 5), {"groups": 3, "padding": [2, 1], "stride": [3, 2]}),
    "depthwise": ((2, 5, 9, 19), (5, 1, 3, 3), {"groups": 5, "padding": 1}),
    "depthwise stride": ((1, 4, 11, 21), (4, 1, 5, 5), {"groups": 4, "padding": 2, "stride": [2, 1]}),
    "same": ((1, 2, 7, 8), (3, 2, 3, 3), {"padding": "SAME", "stride": 2}),
    "valid": ((1, 2, 7, 8), (3, 2, 4, 2), {"padding": "VALID"}),
    "channels last": ((1, 7, 8, 3), (4, 3, 3, 3), {"padding": 1, "data_format": "NHWC"}),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name, dtype):
    x, filters, attributes = CONVOLUTIONS[name]
    check(lambda x, w: F.conv2d(x, w, **attributes), values(*x), values(*filters), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conv2d_half(dtype):
    check(lambda x, w: F.conv2d(x, w, padding=1), values(2, 3, 6, 7), values(4, 3, 3, 3), dtype=dtype, expected_dtype="float32")


TRANSPOSED = {
    "tiles": ((1, 3, 5, 7), (3, 4, 2, 2), {"stride": 2}),
    "overlap": ((2, 3, 6, 5), (3, 4, 3, 3), {"padding": 1}),
    "groups": ((2, 6, 4, 9), (6, 2, 2, 2), {"stride": 2, "groups": 2}),
    "depthwise": ((2, 6, 4, 9), (6, 1, 3, 3), {"stride": 2, "groups": 6}),
    "output padding": ((1, 3, 5, 5), (3, 2, 3, 3), {"stride": 2, "padding": 1, "output_padding": [1, 0]}),
    "output size": ((1, 3, 5, 5), (3, 2, 3, 3), {"stride": 2, "padding": 1, "output_size": [10, 9]}),
    "dilation": ((1, 3, 5, 5), (3, 2, 3, 3), {"dilation": [2, 1]}),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv2d_transpose(name, dtype):
    x, filters, attributes = TRANSPOSED[name]
    check(lambda x, w: F.conv2d_transpose(x, w, **attributes), values(*x), values(*filters), dtype=dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


EPILOGUES = {
    "": lambda x: x,
    "identity": lambda x: x,
    "relu": lambda x: x.clip(0),
    "sigmoid": sigmoid,
    "hardswish": lambda x: x * (x + 3).clip(0, 6) / 6,
    "hardsigmoid": lambda x: (0.2 * x + 0.5).clip(0, 1),
    "swish": lambda x: x * sigmoid(x),
}


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", EPILOGUES)
def test_fused_convolution(old_programs, activation, residual, kernel):
    x, w, b, r = values(2, 3, 6, 7), values(4, 3, kernel, kernel), values(4), values(2, 4, 6, 7)
    geometry = {"strides": [1, 1], "paddings": [kernel // 2] * 2, "dilations": [1, 1], "groups": 1}
    geometry |= {"padding_algorithm": "EXPLICIT", "data_format": "NCHW"}
    attributes = geometry | {"activation": activation, "split_channels": [], "exhaustive_search": False}
    attributes |= {"workspace_size_MB": 32, "fuse_alpha": 0.0}
    plain = legacy("conv2d", ["Input", "Filter"], geometry, "Output")(CPU, [x, w]) + b.reshape(-1, 1, 1)
    slots, arrays = ["Input", "Filter", "Bias"], [x, w, b]
    if residual:
        slots, arrays, plain = [*slots, "ResidualData"], [*arrays, r], plain + r
    got = legacy("fused_conv2d_add_act", slots, attributes, "Output")(MPS, arrays)
    np.testing.assert_allclose(got, EPILOGUES[activation](plain), rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------------------- pooling and resizing

POOLS = {
    "2x2": {"kernel_size": 2},
    "3x2": {"kernel_size": [3, 2]},
    "padding": {"kernel_size": 3, "stride": 1, "padding": 1},
    "ceil": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", POOLS)
def test_pool2d(name, dtype):
    image = values(2, 3, 8, 11)
    check(lambda x: F.max_pool2d(x, **POOLS[name]), image, dtype=dtype)
    check(lambda x: F.max_pool2d(x, return_mask=True, **POOLS[name]), image, dtype=dtype)
    for exclusive in (True, False):
        pool = lambda x: F.avg_pool2d(x, exclusive=exclusive, **POOLS[name])
        check(pool, image, dtype=dtype, gradient=False)
        # The gradient on Paddle's CPU divides by a float32, whatever the type.
        check(pool, image, dtype=dtype, tolerance=1e-6)


def test_pool2d_forms():
    for pool in (F.max_pool2d, F.avg_pool2d):
        check(lambda x, pool=pool: pool(x, 3, 2, padding="SAME"), values(1, 2, 7, 8))
        check(lambda x, pool=pool: pool(x, 3, 2, padding="VALID"), values(1, 2, 7, 8))
        check(lambda x, pool=pool: pool(x, 3, 2, padding=[1, 0, 1, 1]), values(1, 2, 7, 8))
        check(lambda x, pool=pool: pool(x, 2, data_format="NHWC"), values(1, 8, 6, 3))


@pytest.mark.parametrize("size", [1, [3, 5], [4, 4]])
def test_adaptive_pools(size):
    image = values(2, 3, 7, 11)
    check(lambda x: F.adaptive_avg_pool2d(x, size), image)
    check(lambda x: F.adaptive_max_pool2d(x, size), image)
    check(lambda x: F.adaptive_max_pool2d(x, size, return_mask=True), image)


SIZES = {
    "twice": {"scale_factor": 2},
    "scales": {"scale_factor": [1.5, 2.5]},
    "size": {"size": [13, 6]},
    "smaller": {"size": [4, 3]},
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SIZES)
def test_interpolation(name, dtype):
    for image, layout in ((values(2, 3, 5, 7), "NCHW"), (values(2, 5, 7, 3), "NHWC")):
        check(lambda x: F.interpolate(x, mode="nearest", data_format=layout, **SIZES[name]), image, dtype=dtype, gradient=False)
        for corners, align in ((False, 0), (False, 1), (True, 0)):
            options = {"mode": "bilinear", "align_corners": corners, "align_mode": align, "data_format": layout}
            # Weights are float32 in Paddle, whatever the type.
            check(lambda x: F.interpolate(x, **options, **SIZES[name]), image, dtype=dtype, gradient=False, tolerance=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_interpolation_to_sizes_in_tensors(mode):
    image = values(2, 3, 5, 7)
    check(lambda x: F.interpolate(x, paddle.to_tensor([13, 6], dtype="int32"), mode=mode), image, gradient=False)
    lengths = [13, 6]
    check(
        lambda x: F.interpolate(x, [paddle.to_tensor(n, dtype="int32") for n in lengths], mode=mode), image, gradient=False
    )
    check(lambda x: F.interpolate(x, scale_factor=paddle.to_tensor([2.0, 1.5], dtype="float32"), mode=mode), image, gradient=False)


@pytest.mark.parametrize("dtype", FLOATS)
def test_pixel_shuffle(dtype):
    check(lambda x: F.pixel_shuffle(x, 2), values(2, 12, 3, 5), dtype=dtype)
    check(lambda x: F.pixel_shuffle(x, 3, data_format="NHWC"), values(2, 3, 5, 18), dtype=dtype)
