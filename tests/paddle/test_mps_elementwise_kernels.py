"""The elementwise binary kernels as unit tests.

python -m pytest tests/paddle/test_mps_elementwise_kernels.py -v
python tests/paddle/test_mps_elementwise_kernels.py
"""

from __future__ import annotations

import unittest

import numpy as np

from report import difference, tensors


class ElementwiseKernel:
    """What each of the four kernels has to pass."""

    name = ""

    @staticmethod
    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def setUp(self) -> None:
        import paddle

        self.assertTrue(paddle.mps.is_available(), paddle.mps.unavailable_reason() if not paddle.mps.is_available() else "")
        paddle.mps.set_device(0)
        self.rng = np.random.default_rng(2026)

    def check(self, left: tuple[int, ...], right: tuple[int, ...]) -> None:
        import paddle

        x, y = (self.rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in (left, right))
        result = getattr(paddle, self.name)(*tensors(x, y))
        difference(result, self.reference(x.astype(np.float64), y.astype(np.float64)))

    def test_same_shape(self) -> None:
        self.check((16, 32), (16, 32))

    def test_broadcast_row(self) -> None:
        self.check((16, 32), (32,))

    def test_broadcast_column(self) -> None:
        self.check((16, 32), (16, 1))

    def test_broadcast_both(self) -> None:
        self.check((16, 1, 8), (4, 1))

    def test_scalar(self) -> None:
        self.check((16, 32), ())

    def test_four_dimensions(self) -> None:
        self.check((2, 3, 8, 8), (3, 1, 1))

    def test_large(self) -> None:
        self.check((1024, 1024), (1024, 1024))

    def test_result_is_on_the_device(self) -> None:
        import paddle

        x, y = tensors(np.ones((3,), np.float32), np.ones((3,), np.float32))
        self.assertEqual(getattr(paddle, self.name)(x, y).place.custom_device_type(), "mps")

    def test_same_bits_twice(self) -> None:
        import paddle

        x, y = tensors(*(self.rng.uniform(0.5, 2.0, (999,)).astype(np.float32) for _ in range(2)))
        function = getattr(paddle, self.name)
        np.testing.assert_array_equal(function(x, y).numpy(), function(x, y).numpy())


class TestAdd(ElementwiseKernel, unittest.TestCase):
    name, reference = "add", staticmethod(np.add)

    def test_commutes(self) -> None:
        x, y = tensors(*(self.rng.standard_normal(100).astype(np.float32) for _ in range(2)))
        np.testing.assert_array_equal((x + y).numpy(), (y + x).numpy())


class TestSubtract(ElementwiseKernel, unittest.TestCase):
    name, reference = "subtract", staticmethod(np.subtract)

    def test_from_itself(self) -> None:
        (x,) = tensors(self.rng.standard_normal(100).astype(np.float32))
        np.testing.assert_array_equal((x - x).numpy(), np.zeros(100))


class TestMultiply(ElementwiseKernel, unittest.TestCase):
    name, reference = "multiply", staticmethod(np.multiply)

    def test_by_zero_and_one(self) -> None:
        values = self.rng.standard_normal(100).astype(np.float32)
        (x,) = tensors(values)
        np.testing.assert_array_equal((x * 1.0).numpy(), values)
        np.testing.assert_array_equal((x * 0.0).numpy(), values * 0)


class TestDivide(ElementwiseKernel, unittest.TestCase):
    name, reference = "divide", staticmethod(np.divide)

    def test_by_zero(self) -> None:
        x, zero = tensors(np.array([1.0, -1.0, 0.0], np.float32), np.zeros(3, np.float32))
        np.testing.assert_array_equal((x / zero).numpy(), [np.inf, -np.inf, np.nan])


if __name__ == "__main__":
    unittest.main(verbosity=2)
