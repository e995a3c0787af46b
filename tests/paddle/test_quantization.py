"""Training for quantisation on device mps, without fallback: levels, scales and gradients are those of Paddle's CPU."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

operators = paddle._C_ops
ONE = np.ones(1, "float32")

CASES = {
    "abs_max": lambda x, kind: operators.fake_quantize_dequantize_abs_max(x, 8, kind),
    "levels, abs_max": lambda x, kind: operators.fake_quantize_abs_max(x, 8, kind),
    "channel 0": lambda x, kind: operators.fake_channel_wise_quantize_dequantize_abs_max(x, 8, kind, 0),
    "channel 1": lambda x, kind: operators.fake_channel_wise_quantize_dequantize_abs_max(x, 4, kind, 1),
    "levels, channel 0": lambda x, kind: operators.fake_channel_wise_quantize_abs_max(x, 8, kind, 0, False),
    "average": lambda x, kind: operators.fake_quantize_dequantize_moving_average_abs_max(
        x, *(paddle.to_tensor(ONE * value) for value in (0.5, 0.7, 1.5)), 0.9, 8, False, kind),
    "levels, average": lambda x, kind: operators.fake_quantize_moving_average_abs_max(
        x, *(paddle.to_tensor(ONE * value) for value in (0.5, 0.7, 1.5)), 0.9, 8, False, kind),
    "average, test": lambda x, kind: operators.fake_quantize_dequantize_moving_average_abs_max(
        x, paddle.to_tensor(ONE), None, None, 0.9, 8, True, kind)[:1],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [0, 1])
def test_levels_and_gradients_are_those_of_the_cpu(name, kind):
    def run(device):
        paddle.set_device(device)
        values = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
        values[0, :4] = [1.5, -1.5, 0.5, 2.0]
        x = paddle.to_tensor(values, stop_gradient=False)
        outs = CASES[name](x, kind)
        if "levels" not in name:
            (outs[0] * paddle.arange(6, dtype="float32")).sum().backward()
        return [out.numpy() for out in outs] + ([] if x.grad is None else [x.grad.numpy()])

    for mine, theirs in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_a_quantised_network_trains_as_on_the_cpu():
    from paddle.quantization import QAT, QuantConfig
    from paddle.quantization.quanters import FakeQuanterWithAbsMaxObserver

    def run(device):
        paddle.set_device(device)
        random = np.random.default_rng(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        for parameter in model.parameters():
            parameter.set_value(random.standard_normal(parameter.shape).astype("float32"))
        quanter = FakeQuanterWithAbsMaxObserver(moving_rate=0.9)
        model = QAT(QuantConfig(activation=quanter, weight=quanter)).quantize(model)
        model.train()
        step = paddle.optimizer.SGD(0.05, parameters=model.parameters())
        history = []
        for _ in range(6):
            x = paddle.to_tensor(random.standard_normal((16, 4)).astype("float32"))
            loss = ((model(x) - x[:, :2]) ** 2).mean()
            loss.backward()
            step.step()
            step.clear_grad()
            history.append(float(loss))
        model.eval()
        return [*history, float(model(paddle.ones([1, 4])).sum())]

    np.testing.assert_allclose(run("mps"), run("cpu"), rtol=1e-3)


SCALES = np.asarray([0.5, 0.7, 1.5, 0.9], "float32")
FLOAT, LEVELS = "float32", "int8"
KNOWN = {
    "dequantize_abs_max": (lambda x: operators.dequantize_abs_max(x, paddle.to_tensor(ONE * 3), 127.0), LEVELS),
    "dequantize_abs_max, 16 bits": (lambda x: operators.dequantize_abs_max(x, paddle.to_tensor(ONE * 3), 32767.0), "int16"),
    "dequantize_log": (lambda x: operators.dequantize_log(x, paddle.linspace(0.1, 2, 128)), LEVELS),
    "fake_dequantize_max_abs": (lambda x: operators.fake_dequantize_max_abs(x, paddle.to_tensor(ONE * 3), 127.0), FLOAT),
    "fake_channel_wise_dequantize_max_abs": (
        lambda x: operators.fake_channel_wise_dequantize_max_abs(x, [paddle.to_tensor(SCALES)], [8], 0, 1), FLOAT),
    "fake_channel_wise_dequantize_max_abs, two scales": (
        lambda x: operators.fake_channel_wise_dequantize_max_abs(
            x, [paddle.to_tensor(SCALES), paddle.to_tensor(ONE * 2)], [8, 4], 0, 1), FLOAT),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_scales_that_are_known_are_used_as_on_the_cpu(name):
    call, dtype = KNOWN[name]
    shape = (6, 4) if "two scales" in name else (4, 6)

    def run(device):
        paddle.set_device(device)
        random = np.random.default_rng(0)
        x = random.standard_normal(shape) * 0.5 if dtype == FLOAT else random.integers(-128, 128, shape)
        return call(paddle.to_tensor(x.astype(dtype))).numpy()

    expected, found = run("cpu"), run("mps")
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [0, 3, 12])
def test_the_largest_magnitude_of_a_window_is_the_scale_of_a_call_too(step):
    """Not of a program alone, whose scales are there before."""

    def run(device):
        paddle.set_device(device)
        x = paddle.to_tensor(np.random.default_rng(1).standard_normal((4, 5)).astype("float32"))
        scale, number = paddle.to_tensor([0.5]), paddle.to_tensor([step])
        out, scale, scales = operators.fake_quantize_range_abs_max(x, scale, number, 10, 8, False, 0)
        # What no step has written yet is memory that nobody has written on the CPU.
        return out.numpy(), scale.numpy(), scales.numpy()[step % 10]

    for found, expected in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
