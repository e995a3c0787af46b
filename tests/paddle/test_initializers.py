"""Weights as they are drawn: every initializer of `paddle.nn.initializer` on device mps beside Paddle's CPU, by what its numbers must have in common."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import initializer as make

SHAPE = [400, 500]

RANDOM = {
    "Uniform": lambda: make.Uniform(-0.5, 2.0),
    "Normal": lambda: make.Normal(1.0, 3.0),
    # Bounds are numbers, not deviations: the first cuts nothing, the others cut both ends, one end, and nearly everything.
    "TruncatedNormal, narrow": lambda: make.TruncatedNormal(0.0, 0.02),
    "TruncatedNormal, both": lambda: make.TruncatedNormal(0.0, 0.02, -0.02, 0.03),
    "TruncatedNormal, one": lambda: make.TruncatedNormal(1.0, 2.0, -1.0, 100.0),
    "TruncatedNormal, tail": lambda: make.TruncatedNormal(0.0, 1.0, 3.0, 4.0),
    "XavierNormal": lambda: make.XavierNormal(),
    "XavierUniform": lambda: make.XavierUniform(),
    "KaimingNormal": lambda: make.KaimingNormal(),
    "KaimingUniform": lambda: make.KaimingUniform(nonlinearity="leaky_relu", negative_slope=0.3),
}

EXACT = {
    "Constant": (SHAPE, lambda: make.Constant(0.25)),
    "Assign": ([2, 3], lambda: make.Assign(np.arange(6.0).reshape(2, 3))),
    "Dirac": ([6, 4, 3, 3], lambda: make.Dirac(groups=2)),
    "Bilinear": ([2, 2, 4, 4], lambda: make.Bilinear()),
}


def weights(device: str, initializer, shape=SHAPE) -> np.ndarray:
    paddle.set_device(device)
    paddle.seed(5)
    return paddle.create_parameter(shape, "float32", default_initializer=initializer).numpy().astype("float64")


@pytest.mark.parametrize("name", RANDOM)
def test_random_weights_are_of_the_same_distribution(name):
    found, expected = (weights(device, RANDOM[name]()) for device in ("mps", "cpu"))
    spread = expected.std()
    # The mean of 200,000 numbers is off by 0.002 deviations.
    assert abs(found.mean() - expected.mean()) < 0.02 * spread
    assert abs(found.std() / spread - 1) < 0.02
    parts = np.linspace(0.01, 0.99, 21)
    assert np.abs(np.quantile(found, parts) - np.quantile(expected, parts)).max() < 0.05 * spread
    assert found.std(axis=0).min() > 0.5 * spread
    if "Normal" not in name or "Truncated" in name:
        # What ends somewhere ends at the same numbers, all but the last of two hundred thousand.
        assert abs(found.min() - expected.min()) < 0.7 * spread
        assert abs(found.max() - expected.max()) < 0.7 * spread


@pytest.mark.parametrize("bounds", [(-0.02, 0.03), (0.01, 0.02), (5.0, 6.0)])
def test_no_truncated_number_leaves_its_bounds(bounds):
    found = weights("mps", make.TruncatedNormal(0.0, 0.02, *bounds))
    low, high = (np.float32(bound) for bound in bounds)
    assert low <= found.min() and found.max() <= high


def test_truncated_numbers_without_a_deviation_are_the_mean():
    assert (weights("mps", make.TruncatedNormal(0.5, 0.0)) == 0.5).all()


@pytest.mark.parametrize("name", EXACT)
def test_weights_that_are_not_drawn(name):
    shape, initializer = EXACT[name]
    np.testing.assert_array_equal(weights("mps", initializer(), shape), weights("cpu", initializer(), shape))


def test_orthogonal_weights():
    rows = weights("mps", make.Orthogonal(gain=2.0), [30, 50])
    np.testing.assert_allclose(rows @ rows.T, 4.0 * np.eye(30), atol=1e-5)
