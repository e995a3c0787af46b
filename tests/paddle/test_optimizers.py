"""Every optimizer of Paddle gives the CPU's weights on device mps, without fallback: Paddle's fallback loses what is updated in place."""

from __future__ import annotations

import functools

import numpy as np
import paddle
import pytest
from paddle import nn, optimizer
from paddle.optimizer import lr
from paddle.regularizer import L1Decay, L2Decay

CASES = {
    "sgd": lambda p, **k: optimizer.SGD(0.1, parameters=p, **k),
    "momentum": lambda p, **k: optimizer.Momentum(0.1, 0.9, parameters=p, **k),
    "nesterov": lambda p, **k: optimizer.Momentum(0.1, 0.9, parameters=p, use_nesterov=True, **k),
    "momentum, many tensors": lambda p, **k: optimizer.Momentum(0.1, 0.9, parameters=p, use_multi_tensor=True, **k),
    "adam": lambda p, **k: optimizer.Adam(0.1, parameters=p, **k),
    "adam, amsgrad": lambda p, **k: optimizer.Adam(0.1, parameters=p, amsgrad=True, **k),
    "adam, many tensors": lambda p, **k: optimizer.Adam(0.1, parameters=p, use_multi_tensor=True, **k),
    "adam, beta tensors": lambda p, **k: optimizer.Adam(0.1, beta1=paddle.to_tensor([0.8]), beta2=paddle.to_tensor([0.95]), parameters=p, **k),
    "adamw": lambda p, **k: optimizer.AdamW(0.1, parameters=p, **k),
    "adamw, amsgrad": lambda p, **k: optimizer.AdamW(0.1, parameters=p, amsgrad=True, apply_decay_param_fun=lambda name: "w" in name, **k),
    "adamax": lambda p, **k: optimizer.Adamax(0.1, parameters=p, **k),
    "adagrad": lambda p, **k: optimizer.Adagrad(0.1, parameters=p, initial_accumulator_value=0.1, **k),
    "adadelta": lambda p, **k: optimizer.Adadelta(0.5, parameters=p, **k),
    "rmsprop": lambda p, **k: optimizer.RMSProp(0.1, parameters=p, **k),
    "rmsprop, centered": lambda p, **k: optimizer.RMSProp(0.1, momentum=0.9, centered=True, parameters=p, **k),
    "lamb": lambda p, **k: optimizer.Lamb(0.1, parameters=p, **k),
    "lamb, always": lambda p, **k: optimizer.Lamb(0.1, lamb_weight_decay=0.0, always_adapt=True, parameters=p, **k),
    "nadam": lambda p, **k: optimizer.NAdam(0.1, parameters=p, **k),
    "radam": lambda p, **k: optimizer.RAdam(0.1, beta2=0.7, parameters=p, **k),
    "asgd": lambda p, **k: optimizer.ASGD(0.1, batch_num=2, parameters=p, **k),
    "rprop": lambda p, **k: optimizer.Rprop(0.1, learning_rate_range=(0.05, 0.15), parameters=p, **k),
}
NO_DECAY = {"lamb", "lamb, always", "rprop"}
VARIANTS = {
    "plain": {},
    "decay": {"weight_decay": 0.01},
    "l2": {"weight_decay": L2Decay(0.01)},
    "l1": {"weight_decay": L1Decay(0.01)},
    "by value": {"grad_clip": lambda: nn.ClipGradByValue(0.05)},
    "by norm": {"grad_clip": lambda: nn.ClipGradByNorm(0.05)},
    "by global norm": {"grad_clip": lambda: nn.ClipGradByGlobalNorm(0.05)},
}


def weights(device: str, optimizer, options: dict, steps: int = 8) -> list[np.ndarray]:
    """The weights of a small network after some steps; a scheduler changes the rate on the way."""
    paddle.set_device(device)
    random = np.random.default_rng(0)
    network = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for parameter in network.parameters():
        parameter.set_value(random.standard_normal(parameter.shape).astype("float32"))
    options = {key: value() if key == "grad_clip" else value for key, value in options.items()}
    step = optimizer(network.parameters(), **options)
    for _ in range(steps):
        x = paddle.to_tensor(random.standard_normal((4, 5)).astype("float32"))
        (network(x) ** 2).mean().backward()
        step.step()
        step.clear_grad()
    return [parameter.numpy() for parameter in network.parameters()]


@pytest.mark.parametrize("name", CASES)
def test_eight_steps_give_the_weights_of_the_cpu(name):
    for variant, options in VARIANTS.items():
        if "weight_decay" in options and (name in NO_DECAY or ("adamw" in name and not isinstance(options["weight_decay"], float))):
            continue
        expected, got = (weights(device, CASES[name], options) for device in ("cpu", "mps"))
        for mine, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5, err_msg=f"{name}, {variant}")


