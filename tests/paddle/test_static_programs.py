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
    "reshape by its shape": (lambda x: paddle.reshape(x, paddle.shape(x)), {}),
    "reshape by a size": (lambda x: paddle.reshape(x, [paddle.shape(x)[1], -1, 2]), {}),
    "a size as a number": (lambda x: x + paddle.shape(x)[0].astype("float32") * paddle.ones([6]), {}),
    "arange of a size": (lambda x: x * paddle.arange(paddle.shape(x)[1]).astype("float32"), {}),
    "pad": (lambda x: F.pad(x.unsqueeze(0), [1, 1]), {}),
    "eigh": (lambda x: paddle.linalg.eigh(x[:3, :3] + paddle.eye(3) * 9)[0], {}),
}


def difference_twice(x):
    a, b = x * 2.0, x * 3.0
    (first,) = paddle.static.gradients([a - b], [a], [x])
    return (first * first).sum()


if os.environ["FLAGS_enable_pir_api"] == "0":  # today's form asks a step for its sign
    CASES |= {"x[::a]": (lambda x, a: x[::a], {"a": 2}), "x[a:, ::2]": (lambda x, a: x[a:, ::2], {"a": 1})}
else:  # the legacy form has no gradient by what a gradient began with
    CASES |= {"subtract, twice": (difference_twice, {})}


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


@pytest.mark.parametrize(("form", "cases"), [("1", "18"), ("0", "19")], ids=["today's", "legacy"])
def test_as_on_paddle_s_cpu(program, form, cases):
    assert program(PROGRAM, FLAGS_enable_pir_api=form).split()[-1] == cases


FED = """
import numpy as np
import paddle

paddle.enable_static()
for device in "cpu", "mps":
    paddle.set_device(device)
    with paddle.static.program_guard(paddle.static.Program()):
        x = paddle.static.data("x", [-1], "float32")
        (got,) = paddle.static.Executor().run(feed={"x": np.array([1 + 2j], "complex64")}, fetch_list=[x.astype("complex64")])
        assert got.tolist() == [1 + 2j], (device, got)
print("fed")
"""


def test_complex_numbers_fed_where_real_ones_are_declared(program):
    assert program(FED).split()[-1] == "fed"


SAVED = """
import os
import tempfile

import numpy as np
import paddle

paddle.enable_static()
main, start = paddle.static.Program(), paddle.static.Program()
with tempfile.TemporaryDirectory() as folder, paddle.static.program_guard(main, start):
    paddle.static.nn.fc(paddle.static.data("x", [2, 3]), 4)
    paddle.static.Executor().run(start)
    state = main.state_dict()
    expected = {name: np.array(tensor) for name, tensor in state.items()}
    one, several, binary = (os.path.join(folder, name) for name in ("one", "several", "binary"))
    first = next(iter(state))
    paddle.save(state[first], one)
    paddle.save(state[first], binary, use_binary_format=True)
    paddle.save({"model": state, "epoch": 3}, several)
    for name in one, binary:
        np.testing.assert_array_equal(paddle.load(name, return_numpy=True), expected[first])
    loaded = paddle.load(several, return_numpy=True)
    assert loaded["epoch"] == 3 and loaded["model"].keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(loaded["model"][name], array)
print(len(expected))
"""


def test_tensors_of_programs_are_saved_by_themselves_and_in_dictionaries(program):
    assert program(SAVED).split()[-1] == "2"


CURRENT = """
import paddle

paddle.set_device("cpu")
paddle.enable_static()
print(paddle.get_device())
paddle.set_device("mps")
paddle.disable_static(paddle.CPUPlace())
print(paddle.get_device())
paddle.enable_static()
print(paddle.get_device())
"""


def test_the_current_device_is_that_which_was_chosen(program):
    assert program(CURRENT).split() == ["cpu", "cpu", "mps:0"]
