"""`paddle.mps.fallback_report()`: what Paddle computed on the CPU for want of a kernel. Fallback is on here, against the rule of all other tests."""

import os
import threading

import numpy as np
import paddle
import pytest

MISSING = "im2sequence"  # docs/paddle-kernels.md has others, should this one be written one day
MISSING_TYPE = ("sin", "complex64")


@pytest.fixture(autouse=True)
def fallback():
    assert MISSING not in paddle.mps.kernels() and "sin" in paddle.mps.kernels(), "another operator must stand for those that are missing"
    paddle.set_flags({"FLAGS_enable_api_kernel_fallback": True})
    yield
    paddle.set_flags({"FLAGS_enable_api_kernel_fallback": False})
    paddle.mps.record_fallbacks(False)


def _missing(x):
    return paddle._C_ops.im2sequence(x, None, [2, 2], [1, 1], [0, 0, 0, 0], [1, 1])


def _image():
    return paddle.to_tensor(np.arange(16, dtype=np.float32).reshape([1, 1, 4, 4]), stop_gradient=False)


def _complex():
    return paddle.to_tensor(np.full([4], 1 + 1j, np.complex64))


def test_counts_values_and_gradients_by_operator_and_type():
    x = _image()
    with paddle.mps.record_fallbacks():
        for _ in range(3):
            y = _missing(x)
        (y * y).sum().backward()
        paddle.sin(_complex())
        report = paddle.mps.fallback_report()
    assert report == [(MISSING, "float32", 3, 0), (f"{MISSING}_grad", "float32", 1, 0), (*MISSING_TYPE, 1, 0)]
    assert (report[0].operator, report[0].dtype, report[0].calls, report[0].in_programs) == report[0]
    heading, *lines = str(report).splitlines()
    assert heading.split() == ["operator", "dtype", "calls", "in", "programs"]
    assert [line.split() for line in lines] == [[str(cell) for cell in row] for row in report]


def test_what_has_a_kernel_is_not_counted():
    x = _image()
    with paddle.mps.record_fallbacks():
        paddle.nn.functional.softmax(x @ x).sum().backward()
        assert paddle.mps.fallback_report() == []
    assert str(paddle.mps.fallback_report()) == "no operator was computed on the CPU for want of a kernel"


def test_tensors_of_the_cpu_are_not_counted():
    with paddle.mps.record_fallbacks():
        paddle.sin(_complex().cpu())
        assert paddle.mps.fallback_report() == []


def test_counting_begins_anew_and_ends():
    x = _image()
    with paddle.mps.record_fallbacks():
        _missing(x)
        with paddle.mps.record_fallbacks():  # the same records
            _missing(x)
        with paddle.mps.record_fallbacks(False):
            _missing(x)
        _missing(x)
        assert paddle.mps.fallback_report() == [(MISSING, "float32", 1, 0)]
    _missing(x)
    assert paddle.mps.fallback_report() == [(MISSING, "float32", 1, 0)]
    paddle.mps.record_fallbacks()
    assert paddle.mps.fallback_report() == []
    paddle.mps.record_fallbacks(False)