SCHEDULERS = {
    "cosine": lambda: lr.CosineAnnealingDecay(0.1, 5),
    "warmup": lambda: lr.LinearWarmup(0.1, 3, 0.01, 0.1),
    "steps": lambda: lr.StepDecay(0.1, 2),
    "noam": lambda: lr.NoamDecay(16, 4, learning_rate=1.0),
    "one cycle": lambda: lr.OneCycleLR(0.1, 10),
}


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "adamw", "asgd"])
def test_schedulers_change_the_rate(name):
    makers = {
        "adagrad": lambda rate, p: optimizer.Adagrad(rate, parameters=p),
        "rmsprop": lambda rate, p: optimizer.RMSProp(rate, parameters=p),
        "adamw": lambda rate, p: optimizer.AdamW(rate, parameters=p),
        "asgd": lambda rate, p: optimizer.ASGD(rate, parameters=p),
    }
    for kind, scheduler in SCHEDULERS.items():

        def scheduled(p, scheduler=scheduler):
            rate = scheduler()
            optimizer = makers[name](rate, p)
            original = optimizer.step

            @functools.wraps(original)
            def step():
                original()
                rate.step()

            optimizer.step = step
            return optimizer

        expected, got = (weights(device, scheduled, {}) for device in ("cpu", "mps"))
        for mine, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5, err_msg=f"{name}, {kind}")


def test_the_rates_of_adamw_may_differ_by_parameter():
    """Paddle's CPU does not take `lr_ratio`: half of the rate for all is the same as half of the ratio."""

    def halved(p, **options):
        return optimizer.AdamW(0.2, parameters=p, lr_ratio=lambda parameter: 0.5, **options)

    for mine, theirs in zip(weights("mps", halved, {}), weights("cpu", CASES["adamw"], {}), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


def test_lbfgs_finds_the_same_minimum():
    def run(device):
        paddle.set_device(device)
        x = paddle.create_parameter([4], "float32", default_initializer=nn.initializer.Constant(2.0))
        step = optimizer.LBFGS(0.5, max_iter=8, line_search_fn="strong_wolfe", parameters=[x])

        def closure():
            step.clear_grad()
            loss = ((x - paddle.arange(4, dtype="float32")) ** 2).sum() + (x**4).sum() * 0.01
            loss.backward()
            return loss

        step.step(closure)
        return x.numpy()

    np.testing.assert_allclose(run("mps"), run("cpu"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("operator", ["adamw", "adam"])
def test_a_step_that_is_called_off_changes_nothing(operator, flag):
    def run(device):
        paddle.set_device(device)
        p, g, m, v = (paddle.to_tensor(np.full(3, value, "float32")) for value in (1.0, 0.5, 0.25, 0.125))
        rate, b1, b2 = (paddle.to_tensor([value]) for value in (0.1, 0.9, 0.999))
        skip = paddle.to_tensor([flag])
        tail = (0.9, 0.999, 1e-8) + ((1.0, 0.01, True) if operator == "adamw" else ()) + (False, 1000, False, False, False)
        getattr(paddle._C_ops, operator + "_")(p, g, rate, m, v, None, b1, b2, None, skip, *tail)
        return [tensor.numpy() for tensor in (p, m, v, b1, b2)]

    for mine, theirs in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        assert not flag or mine[0] in (1.0, 0.25, 0.125, np.float32(0.9), np.float32(0.999))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("asgd", "rprop", "adam, beta tensors", "adamw, amsgrad")])
def test_halves_with_a_master_copy_follow_float32(name, dtype):
    """With `multi_precision` the float32 copy takes the step, so a half's weights stay within its rounding of float32's."""

    def halves(p):
        optimizer = CASES[name](p)
        # What `paddle.amp.decorate` sets; not every constructor has the argument.
        optimizer._multi_precision = True
        return optimizer

    def run(device, cast):
        paddle.set_device(device)
        random = np.random.default_rng(1)
        values = [random.standard_normal(shape).astype("float32") for shape in ((5, 3), (3,))]
        parameters = [paddle.create_parameter(value.shape, "float32") for value in values]
        for parameter, value in zip(parameters, values, strict=True):
            parameter.set_value(value)
        if cast:
            parameters = [paddle.base.framework.EagerParamBase.from_tensor(p.astype(dtype)) for p in parameters]
        step = (halves if cast else CASES[name])(parameters)
        for number in range(4):
            for parameter in parameters:
                gradient = np.random.default_rng(number).standard_normal(parameter.shape).astype("float32")
                parameter.grad = paddle.to_tensor(gradient).astype(dtype).astype(parameter.dtype)
            step.step()
        return [parameter.astype("float32").numpy() for parameter in parameters]

    units = 2.0**-10 if dtype == "float16" else 2.0**-7
    for mine, theirs in zip(run("mps", True), run("cpu", False), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2 * units, atol=2 * units)
