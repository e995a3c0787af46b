"""What the tests of PaddlePaddle's device share."""

import numpy as np
import pytest

paddle = pytest.importorskip("paddle", reason="PaddlePaddle is not installed")

# Here as well as in the environment, for a Paddle that was imported before: a fallback must never pass for a kernel of ours.
paddle.set_flags({"FLAGS_enable_api_kernel_fallback": False})


@pytest.fixture(autouse=True)
def on_mps():
    """Every test starts on the first device with the same random numbers, and leaves the process as it was."""
    assert paddle.mps.is_available(), paddle.mps.unavailable_reason()
    paddle.mps.set_device(0)
    paddle.seed(1234)
    np.random.seed(1234)
    yield
    paddle.mps.set_device(0)
    paddle.disable_static()


@pytest.fixture
def on_cpu():
    """Computes something on Paddle's CPU device: the peer that results are compared with."""

    def compute(function, *arrays, **attributes):
        paddle.device.set_device("cpu")
        try:
            result = function(*[paddle.to_tensor(array) for array in arrays], **attributes)
            return [part.numpy() for part in result] if isinstance(result, (list, tuple)) else result.numpy()
        finally:
            paddle.mps.set_device(0)

    return compute