def test_threads_are_counted_while_others_ask():
    x = _complex()
    with paddle.mps.record_fallbacks():
        threads = [threading.Thread(target=lambda: [paddle.sin(x) for _ in range(100)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            paddle.mps.fallback_report()
        assert paddle.mps.fallback_report() == [(*MISSING_TYPE, 400, 0)]


def test_static_programs_are_counted_when_they_are_compiled(program):
    # A process of its own: what Paddle logs of programs is settled when it compiles the first one.
    output = program("""
        import numpy as np
        import paddle
        paddle.enable_static()
        with paddle.mps.record_fallbacks():
            for dtype in ("complex64", "float32"):
                main = paddle.static.Program()
                with paddle.static.program_guard(main):
                    x = paddle.static.data("x", [4, 4], dtype)
                    y = paddle.sin(x) + paddle.sin(x + x)
                    z = y if dtype == "complex64" else paddle.nn.functional.softmax(y @ y)
                    executor = paddle.static.Executor(paddle.CustomPlace("mps", 0))
                    for _ in range(3):
                        executor.run(main, feed={"x": np.ones([4, 4], dtype)}, fetch_list=[z])
            for row in paddle.mps.fallback_report():
                print(*row)
    """)  # fmt: skip
    rows = [line.split() for line in output.splitlines()]
    # The line of a call is the kernel's, and an addition of complex numbers may have none either.
    assert ["sin", "complex64", "0", "2"] in rows and all(row[1] == "complex64" for row in rows), output


def test_without_records_a_report_is_an_error(program):
    assert "paddle.mps.record_fallbacks()" in program("""
        import paddle
        try:
            paddle.mps.fallback_report()
        except RuntimeError as error:
            print(error)
    """)  # fmt: skip


PROGRAM = """
    import os, sys
    import paddle
    x = paddle.ones([4], "complex64") if sys.argv[1] == "complex64" else paddle.ones([4])
    for _ in range(12):
        paddle.sin(x)
    if sys.argv[2:] == ["fork"]:
        if (child := os.fork()) == 0:
            paddle.sin(x)
            sys.exit(0)
        os.waitpid(child, 0)
"""


def _last_line(failing_program, *arguments, **environment) -> str:
    done = failing_program(PROGRAM, *arguments, FLAGS_enable_api_kernel_fallback="1", **environment)
    assert done.returncode == 0, done.stderr
    assert "missing mps kernel" not in done.stderr, "Paddle's own log is not shown"
    lines = [line for line in done.stderr.splitlines() if line.startswith("openmps: ")]
    assert len(lines) <= 1
    return "".join(lines)


@pytest.mark.parametrize(
    "log", [pytest.param("info", id="info"), pytest.param("openmps::fallbacks=debug", id="target"), pytest.param("warn,openmps=info", id="targets")]
)
def test_the_line_at_exit(failing_program, log):
    assert _last_line(failing_program, "complex64", OPENMPS_LOG=log) == "openmps: 1 operator was computed on the CPU for want of a kernel: sin (12 calls)"


def test_the_line_at_exit_where_nothing_fell_back(failing_program):
    assert _last_line(failing_program, "float32", OPENMPS_LOG="info") == "openmps: no operator was computed on the CPU for want of a kernel"


@pytest.mark.parametrize("log", ["", "off", "warn", "info,openmps=off"])
def test_no_line_where_nobody_asks(failing_program, log):
    assert _last_line(failing_program, "complex64", OPENMPS_LOG=log) == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_neither_counts_nor_speaks(failing_program):
    assert _last_line(failing_program, "complex64", "fork", OPENMPS_LOG="info").endswith(": sin (12 calls)")


def test_paddles_own_log_is_shown_as_before(failing_program):
    done = failing_program(
        """
        import paddle
        with paddle.mps.record_fallbacks():
            paddle.sin(paddle.ones([4], "complex64"))
        """,
        FLAGS_enable_api_kernel_fallback="1",
        GLOG_minloglevel="0",
    )
    assert done.stderr.count("missing mps kernel: sin") == 1, "what Paddle logs is shown where everything of its log is"


def test_a_log_in_files_is_left_alone():
    # As after GLOG_logtostderr=0. (A GLOG_log_dir of 16 characters and more ends Paddle 3.3.1 itself: two copies of glog free it.)
    from openmps.paddle.fallbacks import _Log

    log = _Log()
    log.set({"logtostderr": False})
    try:
        with pytest.raises(RuntimeError, match="GLOG_logtostderr"):
            paddle.mps.record_fallbacks()
    finally:
        log.set(log.found)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_values_of_a_sparse_tensor_are_cast(dtype):
    """To the type that they have Paddle's CPU kernel copies them from the device, by a stream that is none."""
    x = paddle.sparse.sparse_coo_tensor([[0, 1, 2], [1, 2, 0]], [1.5, 2.0, 3.0], [3, 3])
    dense = paddle.sparse.cast(x, value_dtype=dtype).to_dense()
    assert dense.numpy().tolist() == np.array([[0, 1.5, 0], [0, 0, 2], [3, 0, 0]], dtype).tolist()


def test_gradients_go_through_a_sparse_tensor_that_is_made_of_results_on_the_cpu():
    x = paddle.to_tensor([[0.0, 1.0], [2.0, 0.0]], stop_gradient=False)
    sparse = x.to_sparse_coo(2)
    made = paddle.sparse.sparse_coo_tensor(sparse.indices(), sparse.values() * 3, sparse.shape, stop_gradient=False)
    made.to_dense().sum().backward()
    assert x.grad.numpy().tolist() == [[0, 3], [3, 0]]
    # What is not differentiated lies where Paddle says.
    assert paddle.sparse.sparse_coo_tensor(sparse.indices(), sparse.values().detach(), sparse.shape).place.is_custom_place()


@pytest.mark.filterwarnings("ignore:When training")
@pytest.mark.parametrize("training", [True, False])
def test_the_statistics_of_a_sparse_batch_norm_are_those_of_the_cpu(training):
    """They are written where they lie, which the results of operators that fall back do not."""

    def run(device):
        paddle.set_device(device)
        paddle.full([64], 7.0).numpy()  # memory with something in it
        norm = paddle.sparse.nn.BatchNorm(2)
        norm._mean.set_value(np.asarray([0.5, -1], "float32"))
        norm._variance.set_value(np.asarray([2, 0.25], "float32"))
        norm.train() if training else norm.eval()
        points = [[0, 0, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]
        out = norm(paddle.sparse.sparse_coo_tensor(points, [[1.0, 2], [3, 5], [-2, 4]], [1, 2, 2, 2, 2]))
        return out.values().numpy(), norm._mean.numpy(), norm._variance.numpy(), norm._mean.place

    *found, place = run("mps")
    for ours, theirs in zip(found, run("cpu")[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert place.is_custom_place()
