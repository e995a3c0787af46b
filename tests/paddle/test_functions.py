"""Functions that are formulas of other operators, by family: values, gradients and element types of Paddle's CPU, without fallback."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from test_everyday import Case, fraction, integers, normal, positive, run

X, Y, IMAGE = normal(3, 4, 5), normal(3, 4, 5, seed=1), normal(4, 8, 6, 6)
COLUMNS, SQUARE, VECTORS = normal(2, 12, 20), normal(2, 5, 5), normal(4, 3, 2)
WAVE = normal(2, 40)
WITH_NAN = np.array([np.nan, 1, np.inf, 2], "float32")

REARRANGED = {
    "channel_shuffle": Case(lambda x: F.channel_shuffle(x, 2), (IMAGE,)),
    "channel_shuffle, channels last": Case(lambda x: F.channel_shuffle(x, 3, "NHWC"), (IMAGE,)),
    "pixel_unshuffle": Case(lambda x: F.pixel_unshuffle(x, 2), (IMAGE,)),
    "pixel_unshuffle, channels last": Case(lambda x: F.pixel_unshuffle(x, 2, "NHWC"), (normal(2, 4, 6, 3),)),
    "temporal_shift": Case(lambda x: F.temporal_shift(x, 2, 0.25), (IMAGE,)),
    "temporal_shift, channels last": Case(lambda x: F.temporal_shift(x, 4, 0.3, data_format="NHWC"), (IMAGE,)),
    "maxout": Case(lambda x: F.maxout(x, 2), (IMAGE,)),
    "maxout, last axis": Case(lambda x: F.maxout(x, 3, -1), (IMAGE,)),
    "crop": Case(lambda x: paddle.crop(x, [2, -1, 3], [1, 1, 0]), (X,)),
    "fill_diagonal": Case(lambda x: (x * 1).fill_diagonal_(2.5), (normal(5, 4),)),
    "fill_diagonal, offset": Case(lambda x: (x * 1).fill_diagonal_(2.5, 1), (normal(5, 6),)),
    "fill_diagonal, wrapped": Case(lambda x: (x * 1).fill_diagonal_(2.5, wrap=True), (normal(9, 3),)),
    "fill_diagonal, cube": Case(lambda x: (x * 1).fill_diagonal_(2.5), (normal(3, 3, 3),)),
    "fill_diagonal_tensor, matrix": Case(lambda x, y: paddle.diagonal_scatter(x, y, 1), (normal(3, 4), normal(3))),
    "fill_diagonal_tensor, matrix in place": Case(lambda x, y: (x * 1).fill_diagonal_tensor_(y), (normal(4, 3), normal(3))),
    "fill_diagonal_tensor": Case(lambda x, y: paddle.Tensor.fill_diagonal_tensor(x, y, 1, 0, 2), (X, normal(4, 3))),
    "unfold": Case(lambda x: F.unfold(x, [3, 2], 2, [1, 0, 2, 1], [1, 2]), (IMAGE,)),
    "fold": Case(lambda x: F.fold(x, [5, 6], [2, 2], 1), (COLUMNS,)),
    "fold, strides": Case(lambda x: F.fold(x, [9, 10], [2, 3], 2, 1), (normal(2, 12, 25),)),
    "frame": Case(lambda x: paddle.signal.frame(x, 7, 3), (WAVE,)),
    "frame, first axis": Case(lambda x: paddle.signal.frame(x, 7, 3, 0), (normal(40, 2),)),
    "overlap_add": Case(lambda x: paddle.signal.overlap_add(x, 3), (normal(2, 7, 12),)),
    "overlap_add, first axis": Case(lambda x: paddle.signal.overlap_add(x, 3, 0), (normal(12, 7, 2),)),
    "multiplex": Case(lambda x, y, i: paddle.multiplex([x, y], i), (X, Y, integers(0, 2, 3, 1, dtype="int32"))),
    "multiplex, the first rows": Case(lambda x, y, i: paddle.multiplex([x, y], i), (X, Y, np.array([[1], [0]], "int32"))),
    "tril_indices": Case(lambda x: paddle.tril_indices(4, 6, 1) + paddle.triu_indices(3, 6, -1)[:, :1] * x, (integers(1, 3, 1),), False),
    "repeat_interleave": Case(lambda x, i: paddle.repeat_interleave(x, i, 1), (X, integers(0, 4, 4))),
    "sequence_mask": Case(lambda x: F.sequence_mask(x, 5, "int32") + F.sequence_mask(x, dtype="int32").sum(), (integers(0, 5, 2, 3),), False),
    "shard_index": Case(lambda x: paddle.shard_index(x, 20, 2, 1), (integers(0, 20, 6, 1),), False),
    "shard_index of a column": Case(lambda x: paddle.shard_index((x + paddle.to_tensor([[[0], [1000]]]))[:, 0], 20, 2, 1), (integers(0, 20, 6, 2, 1),), False),
    "diagonal of half": Case(lambda x: (x.astype("float16") * 1).fill_diagonal_(2.5).astype("float32"), (normal(5, 4),)),
}

STATISTICS = {
    "nansum": Case(lambda x: paddle.nansum(paddle.where(x > 1, paddle.full_like(x, float("nan")), x), 1), (X,)),
    **{f"dist, {p}": Case(lambda x, y, p=p: paddle.dist(x, y, p), (X, normal(4, 1, seed=4))) for p in (0, 1, 2, 3.5, float("inf"), -float("inf"))},
    "dist of equal tensors": Case(lambda x: paddle.dist(x, x.detach()), (X,)),
    **{f"renorm, {p}": Case(lambda x, p=p: paddle.renorm(x, p, 1, 3.0), (X,)) for p in (1.0, 2.0, 3.0)},
    "std, var": Case(lambda x: paddle._C_ops.std(x, [1], False, True, 1.0) + paddle._C_ops.var(x, [1], False, False, 0.0), (X,)),
    "median": Case(lambda x: paddle.median(x, 1), (X,)),
    "median of all": Case(lambda x: paddle.median(x), (normal(5, 3),)),
    "median, lower": Case(lambda x: paddle.median(x, 1, mode="min")[0], (X,)),
    "median of equal numbers": Case(lambda x: paddle.median(x.round(), 1), (X,)),
    "median of equal numbers, lower": Case(lambda x: paddle.median(x.round(), -1, mode="min")[0], (X,)),
    "nanmedian of equal numbers and NaN": Case(lambda x: paddle.nanmedian(paddle.where(x > 1, paddle.full_like(x, float("nan")), x.round()), [0, 2]), (X,)),
    "angle": Case(paddle.angle, (np.array([-2.0, -0.0, 0.0, 3.0, np.nan, np.inf, -np.inf]),)),
    "median, axis kept": Case(lambda x: paddle.median(x, 0, keepdim=True), (X,)),
    "median with NaN": Case(lambda x: paddle.median(paddle.where(x > 1.5, paddle.full_like(x, float("nan")), x), 2), (X,), False),
    "nanmedian": Case(lambda x: paddle.nanmedian(paddle.where(x > 1, paddle.full_like(x, float("nan")), x), 2), (X,)),
    "nanmedian, axes": Case(lambda x: paddle.nanmedian(paddle.where(x > 1, paddle.full_like(x, float("nan")), x), [0, 1], keepdim=True), (X,)),
    "median of a number whose double is infinite": Case(lambda x: paddle.median(x), (np.full(3, -1.7e308),), False),
    **{f"{function.__name__} of nothing": Case(lambda x, function=function: function(x, 1), (np.zeros((3, 0), "float32"),), False) for function in (paddle.median, paddle.nanmedian)},
    **{f"nanmedian of {dtype}, {size} in a line": Case(lambda x: paddle.nanmedian(x, 1), (integers(-9, 9, 6, size, dtype=dtype),), False) for dtype in ("int32", "int64") for size in (3, 4)},
    "histogram": Case(lambda x: paddle.histogram(x, 7, -2, 2), (X,), False),
    "histogram of all": Case(lambda x: paddle.histogram(x, 10), (X,), False),
    "histogram, one value": Case(lambda x: paddle.histogram(x, 4), (np.full(6, 3.0, "float32"),), False),
    "histogram, density, weights": Case(lambda x, w: paddle.histogram(x, 6, -1, 3, weight=w, density=True), (X, positive(3, 4, 5)), False),
    "histogram of integers": Case(lambda x: paddle.histogram(x, 5, 0, 20), (integers(-3, 22, 40),), False),
    "bincount": Case(lambda x: paddle.bincount(x, minlength=4), (integers(0, 9, 30),), False),
    "bincount, weights": Case(lambda x, w: paddle.bincount(x, w), (integers(0, 9, 30), normal(30)), False),
    "bincount of nothing": Case(lambda x: paddle.bincount(x, minlength=3), (integers(0, 9, 0),), False),
}

FORMULAS = {
    "log_loss": Case(lambda x, y: F.log_loss(x, y), (fraction(6, 1), fraction(6, 1, seed=1))),
    "swiglu": Case(lambda x, y: paddle.incubate.nn.functional.swiglu(x, y), (X, Y)),
    "swiglu of one": Case(lambda x: paddle.incubate.nn.functional.swiglu(x), (normal(3, 8),)),
    "reduce_as": Case(lambda x, y: paddle.reduce_as(x, y.detach()), (X, normal(4, 1))),
    "logspace": Case(lambda x: paddle.logspace(0, 3, 7) + paddle.logspace(1, 2, 7, base=3.0) * x, (positive(7),)),
    "trunc_divide": Case(lambda x, y: paddle._C_ops.trunc_divide(x, y), (normal(12) * 9, positive(12)), False),
    "rrelu": Case(lambda x: F.rrelu(x, 0.25, 0.25), (X,)),
    "conj": Case(paddle.conj, (X,)),
    "cross": Case(lambda x, y: paddle.cross(x, y), (VECTORS, normal(4, 3, 2, seed=5))),
    "cross, axis": Case(lambda x, y: paddle.cross(x, y, axis=-2), (VECTORS, normal(4, 3, 2, seed=5))),
    "baddbmm": Case(lambda i, x, y: paddle.baddbmm(i, x, y, 0.5, 2.0), (normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5))),
    "baddbmm, repeated": Case(lambda i, x, y: paddle.baddbmm(i, x, y), (normal(1, 3, 5), normal(2, 3, 4), normal(2, 4, 5))),
    "multi_dot": Case(lambda *x: paddle.linalg.multi_dot(x), (normal(3, 4), normal(4, 5), normal(5, 2), normal(2, 6))),
    "multi_dot, the cheaper order first": Case(lambda x, y: paddle.linalg.multi_dot([x, y, paddle.full([5, 1], float("inf"))]), (normal(3, 4), normal(4, 5)), False),
    **{
        f"{function.__name__}, alpha {alpha}, beta {beta}, with NaN": Case(lambda a, x, y, function=function, factors=(beta, alpha): function(a, x, y, *factors), tuple(WITH_NAN.reshape(shape) for shape in shapes), False)
        for function, shapes in ((paddle.addmm, [(2, 2)] * 3), (paddle.baddbmm, [(1, 2, 2)] * 3))
        for alpha, beta in ((0.0, 1.0), (1.0, 0.0), (0.0, 0.0))
    },
    "multi_dot, vectors": Case(lambda *x: paddle.linalg.multi_dot(x), (normal(4), normal(4, 5), normal(5, seed=1))),
    **{f"matrix_power, {n}": Case(lambda x, n=n: paddle.linalg.matrix_power(x, n), (SQUARE + 3 * np.eye(5, dtype="float32"),), tolerance=2e-4) for n in (0, 1, 3, 6, -1, -3)},
    "kron": Case(paddle.kron, (normal(2, 3), normal(4, 3, 2))),
    "bilinear": Case(F.bilinear, (normal(5, 3), normal(5, 4), normal(2, 3, 4), normal(1, 2))),
}


VOLUME = normal(2, 4, 6, 5, 7)

VOLUMES = {
    "conv3d": Case(lambda x, w: F.conv3d(x, w), (VOLUME, normal(3, 4, 2, 3, 2)), tolerance=1e-4),
    "conv3d, strides, padding, dilation": Case(lambda x, w, b: F.conv3d(x, w, b, [2, 1, 2], [1, 2, 0], [2, 1, 1]), (VOLUME, normal(3, 4, 3, 3, 2), normal(3)), tolerance=1e-4),
    "conv3d, groups, same": Case(lambda x, w: F.conv3d(x, w, stride=2, padding="SAME", groups=2), (VOLUME, normal(6, 2, 3, 2, 3)), tolerance=1e-4),
    "conv3d, channels last": Case(lambda x, w: F.conv3d(x, w, padding=1, data_format="NDHWC"), (normal(2, 6, 5, 7, 4), normal(3, 4, 3, 3, 3)), tolerance=1e-4),
    "conv3d_transpose": Case(lambda x, w: F.conv3d_transpose(x, w, stride=2, padding=1), (VOLUME, normal(4, 3, 3, 2, 3)), tolerance=1e-4),
    "conv3d_transpose, output padding, groups": Case(lambda x, w: F.conv3d_transpose(x, w, stride=[2, 1, 3], output_padding=[1, 0, 2], groups=2), (VOLUME, normal(4, 3, 3, 2, 3)), tolerance=1e-4),
    **{f"conv3d_transpose, channels last, {groups} groups": Case(lambda x, w, g=groups: F.conv3d_transpose(x, w, stride=2, padding=1, groups=g, data_format="NDHWC"), (image, normal(3, 2, 3, 3, 3)), tolerance=1e-4) for groups in (1, 3) for image in (normal(2, 3, 3, 3, 3), normal(2, 4, 5, 2, 3))},
    "max_pool3d": Case(lambda x: F.max_pool3d(x, 2), (VOLUME,)),
    "max_pool3d, padding, ceil": Case(lambda x: F.max_pool3d(x, [3, 2, 3], [2, 2, 1], [1, 0, 1], ceil_mode=True), (VOLUME,)),
    "max_pool3d, places": Case(lambda x: F.max_pool3d(x, [2, 2, 3], [2, 1, 2], [1, 0, 1], return_mask=True)[1], (VOLUME,), False),
    "max_pool3d, with places": Case(lambda x: F.max_pool3d(x, [2, 2, 3], [2, 1, 2], return_mask=True)[0], (VOLUME,)),
    "avg_pool3d": Case(lambda x: F.avg_pool3d(x, [2, 3, 2], 2, 1), (VOLUME,)),
    "avg_pool3d, with borders": Case(lambda x: F.avg_pool3d(x, 3, 2, 1, exclusive=False), (VOLUME,)),
    "avg_pool3d, channels last": Case(lambda x: F.avg_pool3d(x, 2, data_format="NDHWC"), (normal(2, 6, 5, 7, 4),)),
    "adaptive_avg_pool3d": Case(lambda x: F.adaptive_avg_pool3d(x, [3, 2, 4]), (VOLUME,)),
    "adaptive_max_pool3d": Case(lambda x: F.adaptive_max_pool3d(x, [3, 2, 4]), (VOLUME,)),
}

LINE, PICTURE = normal(2, 3, 7), normal(2, 3, 6, 5)

RESIZED = {
    **{
        f"interpolate, {mode}, {options}": Case(lambda x, mode=mode, options=options: F.interpolate(x, mode=mode, **options), (image,), tolerance=1e-4)
        for mode, image, sizes in (("linear", LINE, [11]), ("linear", LINE, [3]), ("bicubic", PICTURE, [9, 4]), ("bicubic", PICTURE, [1, 7]), ("trilinear", VOLUME, [4, 8, 9]))
        for options in ({"size": sizes}, {"size": sizes, "align_corners": True}, {"scale_factor": 1.5 if mode != "linear" else [2]}, *([{"size": sizes, "align_mode": 1}] if mode != "bicubic" else []))
    },
    "interpolate, channels last": Case(lambda x: F.interpolate(x, [9, 4], mode="bicubic", data_format="NHWC"), (PICTURE,), tolerance=1e-4),
    "affine_grid": Case(lambda x: F.affine_grid(x, [2, 3, 4, 5]), (normal(2, 2, 3),)),
    "affine_grid, corners apart": Case(lambda x: F.affine_grid(x, [2, 3, 4, 5], align_corners=False), (normal(2, 2, 3),)),
    "affine_grid of volumes": Case(lambda x: F.affine_grid(x, [2, 3, 4, 5, 2]), (normal(2, 3, 4),)),
}

TIED = integers(0, 4, 3, 4, 9).astype("float32")

RUNNING = {
    **{f"cummax, {axis}": Case(lambda x, axis=axis: paddle.cummax(x, axis)[0], (TIED,)) for axis in (0, 1, -1)},
    "cummin": Case(lambda x: paddle.cummin(x, 1)[0], (TIED,)),
    "cummin of all": Case(lambda x: paddle.cummin(x)[0], (TIED,)),
    "cummax, places": Case(lambda x: paddle.cummax(x, -1, dtype="int32")[1], (TIED,), False),
    "cummax of NaN": Case(lambda x: paddle.cummax(x, 0)[1], (np.array([1, np.nan, 3, np.nan, 5], "float32"),), False),
    "logcumsumexp": Case(lambda x: paddle.logcumsumexp(x, 1), (X,)),
    "logcumsumexp of all": Case(lambda x: paddle.logcumsumexp(x), (X * 5,), tolerance=1e-4),
    "searchsorted": Case(lambda x, y: paddle.searchsorted(x, y) + paddle.searchsorted(x, y, right=True) * 10, (np.sort(integers(0, 9, 12)), integers(-2, 12, 3, 5)), False),
    "searchsorted, lines": Case(lambda x, y: paddle.searchsorted(x, y, out_int32=True), (np.sort(normal(3, 7)), normal(3, 4)), False),
    "bucketize": Case(lambda x: paddle.bucketize(x, paddle.to_tensor([-1.0, 0.0, 0.5])), (X,), False),
    "mode": Case(lambda x: paddle.mode(x, -1)[0], (TIED,), False),
    "mode, axis": Case(lambda x: paddle.mode(x, 1, keepdim=True)[0], (TIED,), False),
    "mode without ties": Case(lambda x: paddle.mode(x, 0)[0], (normal(4, 3),)),
}

FEW = integers(0, 4, 3, 4)

UNIQUE = {
    **{f"unique, {i}": Case(lambda x, i=i: paddle.unique(x, True, True, True)[i], (FEW,), False) for i in range(4)},
    **{f"unique rows, {i}": Case(lambda x, i=i: paddle.unique(x, True, True, True, axis=0)[i], (integers(0, 2, 9, 2, 2),), False) for i in range(4)},
    "unique columns": Case(lambda x: paddle.unique(x, axis=1), (integers(0, 2, 2, 9),), False),
    **{f"unique planes, {i}": Case(lambda x, i=i: paddle.unique(x, True, True, True, axis=2)[i], (integers(0, 2, 2, 3, 9),), False) for i in range(4)},
    "unique of floats": Case(lambda x: paddle.unique(x), (TIED,), False),
    **{f"unique_consecutive, {i}": Case(lambda x, i=i: paddle.unique_consecutive(x, True, True)[i], (FEW,), False) for i in range(3)},
    "unique_consecutive rows": Case(lambda x: paddle.unique_consecutive(x, axis=0), (integers(0, 2, 9, 1),), False),
    "matrix_rank": Case(lambda x: paddle.linalg.matrix_rank(x @ x.T) + paddle.linalg.matrix_rank(x, 1.5), (normal(6, 3),), False),
    "matrix_rank, symmetric, bounds": Case(lambda x: paddle.linalg.matrix_rank(x @ x.T, hermitian=True) + paddle.linalg.matrix_rank(x, atol=0.1, rtol=0.5), (normal(6, 3),), False),
    "spectral_norm": Case(lambda w, u, v: paddle._C_ops.spectral_norm(w, u.detach(), v.detach(), 1, 2, 1e-12), (normal(3, 4, 2), normal(4, seed=1), normal(6, seed=2)), False),
}

EDGES = (integers(0, 6, 9), integers(0, 6, 9, seed=1))
ROWS = normal(6, 4)

GRAPHS = {
    **{f"send_u_recv, {pool}": Case(lambda x, s, d, pool=pool: paddle.geometric.send_u_recv(x, s, d, pool), (ROWS, *EDGES)) for pool in ("sum", "mean", "max", "min")},
    "send_u_recv, size": Case(lambda x, s, d: paddle.geometric.send_u_recv(x, s, d, "max", 8), (ROWS, *EDGES)),
    **{
        f"send_ue_recv, {message}, {pool}": Case(lambda x, y, s, d, message=message, pool=pool: paddle.geometric.send_ue_recv(x, y, s, d, message, pool), (ROWS, normal(9, 1), *EDGES))
        for message in ("add", "sub", "mul", "div")
        for pool in ("sum", "mean", "max", "min")
    },
    **{f"send_uv, {message}": Case(lambda x, y, s, d, message=message: paddle.geometric.send_uv(x, y, s, d, message), (ROWS, normal(6, 4, seed=2), *EDGES)) for message in ("add", "sub", "mul", "div")},
    **{f"segment_{pool}": Case(lambda x, i, pool=pool: getattr(paddle.geometric, f"segment_{pool}")(x, i), (ROWS, np.array([0, 0, 1, 3, 3, 3]))) for pool in ("sum", "mean", "max", "min")},
}


@pytest.mark.parametrize("name, case", [*REARRANGED.items(), *STATISTICS.items(), *FORMULAS.items(), *VOLUMES.items(), *RESIZED.items(), *RUNNING.items(), *UNIQUE.items(), *GRAPHS.items()])
def test_it_is_as_on_the_cpu(name, case):
    expected, got = run(case, "cpu"), run(case, "mps")
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=case.tolerance, atol=case.tolerance * max(1.0, np.abs(np.nan_to_num(theirs)).max(initial=0.0)))


def test_the_slope_of_spectral_norm_is_that_of_finite_differences():
    """Once the vectors have come to rest they count as constants; Paddle's CPU has other numbers."""
    paddle.set_device("mps")
    numbers, vectors = normal(3, 4, 2).astype("float64"), [paddle.to_tensor(normal(size, seed=1).astype("float64")) for size in (4, 6)]

    def weighed(w: paddle.Tensor) -> paddle.Tensor:
        return (paddle._C_ops.spectral_norm(w, *vectors, 1, 300, 1e-12) * paddle.cos(paddle.arange(24, dtype="float64")).reshape(w.shape)).sum()

    w = paddle.to_tensor(numbers, stop_gradient=False)
    weighed(w).backward()
    for at in [(0, 0, 0), (1, 2, 1), (2, 3, 0)]:
        moved = np.zeros_like(numbers)
        moved[at] = 1e-5
        slope = (float(weighed(paddle.to_tensor(numbers + moved))) - float(weighed(paddle.to_tensor(numbers - moved)))) / 2e-5
        assert abs(slope - float(w.grad[at])) < 1e-6


