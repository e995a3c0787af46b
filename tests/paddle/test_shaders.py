"""``paddle.mps.compile_shader``: kernels in Metal's language, executed on the CPU by the emulated device, as ``torch.mps`` runs them on Apple's GPUs."""

from __future__ import annotations

import paddle
import pytest

EMULATED = {"OPENMPS_DEVICE": "metal-emulated"}

RUNS = """
import numpy as np
import paddle

library = paddle.mps.compile_shader('''
    #include <metal_stdlib>
    using namespace metal;
    kernel void full(device float* out, constant float& value, uint i [[thread_position_in_grid]]) { out[i] = value; }
    kernel void affine(device const half* x, device half* y, constant long& count, constant half& by, constant int& plus,
                       uint i [[thread_position_in_grid]]) { if (i < count) y[i] = x[i] * by + half(plus); }
    kernel void places(device int* out, constant int4& of, uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                       uint3 own [[threads_per_threadgroup]]) {
        out[(at.z * size.y + at.y) * size.x + at.x] = at.x * of.x + at.y * of.y + at.z * of.z + own.x;
    }
    kernel void sums(device const float* x, device float* y, uint i [[thread_position_in_threadgroup]],
                     uint group [[threadgroup_position_in_grid]]) {
        threadgroup float own[64];
        own[i] = x[group * 64 + i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i == 0) { float sum = 0; for (uint j = 0; j < 64; j++) sum += own[j]; y[group] = sum; }
    }
    kernel void numbers(device float* out, constant bool& flag, constant uchar& small, constant ulong& large, constant bfloat& b) {
        out[0] = flag; out[1] = small; out[2] = large == 0xfffffffffffffffful; out[3] = b;
    }
    kernel void vectors(device float* out, constant float2* pairs, constant packed_float3& three) {
        out[0] = pairs[1].x - pairs[0].y; out[1] = three.z;
    }
''')
"""


def test_the_kernels_of_a_text_run_on_tensors(program):
    program(
        RUNS
        + """
assert [name for name in dir(library) if not name.startswith("_")] == ["affine", "full", "numbers", "places", "sums", "vectors"]
x = paddle.zeros([1025])
library.full(x, 3.25)
assert (x.numpy() == 3.25).all()

# A number's type is its own, or is said.
x = paddle.arange(10, dtype="float32").astype("float16")
y = paddle.zeros([10], "float16")
library.affine(x, y, 9, np.float16(0.5), -2, arg_casts={4: "int32"})
assert y.numpy().tolist() == [*(i / 2 - 2 for i in range(9)), 0]
library.affine(x, y, paddle.to_tensor(10, place=paddle.CPUPlace()), 2, 1, threads=10, group_size=[4], arg_casts={3: "fp16", 4: "int32"})
assert y.numpy().tolist() == [2 * i + 1 for i in range(10)]
out = paddle.zeros([4])
library.numbers(out, True, np.uint8(200), np.uint64(2**64 - 1), paddle.to_tensor(1.5, "bfloat16", place=paddle.CPUPlace()), threads=1)
assert out.numpy().tolist() == [1, 200, 1, 1.5]

# Several numbers are a vector or an array.
library.vectors(out, [1.0, 2.0, 5.0, 0.0], (7.0, 8.0, 9.0), threads=(1,))
assert out.numpy()[:2].tolist() == [3, 9]

# Threadgroups at the edges are cut off.
out = paddle.zeros([3, 5, 7], "int32")
library.places(out, [1, 10, 100, 0], threads=(7, 5, 3), group_size=(4, 2, 1), arg_casts="int32")
at = np.indices([3, 5, 7])
assert (out.numpy() == at[2] + 10 * at[1] + 100 * at[0] + np.where(at[2] < 4, 4, 3)).all()

# In the order of the stream: before and after it compute operators; a view's memory is where it lies.
x = paddle.rand([4, 128])
total = paddle.zeros([4])
library.sums((x * 2)[2:], total, threads=256, group_size=64)
total = total + 1
expected = 2 * x.numpy()[2:].reshape(4, 64).sum(1) + 1
np.testing.assert_allclose(total.numpy(), expected, rtol=1e-6)
library.full(x[1:2], 0.0)
assert (x.numpy()[1] == 0).all() and (x.numpy()[0] != 0).any()
library.full(x, 1.0, threads=0)
assert (x.numpy()[0] != 1).any()

kernel = library.sums
assert kernel is library.sums and repr(kernel) == "<paddle.mps.ShaderKernel sums>"
assert (kernel.max_threads_per_threadgroup, kernel.thread_execution_width, kernel.static_thread_group_memory_length) == (1024, 32, 256)
""",
        **EMULATED,
    )


def test_what_is_wrong_is_named(program):
    program(
        RUNS
        + """
def refused(kind, text, work):
    try:
        work()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing refused: {text}")

x = paddle.zeros([8])
on_cpu = paddle.zeros([8], "float32").cpu()
refused(AttributeError, "no kernel 'fill'; it has full, affine", lambda: library.fill)
refused(TypeError, "a text, not bytes", lambda: paddle.mps.compile_shader(b"kernel"))
refused(SyntaxError, "error", lambda: paddle.mps.compile_shader("kernel void f(device float* x) { x[0] = nothing; }"))
refused(ValueError, "full: argument 0 lies on Place(cpu), expected mps:0", lambda: library.full(on_cpu, 1.0))
refused(TypeError, "full: argument 1 is of type str", lambda: library.full(x, "1"))
refused(ValueError, "arg_casts is 'half'", lambda: library.full(x, 1.0, arg_casts="half"))
refused(ValueError, "argument 1 is 300, which uint8 does not hold", lambda: library.numbers(x, 300, 1, 1, 1, arg_casts="uint8"))
refused(ValueError, "threads is None", lambda: library.full(1.0, 1.0))
refused(ValueError, "threads is -1", lambda: library.full(x, 1.0, threads=-1))
refused(ValueError, "threads is (1, 1, 1, 1)", lambda: library.full(x, 1.0, threads=(1, 1, 1, 1)))
refused(ValueError, "threads have 2 axes, group_size has 1", lambda: library.full(x, 1.0, threads=(8, 1), group_size=4))
refused(ValueError, "group_size is (0,)", lambda: library.full(x, 1.0, group_size=0))
refused(RuntimeError, "threads along x is 2048", lambda: library.full(x, 1.0, threads=4096, group_size=2048))
""",
        **EMULATED,
    )


def test_other_devices_refuse_a_shader(program):
    program(
        """
import paddle
import pytest

with pytest.raises(RuntimeError, match="OPENMPS_DEVICE=metal-emulated"):
    paddle.mps.compile_shader("kernel void nothing() {}")
""",
        OPENMPS_DEVICE="host",
    )


def test_a_capture_needs_a_gpu_of_apple_s(tmp_path):
    assert not paddle.mps.profiler.is_metal_capture_enabled() and not paddle.mps.profiler.is_capturing_metal()
    with pytest.raises(ValueError, match="gputrace"), paddle.mps.profiler.metal_capture(tmp_path / "trace"):
        pass
    with pytest.raises(RuntimeError, match="capture"), paddle.mps.profiler.metal_capture(tmp_path / "x.gputrace"):
        pass
    assert not paddle.mps.profiler.is_capturing_metal()
