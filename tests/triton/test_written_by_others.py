"""What kernels that others wrote use: constant pointers, tuples, narrow offsets, precisions by name, CUDA's libdevice."""

import numpy as np
import pytest
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.language.extra.cuda import libdevice

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
