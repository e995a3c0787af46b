"""paddle.linalg on device mps: values, gradients and errors of Paddle's CPU where there is one result, and else the properties of a decomposition."""

import numpy as np
import paddle
import pytest
from paddle import linalg

RANDOM = np.random.default_rng(4)
SQUARE = RANDOM.standard_normal((2, 5, 5)).astype("float32")
SYMMETRIC = SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(5, dtype="float32")
SIDES, SIDE = RANDOM.standard_normal((2, 5, 3)).astype("float32"), RANDOM.standard_normal(5).astype("float32")

# Names, with the call, its inputs, and whether gradients are compared.
CALLS = {
    "inv": (linalg.inv, [SQUARE], True),
    "inv, float64, transposed": (lambda x: linalg.inv(x.transpose([1, 2, 0])[:4, :2].transpose([2, 0, 1])[:, :2]), [SQUARE.astype("float64")], False),
    "det": (linalg.det, [SQUARE], False),
    "slogdet": (linalg.slogdet, [SQUARE], False),
    "slogdet of a singular matrix": (linalg.slogdet, [np.ones((2, 2), "float32")], False),
    "slogdet, det of NaN": (lambda x: linalg.slogdet(x)[1] + linalg.det(x), [np.full((2, 2), np.nan, "float32")], False),
    "det of a matrix of rank 1": (linalg.det, [np.stack([np.ones((3, 3)), np.zeros((3, 3)), np.eye(3)])], False),
    "slogdet of a matrix of rank 1": (linalg.slogdet, [np.ones((3, 3), "float32")], False),
    "det of a singular matrix, gradient": (linalg.det, [np.array([[1.0, 2.0], [2.0, 4.0]])], True),
    "slogdet of a singular matrix, gradient": (lambda x: linalg.slogdet(x)[0], [np.array([[1.0, 2.0], [2.0, 4.0]])], True),
    "slogdet of NaN, gradient": (lambda x: linalg.slogdet(x)[1], [np.full((2, 2), np.nan)], True),
    "solve, more right sides than matrices": (linalg.solve, [SQUARE[:1], np.concatenate([SIDES, SIDES + 1])], True),
    "solve, a batch of vectors": (linalg.solve, [SQUARE, SIDES[:, :, 0]], True),
    "solve": (linalg.solve, [SQUARE, SIDES], True),
    "solve, a vector": (linalg.solve, [SQUARE[0], SIDE], True),
    "solve, repeated matrix": (linalg.solve, [SQUARE[0], SIDES], True),
    "solve, from the right": (lambda x, y: linalg.solve(x, y.transpose([0, 2, 1]), left=False), [SQUARE, SIDES], True),
    "cholesky": (linalg.cholesky, [SYMMETRIC], False),
    "cholesky, upper": (lambda x: linalg.cholesky(x, upper=True), [SYMMETRIC], False),
    "svdvals": (linalg.svdvals, [SIDES], False),
    "eigenvalues": (lambda x: linalg.eigh(x, "U")[0], [SYMMETRIC], False),
    "nuclear norm": (lambda x: linalg.matrix_norm(x, "nuc"), [SIDES], False),
    "det, gradient": (linalg.det, [SQUARE], True),
    "slogdet, gradient": (lambda x: linalg.slogdet(x)[1], [SQUARE], True),
    "cholesky, gradient": (lambda x: linalg.cholesky(x @ x.transpose([0, 2, 1]) + paddle.eye(5)), [SQUARE], True),
    "cholesky, upper, gradient": (lambda x: linalg.cholesky(x @ x.transpose([0, 2, 1]) + paddle.eye(5), upper=True), [SQUARE], True),
    "eigvalsh": (linalg.eigvalsh, [SYMMETRIC], False),
    "eigh, gradient": (lambda x: linalg.eigh(x @ x.transpose([0, 2, 1]))[1].abs(), [SQUARE], True),
    "svdvals, gradient": (linalg.svdvals, [SIDES], True),
    "svd, gradient": (lambda x: linalg.svd(x)[0].abs() @ linalg.svd(x)[2].abs() * linalg.svd(x)[1].unsqueeze(-2), [SIDES], True),
    "svd of a wide matrix, gradient": (lambda x: linalg.svd(x.transpose([0, 2, 1]))[0].abs() @ linalg.svd(x.transpose([0, 2, 1]))[2].abs(), [SIDES], True),
    "qr, gradient": (lambda x: (lambda q, r: q.abs() @ r.abs())(*linalg.qr(x)), [SIDES], True),
    "qr of a wide matrix, gradient": (lambda x: (lambda q, r: q.abs() @ r.abs())(*linalg.qr(x.transpose([0, 2, 1]))), [SIDES], True),
    "triangular_solve": (lambda x, y: linalg.triangular_solve(x + 3 * paddle.eye(5), y), [SQUARE, SIDES], True),
    "triangular_solve, lower, transposed": (lambda x, y: linalg.triangular_solve(x + 3 * paddle.eye(5), y, upper=False, transpose=True), [SQUARE, SIDES], True),
    "triangular_solve, unit, repeated": (lambda x, y: linalg.triangular_solve(x, y, unitriangular=True), [SQUARE[0] / 3, SIDES], True),
    "cholesky_solve": (linalg.cholesky_solve, [SIDES, SQUARE + 3 * np.eye(5, dtype="float32")], False),
    "cholesky_solve, upper": (lambda y, x: linalg.cholesky_solve(y, x, upper=True), [SIDES, SQUARE + 3 * np.eye(5, dtype="float32")], False),
    "slogdet_v2": (lambda x: paddle.stack(paddle._C_ops.slogdet_v2(x)), [SQUARE], True),
    "slogdet_v2, gradient by the logarithm": (lambda x: paddle._C_ops.slogdet_v2(x)[1], [SQUARE], True),
    "lu_unpack, gradient": (lambda x: paddle.matmul(*linalg.lu_unpack(*linalg.lu(x))[1:]), [SQUARE], True),
    "nothing": (lambda x: paddle.concat([linalg.det(x), linalg.inv(x).flatten(), linalg.svd(x)[1].flatten()]), [np.zeros((2, 0, 0), "float32")], False),
}


