"""The driver: Paddle's tensors, settings, memory, timing."""

import pathlib

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def test_tensors_of_paddle_s_device_are_used_where_they_lie():
    paddle = pytest.importorskip("paddle")
    paddle.mps.set_device(0)
    x = paddle.arange(1000, dtype="float32")
    y = paddle.zeros_like(x)
    double_kernel[(2,)](x, y, 1000, BLOCK=512)
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(1000, dtype="float32"))


def test_settings_of_the_next_launches():
    driver = triton.runtime.driver.MPSDriver()
    before = dict(type(driver).kernel_config)
    x, y = np.ones(8, "float32"), np.zeros(8, "float32")
    try:
        driver.set_kernel_config(num_warps=8, num_stages=2, max_threads=512, shared_memory=16384)
        kernel = double_kernel[(1,)](array(x), array(y), 8, BLOCK=8)
        assert (kernel.metadata.num_warps, kernel.metadata.max_threads, kernel.metadata.shared_memory) == (8, 512, 16384)
        driver.set_kernel_config(num_warps=2)
        assert double_kernel[(1,)](array(x), array(y), 8, BLOCK=8).metadata.num_warps == 2
    finally:
        type(driver).kernel_config = before
    assert (y == 2).all()


@pytest.mark.parametrize("warps", [0, 3, 64])
def test_warps_are_a_power_of_two(warps):
    x, y = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    with pytest.raises(AssertionError, match=f"num_warps must be a power of 2 up to 32, not {warps}"):
        double_kernel[(1,)](array(x), array(y), 8, BLOCK=8, num_warps=warps)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_threads": 4096}, "4096 is outside 32 to 1024"),
        ({"shared_memory": 1000.5}, "shared_memory=1000.5 is outside"),
        ({"warps": 4}, "'warps' is no setting"),
    ],
)
def test_impossible_settings_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        triton.runtime.driver.MPSDriver().set_kernel_config(**settings)


def test_impossible_limits_of_a_launch_are_refused():
    x, y = np.ones(8, "float32"), np.zeros(8, "float32")
    with pytest.raises(ValueError, match="max_threads=7 is outside 32 to 1024"):
        double_kernel[(1,)](array(x), array(y), 8, BLOCK=8, max_threads=7)


def test_memory_is_counted():
    pool = triton.runtime.driver.MPSDriver().memory_pool()
    assert 0 <= pool["current_allocated"] <= pool["max_allocated"]


def test_kernels_are_timed_and_tuned_without_torch():
    x, y = np.ones(4096, "float32"), np.zeros(4096, "float32")
    milliseconds = triton.testing.do_bench(lambda: double_kernel[(8,)](array(x), array(y), 4096, BLOCK=512), warmup=1, rep=5)
    assert 0 < milliseconds < 1000
    configurations = [triton.Config({"BLOCK": size}) for size in (256, 1024)]
    tuned = triton.autotune(configurations, key=["n"])(double_kernel)
    tuned[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](array(x), array(y), 4096)
    assert (y == 2).all()


def test_events_measure_what_lies_between_them():
    device = triton.runtime.driver.MPSDriver().get_device_interface()
    begin, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    assert not begin.query()
    with pytest.raises(RuntimeError, match="elapsed time needs both events recorded: the later event was not"):
        begin.elapsed_time(end)
    begin.record()
    end.record()
    assert 0 <= begin.elapsed_time(end) < 1000 and end.query()


def test_benchmarks_of_cuda_graphs_are_refused_by_name():
    assert triton.runtime.driver.active.get_current_target().backend == "mps"
    with pytest.raises(NotImplementedError, match="mps: do_bench_cudagraph: .*do_bench measures them"):
        triton.testing.do_bench_cudagraph(lambda: None)


def test_hooks_are_called_around_a_launch():
    x, seen = np.ones(8, "float32"), []
    hooks = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    enter, leave = (lambda metadata: seen.append(("enter", metadata.get()["name"])), lambda metadata: seen.append(("leave", x[0])))
    hooks[0].add(enter)
    hooks[1].add(leave)
    try:
        double_kernel[(1,)](array(x), array(x), 8, BLOCK=8)
    finally:
        hooks[0].remove(enter)
        hooks[1].remove(leave)
    assert seen == [("enter", "double_kernel"), ("leave", 2.0)]


