"""Networks of ``paddle.vision.models`` with random weights give on device mps what Paddle's CPU gives, without fallback."""

import numpy as np
import paddle
import pytest
from paddle.vision import models

NETWORKS = {
    "resnet18": lambda: models.resnet18(num_classes=20),
    "mobilenet_v2": lambda: models.mobilenet_v2(scale=0.5, num_classes=20),
    "mobilenet_v3_small": lambda: models.mobilenet_v3_small(num_classes=20),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_eval_mode(name):
    picture = np.random.default_rng(0).standard_normal((2, 3, 96, 96)).astype("float32")
    paddle.set_device("cpu")
    paddle.seed(11)
    network = NETWORKS[name]()
    network.eval()
    state = {key: value.numpy() for key, value in network.state_dict().items()}
    with paddle.no_grad():
        expected = network(paddle.to_tensor(picture)).numpy()
    paddle.set_device("mps")
    network = NETWORKS[name]()
    network.eval()
    network.set_state_dict(state)
    with paddle.no_grad():
        output = network(paddle.to_tensor(picture))
    assert output.place.is_custom_place()
    np.testing.assert_allclose(output.numpy(), expected, atol=1e-4 * float(np.abs(expected).max()))


def test_paddle_s_own_check_passes(program):
    output = program("import paddle; paddle.utils.run_check()", FLAGS_enable_api_kernel_fallback="1")
    assert "installed successfully" in output