def test_gumbel_softmax():
    """Rows sum to 1, a hard one has a single 1, and scores are drawn by their softmax."""
    paddle.set_device("mps")
    x = paddle.to_tensor(np.tile(np.log([[0.1, 0.2, 0.7]]), (20000, 1)).astype("float32"), stop_gradient=False)
    soft, hard = F.gumbel_softmax(x, 0.5), F.gumbel_softmax(x, hard=True)
    np.testing.assert_allclose(soft.sum(-1).numpy(), 1, rtol=1e-5)
    np.testing.assert_array_equal(hard.sum(-1).numpy(), 1)
    np.testing.assert_allclose(hard.mean(0).numpy(), [0.1, 0.2, 0.7], atol=5 * 0.5 / np.sqrt(20000))
    (soft * soft).sum().backward()
    assert float(x.grad.sum(-1).abs().max()) < 1e-5 and float(x.grad.abs().max()) > 0


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers(dtype):
    numbers = (normal(3, 4) + 1j * normal(3, 4, seed=1)).astype(dtype)
    np.testing.assert_array_equal(paddle.conj(paddle.to_tensor(numbers)).numpy(), numbers.conj())
    real, imaginary = paddle.to_tensor(numbers.real), paddle.to_tensor(numbers.imag[:1])
    np.testing.assert_array_equal(paddle.complex(real, imaginary).numpy(), numbers.real + 1j * numbers.imag[:1])


