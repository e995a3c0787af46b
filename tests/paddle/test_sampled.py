"""Random numbers of laws that a tensor names, on device mps: moments of the laws, seeds that repeat, parameters that are none."""

import numpy as np
import paddle
import pytest

COUNT = 40_000


def assert_moments(drawn: np.ndarray, mean: float, variance: float, excess: float):
    """Within five deviations of what the mean and the variance of so many draws have."""
    assert abs(drawn.mean() - mean) <= 5 * np.sqrt(variance / COUNT)
    assert abs(drawn.var() - variance) <= 5 * variance * np.sqrt((2 + excess) / COUNT)


def of(value: float, dtype: str = "float32") -> paddle.Tensor:
    return paddle.full([COUNT], value, dtype)


@pytest.mark.parametrize("rate", [0.5, 7.0, 10.0, 60.0])
def test_poisson(rate):
    drawn = paddle.poisson(of(rate))
    assert drawn.dtype == paddle.float32
    assert_moments(drawn.numpy().astype("float64"), rate, rate, 1 / rate)


@pytest.mark.parametrize("shape", [0.25, 1.0, 8.0])
def test_gamma(shape):
    assert_moments(paddle.standard_gamma(of(shape, "float64")).numpy(), shape, shape, 6 / shape)


@pytest.mark.parametrize("trials, chance", [(9, 0.25), (300, 0.5), (5000, 0.01)])
def test_binomial(trials, chance):
    drawn = paddle.binomial(paddle.full([COUNT], trials, "int64"), of(chance))
    assert drawn.dtype == paddle.int64
    variance = trials * chance * (1 - chance)
    assert_moments(drawn.numpy(), trials * float(np.float32(chance)), variance, (1 - 6 * chance * (1 - chance)) / variance)


def test_dirichlet():
    alpha = np.array([0.5, 2.0, 3.5])
    drawn = paddle.distribution.Dirichlet(paddle.to_tensor(np.tile(alpha, (COUNT, 1)))).sample([]).numpy()
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-12)
    share = alpha / 6
    variance = share * (1 - share) / 7
    assert (abs(drawn.mean(0) - share) <= 5 * np.sqrt(variance / COUNT)).all()


def test_random_integers_in_place():
    drawn = paddle.zeros([COUNT], "int32").random_(-3, 5).numpy()
    assert set(drawn) == set(range(-3, 5))
    assert_moments(drawn, 0.5, 63 / 12, -1.2 * 65 / 63)
    assert (paddle.zeros([9], "float16").random_(0, 2048).numpy() % 1 == 0).all()


def test_uniform_numbers_for_a_batch():
    drawn = paddle._C_ops.uniform_random_batch_size_like(of(0.0).reshape([100, 400]), [7, 400], 0, 0, -2.0, 4.0, 0, 0, 1, 1.0, paddle.float32)
    assert drawn.shape == [100, 400]
    assert_moments(drawn.numpy(), 1.0, 3.0, -1.2)


def test_seeds_repeat():
    def drawn() -> list[np.ndarray]:
        rates = paddle.linspace(0.1, 30, 500)
        return [paddle.poisson(rates).numpy(), paddle.standard_gamma(rates).numpy(), paddle.binomial(paddle.full([500], 40), rates / 31).numpy()]

    paddle.seed(3)
    first = drawn()
    other = drawn()
    paddle.seed(3)
    for before, again, next_ones in zip(first, drawn(), other, strict=True):
        np.testing.assert_array_equal(before, again)
        assert (before != next_ones).any()


def test_class_centers_hold_every_label():
    label = paddle.to_tensor([11, 5, 1, 3, 12, 2, 15, 19, 18, 19])
    for wanted in 6, 14, 20:
        remapped, sampled = paddle.nn.functional.class_center_sample(label, 20, wanted)
        centers = sampled.numpy()
        assert len(set(centers)) == len(centers) == max(wanted, 9)
        np.testing.assert_array_equal(centers[remapped.numpy()], label.numpy())
        # The labels' own come first, ascending.
        np.testing.assert_array_equal(centers[:9], np.unique(label.numpy()))


def test_what_is_no_parameter_is_refused():
    for call in (
        lambda: paddle.poisson(paddle.to_tensor([1.0, float("nan")])),
        lambda: paddle.standard_gamma(paddle.to_tensor([-1.0])),
        lambda: paddle.binomial(paddle.to_tensor([3]), paddle.to_tensor([1.5])),
        lambda: paddle.nn.functional.class_center_sample(paddle.to_tensor([25]), 20, 6),
    ):
        with pytest.raises((ValueError, IndexError)):
            call()
