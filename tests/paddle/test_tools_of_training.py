"""What stands around a training loop: metrics, norms, averages, fused memory, hooks and checkpoints, as on Paddle's CPU."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F


def both(run) -> tuple:
    results = []
    for device in ("mps", "cpu"):
        paddle.set_device(device)
        results.append(run())
    return tuple(results)


def test_accuracy_counts_the_labels_among_the_best():
    random = np.random.default_rng(0)
    scores, labels = random.random((50, 7)).astype("float32"), random.integers(0, 7, (50, 1))

    def run():
        x, y = paddle.to_tensor(scores), paddle.to_tensor(labels)
        metric = paddle.metric.Accuracy(topk=(1, 3))
        metric.update(metric.compute(x, y))
        return [float(paddle.metric.accuracy(x, y, k)) for k in (1, 2, 5)] + list(metric.accumulate())

    mine, theirs = both(run)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tensor_is_clipped_by_its_norm(dtype):
    for factor in (0.0, 0.01, 1.0, 100.0):
        values = np.array([[3.0, 4.0], [0.0, 0.0]], "float32") * factor
        got = paddle._C_ops.clip_by_norm(paddle.to_tensor(values).astype(dtype), 1.0).astype("float32").numpy()
        rounded = paddle.to_tensor(values).astype(dtype).astype("float32").numpy()
        norm = np.linalg.norm(rounded)
        np.testing.assert_allclose(got, rounded / max(norm, 1.0), rtol=1e-6 if dtype == "float32" else 0.01)


@pytest.mark.parametrize("copy, align", [(True, True), (True, False), (False, False)])
def test_tensors_become_parts_of_one(copy, align):
    values = [np.arange(3, dtype="float32"), np.arange(10, 16, dtype="float32").reshape(2, 3), np.float32([7.0])]
    tensors = [paddle.to_tensor(value) for value in values]
    parts, whole = paddle._C_ops.coalesce_tensor(
        tensors, paddle.float32, copy, not copy, False, 2.5, align, -1, 4, [], [])
    for part, value in zip(parts, values, strict=True):
        assert part.shape == list(value.shape)
        np.testing.assert_array_equal(part.numpy(), value if copy else np.full_like(value, 2.5))
    if not align:
        np.testing.assert_array_equal(whole.numpy()[:10], np.concatenate([part.numpy().ravel() for part in parts]))
    whole.fill_(4.0)
    assert all((part.numpy() == 4.0).all() for part in parts)


def test_a_model_average_is_that_of_the_cpu():
    def run():
        x = paddle.create_parameter([3], "float32", default_initializer=nn.initializer.Constant(1.0))
        step = paddle.optimizer.SGD(0.1, parameters=[x])
        average = paddle.incubate.ModelAverage(0.15, parameters=[x], min_average_window=2, max_average_window=4)
        history = []
        for _ in range(9):
            (x**2).sum().backward()
            step.step()
            average.step()
            step.clear_grad()
            with average.apply():
                history.append(x.numpy())
        return history

    mine, theirs = both(run)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_lars_scales_each_layer():
    def run():
        layer = nn.Linear(3, 2)
        for parameter in layer.parameters():
            parameter.set_value(np.linspace(1, 2, parameter.size).astype("float32").reshape(parameter.shape))
        step = paddle.incubate.optimizer.LarsMomentumOptimizer(0.1, 0.9, parameter_list=layer.parameters())
        for _ in range(3):
            layer(paddle.ones([2, 3])).square().sum().backward()
            step.step()
            step.clear_grad()
        return [parameter.numpy() for parameter in layer.parameters()]

    for mine, theirs in zip(*both(run), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_normed_weights_hooks_recomputation_and_own_layers():
    class Doubled(paddle.autograd.PyLayer):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(context, upstream):
            return upstream * 2 * context.saved_tensor()[0]

    def run():
        layer = nn.Linear(4, 4)
        layer.weight.set_value(np.arange(16, dtype="float32").reshape(4, 4) / 10)
        layer.bias.set_value(np.zeros(4, "float32"))
        normed = nn.utils.weight_norm(layer, dim=1)
        seen = []
        x = paddle.to_tensor(np.linspace(-1, 1, 8).astype("float32").reshape(2, 4), stop_gradient=False)
        x.register_hook(lambda gradient: seen.append(gradient.numpy()) or gradient * 2)
        y = paddle.distributed.fleet.utils.recompute(lambda x: F.gelu(normed(Doubled.apply(x))), x)
        y.sum().backward()
        return [y.numpy(), x.grad.numpy(), *seen, *(parameter.grad.numpy() for parameter in normed.parameters())]

    for mine, theirs in zip(*both(run), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_checkpoints_go_from_one_device_to_the_other(tmp_path):
    def make():
        model = nn.Sequential(nn.BatchNorm1D(3), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        return model, paddle.optimizer.Adam(0.05, parameters=model.parameters())

    # Of columns that lie on a line each some gradients are 0 but for rounding, which Adam makes as large as the others.
    x = np.cos(np.arange(12.0) ** 2).astype("float32").reshape(4, 3)

    def train(model, step):
        for _ in range(3):
            model(paddle.to_tensor(x)).square().mean().backward()
            step.step()
            step.clear_grad()
        return [parameter.numpy() for parameter in model.parameters()]

    for first, second in (("mps", "cpu"), ("cpu", "mps")):
        # Names count up from 0 in each, as in a process of its own.
        with paddle.utils.unique_name.guard():
            paddle.set_device(first)
            model, step = make()
            train(model, step)
            paddle.save(model.state_dict(), str(tmp_path / "model"))
            paddle.save(step.state_dict(), str(tmp_path / "step"))
            expected = train(model, step)
        with paddle.utils.unique_name.guard():
            paddle.set_device(second)
            model, step = make()
            model.set_state_dict(paddle.load(str(tmp_path / "model")))
            step.set_state_dict(paddle.load(str(tmp_path / "step")))
            got = train(model, step)
        # A step without its moments would differ by the rate, 0.05.
        for mine, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_a_compiled_network_trains_as_on_the_cpu():
    def run():
        layer = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        random = np.random.default_rng(0)
        for parameter in layer.parameters():
            parameter.set_value(random.standard_normal(parameter.shape).astype("float32"))
        compiled, step = paddle.jit.to_static(layer), paddle.optimizer.RMSProp(0.01, parameters=layer.parameters())
        history = []
        for _ in range(5):
            loss = compiled(paddle.ones([4, 3])).square().mean()
            loss.backward()
            step.step()
            step.clear_grad()
            history.append(float(loss))
        return history

    mine, theirs = both(run)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4)