def run(name: str, device: str) -> list[np.ndarray]:
    paddle.set_device(device)
    call, arrays, differentiates = CALLS[name]
    inputs = [paddle.to_tensor(array, stop_gradient=not differentiates) for array in arrays]
    result = call(*inputs)
    if differentiates:
        (result * paddle.cos(paddle.arange(result.size, dtype="float32")).reshape(result.shape)).sum().backward()
    return [result.numpy(), *(x.grad.numpy() for x in inputs if differentiates)]


@pytest.mark.parametrize("name", CALLS)
def test_it_is_as_on_the_cpu(name):
    for mine, theirs in zip(run(name, "mps"), run(name, "cpu"), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(theirs, where=np.isfinite(theirs), out=np.ones_like(theirs)).max(initial=0.0)))


@pytest.mark.parametrize("shape", [(3, 6, 4), (4, 6), (5, 5)])
def test_a_decomposition_gives_the_matrix_back(shape):
    paddle.set_device("mps")
    x = paddle.to_tensor(RANDOM.standard_normal(shape).astype("float64"))
    rank = min(shape[-2:])
    for whole in False, True:
        u, s, vh = linalg.svd(x, full_matrices=whole)
        assert u.shape[-1] == (shape[-2] if whole else rank) and vh.shape[-2] == (shape[-1] if whole else rank)
        assert float((u[..., :rank] * s.unsqueeze(-2) @ vh[..., :rank, :] - x).abs().max()) < 1e-12
        q, r = linalg.qr(x, "complete" if whole else "reduced")
        assert q.shape[-1] == (shape[-2] if whole else rank)
        assert float((q @ r - x).abs().max()) < 1e-12 and float(paddle.tril(r, -1).abs().max()) == 0
        for columns in u, q, vh.transpose([*range(len(shape) - 2), -1, -2]) if len(shape) == 2 else vh.transpose([0, 2, 1]):
            unit = paddle.eye(columns.shape[-1], dtype="float64")
            assert float((paddle.matmul(columns, columns, transpose_x=True) - unit).abs().max()) < 1e-12
    assert linalg.qr(x, "r").shape == [*shape[:-2], rank, shape[-1]]


def test_eigenvectors():
    paddle.set_device("mps")
    x = paddle.to_tensor(SYMMETRIC.astype("float64"))
    values, vectors = linalg.eigh(x)
    assert float((x @ vectors - vectors * values.unsqueeze(-2)).abs().max()) < 1e-11


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_what_has_no_result_is_a_value_error(device):
    paddle.set_device(device)
    flat, nan = paddle.to_tensor([[1.0, 2.0], [2.0, 4.0]]), paddle.full([2, 2], float("nan"))
    for call in lambda: linalg.inv(flat), lambda: linalg.cholesky(flat), lambda: linalg.solve(flat, flat), lambda: linalg.svd(nan), lambda: linalg.inv(nan):
        with pytest.raises(ValueError, match="singular|invertible|pivot|positive|NaN|illegal|decomposition"):
            call()


