"""Static programs: to_static and the PIR executor call kernels through their second entry point, from threads of their own."""

import numpy as np
import paddle
import pytest


@pytest.fixture
def x():
    return np.random.rand(3, 4).astype("float32") + 0.5


def formula(a, b):
    return paddle.exp(a) * b - paddle.sqrt(a) / (paddle.abs(b) + 2.0)


def test_to_static_gives_what_eager_gives(x):
    a, b = paddle.to_tensor(x), paddle.to_tensor(x[::-1].copy())
    static = paddle.jit.to_static(formula, full_graph=True)
    np.testing.assert_allclose(static(a, b).numpy(), formula(a, b).numpy(), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("places", [[0, 2, 1, 0], [2, 0, 1], [[1], [0]], 2])
def test_what_is_gathered_along_a_tensor_s_axis_has_the_right_shape(axis, places):
    """In a program the axis is a tensor, which Paddle's rule of shapes does not know: of a square it may have as many elements as are right."""
    x, index = paddle.arange(9.0).reshape([3, 3]), paddle.to_tensor(places)

    def taken(x, index):
        return paddle.gather(x, index, axis=axis)

    found = paddle.jit.to_static(taken, full_graph=True)(x, index).numpy()
    np.testing.assert_array_equal(found, np.take(x.numpy(), np.array(places).squeeze(), axis))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_sizes_that_are_tensors_are_no_sizes_of_zero(mode):
    """Paddle's rule of shapes leaves them open."""
    image = np.random.default_rng(0).random((1, 2, 4, 5), "float32")

    def resized(x, size):
        return paddle.nn.functional.interpolate(x, size=size, mode=mode)

    found = []
    for device in "cpu", "mps":
        paddle.set_device(device)
        x, size = paddle.to_tensor(image), paddle.to_tensor([6, 7])
        static = paddle.jit.to_static(resized, full_graph=True)
        found += [resized(x, size), resized(x, [size[0], size[1]]), static(x, size)]
    for one in found[1:]:
        np.testing.assert_allclose(one.numpy(), found[0].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pir", [True, False])
def test_sizes_and_scales_that_are_fed_are_read(program, pir):
    output = program(
        """
        import numpy as np, paddle
        paddle.enable_static()
        for mode in "nearest", "bilinear", "bicubic":
            for options in lambda s: {"scale_factor": s.astype("float32")}, lambda s: {"size": [s[0] * 4, s[0] * 4]}:
                with paddle.static.program_guard(paddle.static.Program()):
                    x, s = paddle.static.data("x", [1, 2, 4, 4]), paddle.static.data("s", [1], "int32")
                    y = paddle.nn.functional.interpolate(x, mode=mode, **options(s))
                    executor = paddle.static.Executor(paddle.CustomPlace("mps", 0))
                    feed = {"x": np.ones((1, 2, 4, 4), "float32"), "s": np.array([2], "int32")}
                    np.testing.assert_allclose(executor.run(feed=feed, fetch_list=[y])[0], np.ones((1, 2, 8, 8)), rtol=1e-6)
        print("all right")
        """,
        FLAGS_enable_pir_api="1" if pir else "0",
    )
    assert output.strip() == "all right"


@pytest.mark.parametrize("pir", [True, False])
def test_paddle_s_seed_is_that_of_programs_too(program, pir):
    """While a program is built, Paddle itself seeds the CPU's generator alone."""
    output = program(
        """
        import numpy as np, paddle
        paddle.enable_static()
        main = paddle.static.Program()
        with paddle.static.program_guard(main):
            drawn = [paddle.randn([3]), paddle.uniform([3]), paddle.randint(0, 99, [3]), paddle.randperm(9)]
        executor = paddle.static.Executor(paddle.CustomPlace("mps", 0))
        runs = []
        for seed in (100, 100, 7):
            paddle.seed(seed)
            runs.append(np.concatenate([np.asarray(x, "float64") for x in executor.run(main, fetch_list=drawn)]))
        assert (runs[0] == runs[1]).all() and (runs[0] != runs[2]).any()
        print("all right")
        """,
        FLAGS_enable_pir_api="1" if pir else "0",
    )
    assert output.strip() == "all right"


@pytest.mark.parametrize("pir", [True, False])
def test_the_executor_runs_a_program(program, pir):
    output = program(
        """
        import numpy as np, paddle
        paddle.enable_static()
        main, start = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, start):
            x = paddle.static.data("x", [3, 4], "float32")
            y = paddle.full([3, 4], 2.5, dtype="float32")
            z = paddle.scale(x * x + y, scale=2.0, bias=1.0)
            w = paddle.cast(z, "int32")
        executor = paddle.static.Executor(paddle.CustomPlace("mps", 0))
        executor.run(start)
        array = np.random.rand(3, 4).astype("float32")
        for _ in range(3):
            got, integers = executor.run(main, feed={"x": array}, fetch_list=[z, w])
        np.testing.assert_allclose(got, (array * array + 2.5) * 2 + 1, rtol=1e-5)
        assert (integers == got.astype("int32")).all()
        print("all right")
        """,
        FLAGS_enable_pir_api="1" if pir else "0",
    )
    assert output.strip() == "all right"


def test_numbers_given_as_tensors_are_read(program):
    """PIR hands such attributes over as tensors."""
    output = program(
        """
        import numpy as np, paddle
        paddle.enable_static()
        main, start = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, start):
            size = paddle.static.data("size", [1], "int64")
            value = paddle.static.data("value", [], "float32")
            y = paddle.full(size, value, dtype="float32")
            z = paddle.scale(y, scale=value, bias=0.5)
        executor = paddle.static.Executor(paddle.CustomPlace("mps", 0))
        feed = {"size": np.array([5], "int64"), "value": np.array(3.0, "float32")}
        y, z = executor.run(main, feed=feed, fetch_list=[y, z])
        assert y.tolist() == [3.0] * 5 and z.tolist() == [9.5] * 5, (y, z)
        print("all right")
        """
    )
    assert output.strip() == "all right"


def test_an_error_in_a_program_is_an_exception(program):
    output = program(
        """
        import numpy as np, paddle
        paddle.enable_static()
        main = paddle.static.Program()
        with paddle.static.program_guard(main):
            size = paddle.static.data("size", [2], "int64")
            y = paddle.full(size, 1.0, dtype="float32")
        executor = paddle.static.Executor(paddle.CustomPlace("mps", 0))
        try:
            executor.run(main, feed={"size": np.array([2, -7], "int64")}, fetch_list=[y])
        except Exception as error:
            print(type(error).__name__, error)
        """
    )
    assert "shape" in output and "-7" in output
