"""Kernels in the manner of Triton's tutorials, through unmodified Triton, against float64 references."""

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


@triton.jit
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_rows, n_cols, BLOCK_SIZE: tl.constexpr):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        columns = tl.arange(0, BLOCK_SIZE)
        mask = columns < n_cols
        x = tl.load(input_ptr + row * input_row_stride + columns, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        result = numerator / tl.sum(numerator, axis=0)
        tl.store(output_ptr + row * output_row_stride + columns, result, mask=mask)


@triton.jit
def layer_norm_kernel(x_ptr, y_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
        x = tl.where(columns < n, x - mean, 0.0)
        total += x * x
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        weight = tl.load(weight_ptr + columns, mask=mask)
        bias = tl.load(bias_ptr + columns, mask=mask)
        x = tl.load(x_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + columns, (x - mean) * rstd * weight + bias, mask=mask)


@triton.jit
def dropout_kernel(x_ptr, output_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(output_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def transpose_kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (i[:, None] < rows) & (j[None, :] < columns)
    x = tl.load(x_ptr + i[:, None] * columns + j[None, :], mask=mask)
    tl.store(y_ptr + j[None, :] * rows + i[:, None], x, mask=mask)


@triton.jit
def activation_kernel(x_ptr, y_ptr, n, slope, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    y = tl.where(x > 0, x, slope * x) + tl.math.erf(x) + tl.sigmoid(x) + tl.maximum(x, 0.5) * tl.cos(x)
    tl.store(y_ptr + at, y, mask=at < n)


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b + depth[:, None] * stride_bk + columns[None, :] * stride_bn
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(a_tile, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
        y = tl.load(b_tile, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        sums = tl.dot(x, y, sums)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        sums = tl.where(sums >= 0, sums, 0.01 * sums)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + stride_cm * rows[:, None] + stride_cn * columns[None, :], sums.to(c.dtype.element_ty), mask=mask)


@triton.jit
def assembling_kernel(x_ptr):
    tl.store(x_ptr, tl.inline_asm_elementwise("", "=r,r", [tl.load(x_ptr)], tl.float32, True, 1))


@pytest.mark.parametrize("n", [1, 1000, 98432])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "int8"])
def test_vector_add(n, dtype):
    x, y = (np.random.randn(2, n) * 20).astype(dtype)
    out = np.full(n + 3, 77, dtype)
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](array(x), array(y), array(out), n, BLOCK_SIZE=1024)
    np.testing.assert_array_equal(out[:n], x + y)
    assert (out[n:] == 77).all()


@pytest.mark.parametrize("shape", [(1, 1), (37, 781), (128, 1024)])
def test_softmax(shape):
    x = np.random.randn(*shape).astype("float32") * 3
    out = np.empty_like(x)
    softmax_kernel[(5,)](array(out), array(x), shape[1], shape[1], *shape, BLOCK_SIZE=triton.next_power_of_2(shape[1]))
    powers = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=3e-6)


def test_softmax_ignores_nan_in_the_maximum_as_triton_s_max_does():
    x = np.array([[1.0, np.nan, 2.0, 0.0]], "float32")
    out = np.empty_like(x)
    softmax_kernel[(1,)](array(out), array(x), 4, 4, 1, 4, BLOCK_SIZE=4)
    assert np.isnan(out).all()  # the sum is NaN, whatever the maximum


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layer_norm(dtype):
    rows, n = 19, 1151
    x = np.random.randn(rows, n).astype(dtype)
    weight, bias = np.random.randn(2, n).astype("float32")
    y, mean, rstd = np.empty_like(x), np.empty(rows, "float32"), np.empty(rows, "float32")
    layer_norm_kernel[(rows,)](*map(array, (x, y, weight, bias, mean, rstd)), n, n, 1e-5, BLOCK=512)
    exact = x.astype("float64")
    centred = exact - exact.mean(1, keepdims=True)
    expected = centred / np.sqrt(centred.var(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(mean, exact.mean(1), atol=1e-6)
    np.testing.assert_allclose(y, expected, atol=1e-5 if dtype == "float32" else 1e-2)


def test_dropout_from_philox():
    n, p = 50_000, 0.3
    x = np.random.randn(n).astype("float32")
    out, again, other = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    for target, seed in ((out, 123), (again, 123), (other, 124)):
        dropout_kernel[(triton.cdiv(n, 1024),)](array(x), array(target), n, p, seed, BLOCK_SIZE=1024)
    kept = out != 0
    np.testing.assert_array_equal(out, again)
    assert (out != other).any()
    assert abs(kept.mean() - (1 - p)) < 0.01
    np.testing.assert_allclose(out[kept], x[kept] / (1 - p), rtol=1e-6)


def test_transposition_in_two_dimensions():
    x = np.random.randn(70, 45).astype("float32")
    y = np.empty((45, 70), "float32")
    transpose_kernel[(triton.cdiv(70, 32), triton.cdiv(45, 32))](array(x), array(y), 70, 45, BLOCK=32)
    np.testing.assert_array_equal(y, x.T)


def test_mathematics():
    x = np.linspace(-4, 4, 3001).astype("float32")
    y = np.empty_like(x)
    activation_kernel[(triton.cdiv(x.size, 512),)](array(x), array(y), x.size, 0.1, BLOCK=512)
    from math import erf

    z = x.astype("float64")
    expected = np.where(z > 0, z, 0.1 * z) + np.vectorize(erf)(z) + 1 / (1 + np.exp(-z)) + np.maximum(z, 0.5) * np.cos(z)
    np.testing.assert_allclose(y, expected, atol=3e-6)


@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 37, 70), (1, 130, 33)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-3)])
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
def test_matmul(shape, dtype, tolerance, activation):
    m, n, k = shape
    x, y = np.random.randn(m, k).astype(dtype), np.random.randn(n, k).astype(dtype).T  # the right one by columns
    out = np.full((m, n), 7, dtype)
    strides = [step // x.itemsize for matrix in (x, y, out) for step in matrix.strides]
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 64))
    matmul_kernel[grid](array(x), array(y), array(out), m, n, k, *strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=16, ACTIVATION=activation)
    expected = x.astype("float64") @ y.astype("float64")
    if activation:
        expected = np.where(expected >= 0, expected, 0.01 * expected)
    np.testing.assert_allclose(out, expected, atol=tolerance * np.abs(expected).max())


def test_what_is_not_covered_is_refused_by_name_and_line():
    x = np.zeros(4, "float32")
    with pytest.raises(NotImplementedError, match=r"test_kernels.py:\d+:\d+: .*tt.elementwise_inline_asm: "):
        assembling_kernel[(1,)](array(x))
    assert (x == 0).all()