ON_A_GPU = '''
import numpy as np
import triton
import triton.language as tl
from openmps.triton import array

@triton.jit
def sums_kernel(x_ptr, sums_ptr, SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * SIZE + tl.arange(0, SIZE))
    tl.store(sums_ptr + tl.program_id(0), tl.sum(x, 0))

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n), mask=at < n)

x, sums = np.arange(4096, dtype="float32").reshape(4, 1024), np.zeros(4, "float32")
driver = triton.runtime.driver.active
'''


def test_arrays_of_the_process_are_used_by_a_gpu_where_they_lie(script):
    output = script(
        ON_A_GPU
        + '''
sums_kernel[(4,)](array(x), array(sums), 1024)
np.testing.assert_array_equal(sums, x.sum(1))
# Both are parts of one array, and the second lies on the first one's pages.
whole = np.zeros(1024 + 5, "float32")
whole[:1024] = 1
sums_kernel[(1,)](array(whole[:1024]), array(whole[1025:]), 1024)
print(whole[1023:].tolist(), driver.get_current_target().arch)
add_kernel[(1,)](array(x[:0]), array(x[:0]), array(np.zeros(0, "float32")), 0, BLOCK=16)
print(0 < triton.testing.do_bench(lambda: sums_kernel[(4,)](array(x), array(sums), 1024), warmup=1, rep=5) < 10_000)
''',
        OPENMPS_DEVICE="metal-emulated",
    )
    assert output.splitlines() == ["[1.0, 0.0, 1024.0, 0.0, 0.0, 0.0] metal", "True"]


def test_limits_hold_a_kernel_on_a_gpu(script):
    output = script(
        ON_A_GPU
        + '''
driver.set_kernel_config(shared_memory=0)
try:
    sums_kernel[(4,)](array(x), array(sums), 1024)
except triton.CompilationError as error:
    print(error)
except NotImplementedError as error:
    print(error)
driver.set_kernel_config(max_threads=32)  # one simdgroup needs none
sums_kernel[(4,)](array(x), array(sums), 1024)
print((sums == x.sum(1)).all())
''',
        OPENMPS_DEVICE="metal-emulated",
    )
    first, last = output.splitlines()
    assert "bytes of threadgroup memory" in first and last == "True", output


def test_a_wrong_number_is_named():
    x = np.ones(8, "float32")
    kernel = double_kernel[(1,)](array(x), array(x.copy()), 8, BLOCK=8)
    from openmps.triton.launch import Utils

    native = Utils.load_binary("double_kernel", kernel.asm["ttirtext"], 0, 0)[0]
    assert native.name == "double_kernel"
    with pytest.raises(TypeError, match="2 arguments, expected 3"):
        native.launch((1, 1, 1), [x.ctypes.data, 8])
    with pytest.raises(TypeError, match="parameter n: "):
        native.launch((1, 1, 1), [x.ctypes.data, x.ctypes.data, "eight"])


def test_looking_for_triton_before_its_import(program):
    output = program(
        """
        import importlib, importlib.util
        assert importlib.util.find_spec("triton").origin.endswith("__init__.py")
        import triton
        print(triton.runtime.driver.MPSDriver.__name__)
        importlib.reload(triton)
        print(triton.runtime.driver.MPSDriver.__name__)
        """
    )
    assert output.split() == ["MPSDriver", "MPSDriver"]


def test_a_device_that_is_not_there(program):
    output = program(
        """
        import triton
        driver = triton.runtime.driver.MPSDriver()
        try:
            driver.utils.get_device_properties(0)
        except RuntimeError as error:
            print(error)
        """,
        OPENMPS_DEVICE="gpu",
    )
    assert output.startswith('no device: OPENMPS_DEVICE="gpu" is not allowed: host, cuda, metal, metal-emulated'), output


@pytest.mark.skipif(not pathlib.Path(triton.__file__).with_name("_C").joinpath("libtriton.so").exists(), reason="reading a text needs Triton's own library")
def test_a_kernel_in_a_file_of_ttir_is_compiled(tmp_path):
    x = np.arange(8, dtype="float32")
    file = tmp_path / "double.ttir"
    file.write_text(str(double_kernel[(1,)](array(x), array(np.zeros_like(x)), 8, BLOCK=8).asm["ttir"]))
    kernel, out = triton.compile(str(file)), np.zeros_like(x)
    kernel[(1, 1, 1)](array(x), array(out), 8)
    np.testing.assert_array_equal(out, 2 * x)