def test_complex_numbers_become_real_ones_and_back():
    """The gradient of float32 to complex64 is the real part, also where a product makes a real tensor complex."""
    numbers = (normal(4) + 1j * normal(4, seed=1)).astype("complex64")
    c = paddle.to_tensor(numbers)
    for dtype in ("float32", "float64", "int32"):
        np.testing.assert_array_equal(c.astype(dtype).numpy(), numbers.real.astype(dtype))
    wanted = 3 * numbers.real + numbers.imag
    for product in (lambda y: y.astype("complex64") * c, lambda y: y * c):
        y = paddle.ones([4])
        y.stop_gradient = False
        z = product(y)
        (z.imag().sum() + 3 * z.real().sum()).backward()
        np.testing.assert_allclose(y.grad.numpy(), wanted, rtol=1e-6)


def _complex(*shape: int, seed: int = 0) -> np.ndarray:
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 10)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shapes", [
    ((7,), (7,)), ((1,), (1,)), ((), ()), ((3, 2, 33), (3, 2, 33)), ((4, 1024), (4, 1024)), ((0, 5), (5,)), ((0,), (0,)),
    ((5, 40), (40,)), ((40,), (5, 40)), ((3, 5, 6), (1, 5, 6)), ((3, 5, 6), (3, 1, 6)), ((5, 1), (1, 6)), ((5, 6), ()),
])  # fmt: skip
def test_products_of_complex_numbers(dtype, shapes):
    """Values and gradients: dense, rows repeated on either side, and every other way of repeating."""
    numbers = [_complex(*shape, seed=seed).astype(dtype) for seed, shape in enumerate(shapes)]
    weight = _complex(*np.broadcast_shapes(*shapes), seed=2).astype(dtype)
    found = {}
    for device in ("cpu", "mps"):
        paddle.set_device(device)
        x, y = (paddle.to_tensor(value, stop_gradient=False) for value in numbers)
        z = x * y
        (z * paddle.to_tensor(weight)).sum().abs().backward()
        found[device] = [z.numpy(), x.grad.numpy(), y.grad.numpy()]
    bound = 1e-5 if dtype == "complex64" else 1e-13
    for ours, theirs in zip(found["mps"], found["cpu"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound * 10)


def test_products_of_complex_numbers_where_they_lie():
    """In place, with the number itself, of turned and of every second numbers, by real numbers."""
    paddle.set_device("mps")
    numbers, others = _complex(6, 70).astype("complex64"), _complex(6, 70, seed=1).astype("complex64")
    x, y = paddle.to_tensor(numbers), paddle.to_tensor(others)
    close = np.testing.assert_allclose
    close((x * x).numpy(), numbers * numbers, rtol=1e-5, atol=1e-6)
    close((x.t() * y.t()).numpy(), (numbers * others).T, rtol=1e-5, atol=1e-6)
    close((x[:, ::2] * y[:, 1::2]).numpy(), numbers[:, ::2] * others[:, 1::2], rtol=1e-5, atol=1e-6)
    close((x * 2.5).numpy(), numbers * 2.5, rtol=1e-6)
    close((x * 2.5 + 1).numpy(), numbers * 2.5 + 1, rtol=1e-6, atol=1e-6)
    close(paddle.conj(x.t()).numpy(), numbers.T.conj(), rtol=0)
    x.multiply_(y)
    close(x.numpy(), numbers * others, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shift", [1, -3])
def test_complex_numbers_are_rolled_over_all_axes(shift):
    numbers = (normal(3, 4) + 1j * normal(3, 4, seed=1)).astype("complex64")
    for x, wanted in ((paddle.to_tensor(numbers), numbers), (paddle.to_tensor(numbers).t(), numbers.T)):
        np.testing.assert_array_equal(paddle.roll(x, shift).numpy(), np.roll(wanted, shift))


@pytest.mark.parametrize("call", [
    lambda: paddle.bincount(paddle.to_tensor([1, -1])),
    lambda: paddle.crop(paddle.ones([3]), [2], [2]),
    lambda: paddle.cross(paddle.ones([2, 4]), paddle.ones([2, 4])),
    lambda: F.channel_shuffle(paddle.ones([1, 5, 2, 2]), 2),
])  # fmt: skip
def test_what_is_wrong_is_a_value_error(call):
    with pytest.raises(ValueError):
        call()