@pytest.mark.parametrize("call", [
    lambda x: linalg.eigvalsh(x @ x.transpose([1, 0])),
    lambda x: linalg.cholesky_solve(x[:, :3], x + 3 * paddle.eye(5, dtype="float64")),
    lambda x: linalg.cholesky_solve(x[:, :3], x + 3 * paddle.eye(5, dtype="float64"), upper=True),
])  # fmt: skip
def test_gradients_that_the_cpu_has_wrong_are_those_of_finite_differences(call):
    paddle.set_device("mps")
    numbers = SQUARE[0].astype("float64")

    def weighed(x: paddle.Tensor) -> paddle.Tensor:
        result = call(x)
        return (result * paddle.cos(paddle.arange(result.size, dtype="float64")).reshape(result.shape)).sum()

    x = paddle.to_tensor(numbers, stop_gradient=False)
    weighed(x).backward()
    step = 1e-5
    for at in np.ndindex(5, 5):
        moved = np.zeros((5, 5))
        moved[at] = step
        slope = (float(weighed(paddle.to_tensor(numbers + moved))) - float(weighed(paddle.to_tensor(numbers - moved)))) / (2 * step)
        assert abs(slope - float(x.grad[at])) < 1e-6 * max(1.0, abs(slope))


def test_eigenvectors_are_those_of_their_values():
    paddle.set_device("mps")
    for array in (SQUARE, SQUARE[0].astype("float64"), np.zeros((0, 3, 3), "float32"), np.diag([1.0, -2.0])):
        x = paddle.to_tensor(array)
        values, vectors = (part.numpy() for part in linalg.eig(x))
        tolerance = 1e-5 if array.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(array @ vectors, values[..., None, :] * vectors, atol=tolerance * 10)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), np.ones(values.shape), rtol=tolerance)
        # As LAPACK turns them: of each vector the largest component is real.
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(-2)[..., None, :], -2) if array.size else vectors
        np.testing.assert_allclose(largest.imag, np.zeros_like(largest.imag), atol=tolerance)
        np.testing.assert_allclose(np.sort_complex(linalg.eigvals(x).numpy()), np.sort_complex(np.linalg.eigvals(array)), atol=tolerance * 10)


def test_least_squares_of_tall_wide_and_flat_matrices():
    paddle.set_device("mps")
    flat = SIDES.copy()
    flat[:, :, 2] = flat[:, :, 1]
    for array, right in ((SIDES, SQUARE), (SIDES.transpose(0, 2, 1), SIDES.transpose(0, 2, 1)), (flat, SQUARE)):
        found = linalg.lstsq(paddle.to_tensor(array.astype("float64")), paddle.to_tensor(right.astype("float64")), 1e-15, "gelsd")
        for number in range(2):
            x, rest, rank, values = np.linalg.lstsq(array[number].astype("float64"), right[number].astype("float64"), rcond=None)
            np.testing.assert_allclose(found[0].numpy()[number], x, atol=1e-12)
            assert int(found[2].numpy()[number]) == rank
            np.testing.assert_allclose(found[3].numpy()[number], values, atol=1e-12)
            assert found[1].size == 2 * rest.size
            np.testing.assert_allclose(found[1].numpy()[number] if rest.size else found[1].numpy(), rest, atol=1e-12)


def test_gradients_of_the_factors_of_tall_and_wide_matrices_are_those_of_differences():
    paddle.set_device("mps")
    for array in (SIDES[0].astype("float64"), SIDES[0].T.astype("float64").copy()):
        x = paddle.to_tensor(array, stop_gradient=False)
        weights = np.cos(np.arange(array.size)).reshape(array.shape)

        def value(x: paddle.Tensor, weights: np.ndarray = weights) -> paddle.Tensor:
            return (linalg.lu(x)[0] * paddle.to_tensor(weights)).sum()

        value(x).backward()
        along = np.sin(np.arange(array.size)).reshape(array.shape)
        difference = float(value(paddle.to_tensor(array + 1e-6 * along)) - value(paddle.to_tensor(array - 1e-6 * along))) / 2e-6
        np.testing.assert_allclose((x.grad.numpy() * along).sum(), difference, rtol=1e-6)


