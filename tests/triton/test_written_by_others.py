"""What kernels that others wrote use: constant pointers, tuples, narrow offsets, precisions by name, CUDA's libdevice."""

import numpy as np
import pytest
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.language.extra.cuda import gdc, libdevice

import versions
from openmps.triton import array

#: Those that this version of Triton knows; "bf16x3" and "bf16x6" are newer than the others.
PRECISIONS = [
    pytest.param(name, marks=versions.needs(hasattr(ir.INPUT_PRECISION, name.upper().replace("X", "x")), f"precision {name}"))
    for name in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
]


@triton.jit
def constant_kernel(x_ptr: tl.const, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + 1)


@triton.jit
def tuple_kernel(pair, sizes, SCALE: tl.constexpr):
    at = tl.arange(0, 4)
    tl.store(pair[1] + at, tl.load(pair[0] + at) * SCALE + sizes[0] + sizes[1][0], mask=at < sizes[1][1])


@triton.jit
def narrow_kernel(x_ptr, at: tl.int8, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr + at))


@triton.jit
def product_kernel(x_ptr, out_ptr, PRECISION: tl.constexpr, OUT: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.dot(x, x, input_precision=PRECISION, out_dtype=OUT))


@triton.jit
def libdevice_kernel(x_ptr, out_ptr, whole_ptr):
    at = tl.arange(0, 16)
    x = tl.load(x_ptr + at)
    y = libdevice.pow(x, 2) + libdevice.pow(x, x) + libdevice.rsqrt(x) + libdevice.tanh(x) + libdevice.fast_expf(x)
    tl.store(out_ptr + at, y + libdevice.fma(x, x, x) + libdevice.fast_dividef(x, 3.0) + libdevice.saturatef(x) + libdevice.div_rn(x, x))
    tl.store(whole_ptr + at, libdevice.llrint(x * 10))


def test_constant_pointers():
    x, out = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    constant_kernel[(1,)](array(x), array(out), 8)
    np.testing.assert_array_equal(out, x + 1)


def test_tuples_hold_tensors_numbers_and_constants():
    x, out = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    # The 1 is a constant of the kernel, the 3 is none.
    tuple_kernel[(1,)]((array(x), array(out)), (2.5, (1, 3)), 2)
    np.testing.assert_array_equal(out, [3.5, 5.5, 7.5, 0])


@pytest.mark.parametrize("at", [1, 5, 0])
def test_narrow_offsets(at):
    x, out = np.arange(8, dtype="float32"), np.zeros(1, "float32")
    narrow_kernel[(1,)](array(x), at, array(out))
    assert out[0] == at


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precisions_are_float32(precision):
    x = np.random.standard_normal((16, 16)).astype("float32")
    out = np.zeros_like(x)
    product_kernel[(1,)](array(x), array(out), precision, tl.float32)
    np.testing.assert_allclose(out, x.astype("float64") @ x, atol=2e-5)


def test_half_sums_are_rounded_once():
    x = np.random.standard_normal((16, 16)).astype("float16")
    out = np.zeros_like(x)
    product_kernel[(1,)](array(x), array(out), "ieee", tl.float16)
    exact = x.astype("float64") @ x.astype("float64")
    np.testing.assert_allclose(out, exact, rtol=2**-10, atol=1e-5)


def test_libdevice_by_cudas_name():
    x = np.linspace(0.1, 3, 16, dtype="float32")
    out, whole = np.zeros_like(x), np.zeros(16, "int64")
    libdevice_kernel[(1,)](array(x), array(out), array(whole))
    y = x.astype("float64")
    expected = y**2 + y**y + 1 / np.sqrt(y) + np.tanh(y) + np.exp(y) + y * y + y + y / 3 + np.clip(y, 0, 1) + 1
    np.testing.assert_allclose(out, expected, rtol=3e-6)
    np.testing.assert_array_equal(whole, np.rint(x * np.float32(10)))


@triton.jit
def best_kernel(x_ptr, at_ptr, value_ptr, LARGEST: tl.constexpr, FIRST: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    if LARGEST:
        value, at = tl.max(x, 0, return_indices=True, return_indices_tie_break_left=FIRST)
    else:
        value, at = tl.min(x, 0, return_indices=True, return_indices_tie_break_left=FIRST)
    tl.store(at_ptr + row, at)
    tl.store(value_ptr + row, value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
@pytest.mark.parametrize("n", [1, 16, 256])
@pytest.mark.parametrize(("largest", "first"), [(True, True), (True, False), (False, True), (False, False)])
def test_the_best_element_and_its_number(largest, first, n, dtype):
    x = np.random.default_rng(n).integers(-20, 20, (5, n)).astype(dtype)
    if dtype.startswith("float") and n > 1:
        x[:, 0] = np.nan
    at, value = np.zeros(5, "int32"), np.zeros(5, dtype)
    best_kernel[(5,)](array(x), array(at), array(value), largest, first, n)
    expected = (np.nanmax if largest else np.nanmin)(x, 1)
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(x[np.arange(5), at], expected)
    if first:
        np.testing.assert_array_equal(at, (np.nanargmax if largest else np.nanargmin)(x, 1))


@triton.jit
def running_kernel(x_ptr, out_ptr, AXIS: tl.constexpr, REVERSE: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out_ptr + at, tl.cumsum(tl.load(x_ptr + at), AXIS, REVERSE))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "float16"])
@pytest.mark.parametrize(("axis", "reverse"), [(0, False), (0, True), (1, False), (1, True)])
def test_running_sums(axis, reverse, dtype):
    x = np.random.default_rng(0).integers(-4, 4, (8, 32)).astype(dtype)
    out = np.zeros_like(x)
    running_kernel[(1,)](array(x), array(out), axis, reverse, 8, 32)
    turned = np.flip(x, axis) if reverse else x
    expected = np.cumsum(turned, axis, dtype=dtype)
    np.testing.assert_array_equal(out, np.flip(expected, axis) if reverse else expected)


@triton.jit
def bytes_kernel(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + rows[:, None] * K + depth[None, :])
    b = tl.load(b_ptr + columns[None, :] * K + depth[:, None])
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], tl.dot(a, b, out_dtype=tl.int32))


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 32), (32, 64, 16), (128, 16, 128)])
def test_products_of_bytes(m, n, k):
    random = np.random.default_rng(0)
    a, b = (random.integers(-128, 128, (size, k), dtype="int8") for size in (m, n))
    out = np.zeros((m, n), "int32")
    bytes_kernel[(1,)](array(a), array(b), array(out), m, n, k)
    np.testing.assert_array_equal(out, a.astype("int32") @ b.astype("int32").T)


@triton.jit
def dependent_kernel(x_ptr, out_ptr):
    gdc.gdc_wait()
    at = tl.arange(0, 8)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)
    gdc.gdc_launch_dependents()


def test_launches_that_overlap_elsewhere():
    x, out = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    dependent_kernel[(1,)](array(x), array(out))
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize(
    "option", [{"maxnreg": 128}, {"launch_pdl": True}, {"enable_reflect_ftz": False}, {"ptx_options": ""}, {"min_shared_mem": 0}, {"waves_per_eu": 2}]
)
def test_advice_to_other_compilers_is_taken(option):
    x, out = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    constant_kernel[(1,)](array(x), array(out), 8, **option)
    np.testing.assert_array_equal(out, x + 1)


def test_advice_of_configurations_is_taken():
    x, out = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    triton.autotune([triton.Config({}, maxnreg=64)], key=[])(constant_kernel)[(1,)](array(x), array(out), 8)
    np.testing.assert_array_equal(out, x + 1)
