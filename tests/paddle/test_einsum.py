"""Sums of products by letters on device mps, without fallback: values and gradients are those of Paddle's CPU, or of numpy in float64."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

CASES = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "ij,jk->ki": [(3, 4), (4, 5)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "bqhd,bkhd->bhqk": [(2, 4, 3, 5), (2, 6, 3, 5)],
    "i,j->ij": [(3,), (4,)],
    "i,i->": [(7,), (7,)],
    "ij,ij->ij": [(3, 4), (3, 4)],
    "ij,ij->ji": [(3, 4), (3, 4)],
    "ij,ij->": [(3, 4), (3, 4)],
    "ij,j->i": [(3, 4), (4,)],
    "ijk,jl->kil": [(2, 3, 4), (3, 5)],
    "ijk,lm->il": [(2, 3, 4), (5, 2)],
    "ij->ji": [(3, 4)],
    "ij->": [(3, 4)],
    "ij->j": [(3, 4)],
    "ijkl->kj": [(2, 3, 4, 5)],
    "ii->i": [(4, 4)],
    "ii->": [(4, 4)],
    "iji->j": [(3, 4, 3)],
    "ii,ij->j": [(3, 3), (3, 4)],
    "ij,kj->ik": [(1, 1), (2, 5)],
    "ij,ij->i": [(3, 1), (3, 4)],
    "bij,bjk->ibk": [(1, 3, 4), (2, 4, 5)],
    "ab,bc->ac": [(33, 70), (70, 41)],
}  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    random = np.random.default_rng((seed, *shape))
    numbers = random.uniform(-1, 1, shape)
    return (numbers + 1j * random.uniform(-1, 1, shape) if "complex" in dtype else numbers).astype(dtype)


def evaluated(device: str, equation: str, arrays: list[np.ndarray], weights: np.ndarray) -> list[np.ndarray]:
    """The sum, and the gradients of its weighted sum."""
    paddle.set_device(device)
    operands = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]
    out = paddle._C_ops.einsum(operands, equation)[0]
    product = out * paddle.to_tensor(weights)
    (product.real() if "complex" in str(weights.dtype) else product).sum().backward()
    return [out.numpy(), *(operand.grad.numpy() for operand in operands)]


def in_numpy(equation: str, arrays: list[np.ndarray], weights: np.ndarray) -> list[np.ndarray]:
    """The same by loops over all letters."""
    left, result = equation.split("->")
    letters, sizes = left.split(","), {}
    for own, array in zip(letters, arrays, strict=True):
        for letter, size in zip(own, array.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    out, grads = np.zeros([sizes[letter] for letter in result], arrays[0].dtype), [np.zeros_like(array) for array in arrays]
    names = sorted(sizes)
    for index in np.ndindex(*[sizes[name] for name in names]):
        at = dict(zip(names, index, strict=True))
        places = [tuple(at[letter] if size > 1 else 0 for letter, size in zip(own, array.shape, strict=True)) for own, array in zip(letters, arrays, strict=True)]
        to = tuple(at[letter] for letter in result)
        factors = [array[place] for array, place in zip(arrays, places, strict=True)]
        out[to] += np.prod(factors)
        for number, (grad, place) in enumerate(zip(grads, places, strict=True)):
            grad[place] += np.conj(weights[to] * np.prod([factor for other, factor in enumerate(factors) if other != number]))
    return [out, *grads]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("equation", [equation for equation in CASES if max(map(max, CASES[equation])) < 30])
def test_as_loops_in_float64(equation, dtype):
    arrays = [drawn(shape, dtype, seed) for seed, shape in enumerate(CASES[equation])]
    paddle.set_device("mps")
    shape = tuple(paddle._C_ops.einsum([paddle.to_tensor(array) for array in arrays], equation)[0].shape)
    weights = drawn(shape, dtype, 9)
    for own, other in zip(evaluated("mps", equation, arrays, weights), in_numpy(equation, arrays, weights), strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_allclose(own, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("equation", ["ij,jk->ki", "bhqd,bhkd->bhqk", "ijk,lm->il", "ijkl->kj", "ij,j->i", "ab,bc->ac"])
def test_as_on_paddle_s_cpu(equation, dtype):
    arrays = [drawn(shape, dtype, seed) for seed, shape in enumerate(CASES[equation])]
    paddle.set_device("mps")
    shape = tuple(paddle._C_ops.einsum([paddle.to_tensor(array) for array in arrays], equation)[0].shape)
    weights = drawn(shape, dtype, 9)
    if "complex" in dtype and "," not in equation:
        # The gradient of one complex operand is conjugated once too often by Paddle's CPU: the test above has it in float64.
        weights = weights.real.astype(dtype)
    for own, other in zip(evaluated("mps", equation, arrays, weights), evaluated("cpu", equation, arrays, weights), strict=True):
        assert (own.dtype, own.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types(dtype):
    x, y = drawn((5, 70), "float32", 0), drawn((70, 6), "float32", 1)
    x, y = [paddle.to_tensor(array).astype(dtype) for array in (x, y)]
    out = paddle.einsum("ij,jk->ik", x, y)
    assert str(out.dtype) == f"paddle.{dtype}"
    expected = x.astype("float32").numpy().astype("float64") @ y.astype("float32").numpy()
    np.testing.assert_allclose(out.astype("float32").numpy(), expected, atol=0.01 if dtype == "float16" else 0.06)


@pytest.mark.parametrize("equation", ["...ij,...jk->...ik", "bik,bjk,bk->bij", "ij,ij"])
def test_by_paddle_s_own_function(equation):
    shapes = {"b": 2, "i": 3, "j": 4, "k": 5, ".": 2}
    operands = equation.split("->")[0].replace("...", ".").split(",")
    arrays = [drawn(tuple(shapes[letter] for letter in own), "float64", seed) for seed, own in enumerate(operands)]
    out = paddle.einsum(equation, *[paddle.to_tensor(array) for array in arrays]).numpy()
    np.testing.assert_allclose(out, np.einsum(equation, *arrays), rtol=1e-12)


def test_a_program_for_inference():
    """Programs without gradients have a kernel of their own."""
    x, y = drawn((3, 4), "float32", 0), drawn((4, 5), "float32", 1)
    call = paddle.jit.to_static(lambda x, y: paddle.einsum("ij,jk->ik", x, y))
    with paddle.no_grad():
        np.testing.assert_allclose(call(paddle.to_tensor(x), paddle.to_tensor(y)).numpy(), x @ y, rtol=1e-5)


@pytest.mark.parametrize(("equation", "shapes"), [("ij,jk->ik", [(3, 4), (5, 6)]), ("ij->k", [(3, 4)]), ("ijk->i", [(3, 4)])])
def test_what_makes_no_sense_is_refused(equation, shapes):
    with pytest.raises((ValueError, RuntimeError, OSError)):
        paddle._C_ops.einsum([paddle.ones(shape) for shape in shapes], equation)


def test_nothing_gives_nothing():
    assert paddle.einsum("ij,jk->ik", paddle.zeros([0, 3]), paddle.zeros([3, 4])).shape == [0, 4]
    np.testing.assert_array_equal(paddle.einsum("ij,jk->ik", paddle.zeros([2, 0]), paddle.zeros([0, 4])).numpy(), np.zeros((2, 4)))
