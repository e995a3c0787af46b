"""Programs that Paddle's own executor runs, in today's form and the legacy one: what a shape or a bound is only the run knows."""

import pytest

PROGRAM = """
import os
import numpy as np
import paddle
import paddle.nn.functional as F

paddle.enable_static()

CASES = {
    "x[i]": (lambda x, i: x[i], {"i": -1}),
    "x[i] of 2": (lambda x, i: x[i], {"i": 2}),
    "x[:, i]": (lambda x, i: x[:, i], {"i": -1}),
    "x[i, 2:4]": (lambda x, i: x[i, 2:4], {"i": -1}),
    "x[i, i]": (lambda x, i: x[i, i], {"i": -1}),
    "x[a:b]": (lambda x, a, b: x[a:b], {"a": 3, "b": 3}),
    "x[a:b] of some": (lambda x, a, b: x[a:b], {"a": 1, "b": 3}),
    "concat": (lambda x, a: paddle.concat([x[:a], x]), {"a": 0}),
    "unsqueeze": (lambda x: paddle.unsqueeze(x, 1), {}),
    "squeeze": (lambda x: paddle.squeeze(paddle.unsqueeze(x, 1), 1), {}),
    "conv1d": (lambda x: F.conv1d(x.unsqueeze(0), paddle.ones([2, 4, 3])), {}),
    "pad": (lambda x: F.pad(x.unsqueeze(0), [1, 1]), {}),
    "eigh": (lambda x: paddle.linalg.eigh(x[:3, :3] + paddle.eye(3) * 9)[0], {}),
}

if os.environ["FLAGS_enable_pir_api"] == "0":  # today's form asks a step for its sign
    CASES |= {"x[::a]": (lambda x, a: x[::a], {"a": 2}), "x[a:, ::2]": (lambda x, a: x[a:, ::2], {"a": 1})}


def run(build, bounds, device):
    paddle.set_device(device)
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        x = paddle.static.data("x", [4, 6])
        x.stop_gradient = False
        y = build(x, **{name: paddle.static.data(name, [], "int64") for name in bounds})
        results = [y, *paddle.static.gradients([y], [x])]
        executor = paddle.static.Executor()
        executor.run(start)
        feed = {"x": np.sin(np.arange(24, dtype="float32")).reshape(4, 6)}
        feed |= {name: np.array(value, "int64") for name, value in bounds.items()}
        return executor.run(main, feed=feed, fetch_list=results)


for name, (build, bounds) in CASES.items():
    for got, expected in zip(run(build, bounds, "mps"), run(build, bounds, "cpu"), strict=True):
        assert got.shape == expected.shape, (name, got.shape, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=name)
print(len(CASES))
"""


@pytest.mark.parametrize(("form", "cases"), [("1", "13"), ("0", "15")], ids=["today's", "legacy"])
def test_as_on_paddle_s_cpu(program, form, cases):
    assert program(PROGRAM, FLAGS_enable_pir_api=form).split()[-1] == cases