@pytest.mark.parametrize("factors", [lambda x: linalg.lu_unpack(*linalg.lu(x))[1:], linalg.qr], ids=["lu_unpack", "qr"])
@pytest.mark.parametrize("factor", [0, 1])
def test_the_gradient_by_one_factor_is_that_by_both_with_zeros(factors, factor):
    paddle.set_device("mps")
    alone, both = (paddle.to_tensor(SQUARE, stop_gradient=False) for _ in range(2))
    # By one of them Paddle's CPU ends the process.
    factors(alone)[factor].abs().sum().backward()
    first, second = (part.abs() for part in factors(both))
    (first * (1 - factor) + second * factor).sum().backward()
    np.testing.assert_allclose(alone.grad.numpy(), both.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("letter", "NTC")
def test_the_gradient_of_a_solution_by_factors_is_that_of_the_solution(letter):
    paddle.set_device("mps")
    by_factors, direct = (paddle.to_tensor(SQUARE.astype("float64"), stop_gradient=False) for _ in range(2))
    right = paddle.to_tensor(SIDES.astype("float64"))
    (linalg.lu_solve(right, *linalg.lu(by_factors), trans=letter) ** 2).sum().backward()
    (linalg.solve(direct if letter == "N" else direct.transpose([0, 2, 1]), right) ** 2).sum().backward()
    np.testing.assert_allclose(by_factors.grad.numpy(), direct.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_what_has_no_factors_or_values_is_refused():
    paddle.set_device("mps")
    x = paddle.to_tensor(SQUARE[0])
    factors, pivots = linalg.lu(x)
    for call in (
        lambda: linalg.lu_unpack(factors, pivots + 9),
        lambda: paddle._C_ops.lu_solve(x[:2], factors, pivots, "N"),
        lambda: paddle._C_ops.lu_solve(x, factors, pivots, "X"),
        lambda: linalg.eigvals(x * float("nan")),
        lambda: linalg.eigvals(x[:3]),
        lambda: paddle._C_ops.lstsq(x * float("inf"), x, 1e-7, "gelsd"),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("of", ["values", "vectors", "both"])
def test_the_gradient_of_eigenvalues_and_vectors(of, batch):
    """By finite differences of what depends neither on the order of eigenvalues nor on the phases of vectors of length one."""
    numbers = np.random.default_rng(8).standard_normal((*batch, 4, 4))
    weights = paddle.to_tensor(np.linspace(0.5, 2, 4))

    def value(x: paddle.Tensor) -> paddle.Tensor:
        values, vectors = linalg.eig(x)
        size = values.real() ** 2 + 2 * values.imag() ** 2 + values.real() if of != "vectors" else paddle.ones(values.shape, "float64")
        if of == "values":
            return size.sum()
        parts = (vectors.real() ** 2 + vectors.imag() ** 2) ** 2
        return (parts * weights.unsqueeze(-1) * size.unsqueeze(-2)).sum()

    x = paddle.to_tensor(numbers, stop_gradient=False)
    value(x).backward()
    assert x.grad.dtype == x.dtype
    moved = np.random.default_rng(9).standard_normal(numbers.shape)
    step = 1e-6
    slope = (float(value(paddle.to_tensor(numbers + step * moved))) - float(value(paddle.to_tensor(numbers - step * moved)))) / (2 * step)
    np.testing.assert_allclose((x.grad.numpy() * moved).sum(), slope, rtol=1e-6, atol=1e-8)


def test_the_gradient_of_eigenvalues_is_that_of_the_cpu():
    numbers = np.random.default_rng(8).standard_normal((4, 4)).astype("float32")

    def gradient(device: str) -> np.ndarray:
        paddle.set_device(device)
        x = paddle.to_tensor(numbers, stop_gradient=False)
        values, _ = linalg.eig(x)
        (values.real() ** 2 + values.imag() ** 2).sum().backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient("mps"), gradient("cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 6, 4)])
def test_least_squares_have_the_drivers_of_the_cpu(shape, driver):
    """Paddle's Python refuses devices other than its CPU and CUDA."""
    random = np.random.default_rng(shape)
    left, right = random.standard_normal(shape), random.standard_normal((*shape[:-1], 2))

    def solved(device):
        paddle.set_device(device)
        return [part.numpy() for part in paddle.linalg.lstsq(paddle.to_tensor(left), paddle.to_tensor(right), driver=driver)]

    for found, expected in zip(solved("mps"), solved("cpu"), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_least_squares_refuse_a_driver_that_is_none():
    with pytest.raises(ValueError, match="driver"):
        paddle.linalg.lstsq(paddle.ones([2, 2]), paddle.ones([2, 1]), driver="gel")
