"""Kernels in the manner of Triton's later tutorials: loops, conditions, atomics, locks, pointers to pointers."""

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

from openmps.triton import array


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, scale, length,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, rows = tl.program_id(1), tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    base = head * length * HEAD
    depth = tl.arange(0, HEAD)
    q = tl.load(q_ptr + base + rows[:, None] * HEAD + depth[None, :], mask=rows[:, None] < length, other=0.0)
    largest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, HEAD], tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BLOCK_M, length) if CAUSAL else length
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        inside = columns < length
        k = tl.load(k_ptr + base + columns[None, :] * HEAD + depth[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(v_ptr + base + columns[:, None] * HEAD + depth[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q, k) * scale
        keep = inside[None, :]
        if CAUSAL:
            keep = keep & (columns[None, :] <= rows[:, None])
        scores = tl.where(keep, scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        correction = tl.exp2(largest - new)
        total = total * correction + tl.sum(weights, 1)
        sums = tl.dot(weights.to(v.dtype), v, sums * correction[:, None])
        largest = new
    sums = sums / total[:, None]
    tl.store(lse_ptr + head * length + rows, largest + tl.log2(total), mask=rows < length)
    out = out_ptr + base + rows[:, None] * HEAD + depth[None, :]
    tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def attention_gradient_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, scale, length,
    HEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of one block of keys; those of the queries are summed up by atomics."""
    head, columns = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base, depth = head * length * HEAD, tl.arange(0, HEAD)
    at = base + columns[:, None] * HEAD + depth[None, :]
    k, v = tl.load(k_ptr + at), tl.load(v_ptr + at)
    dk, dv = tl.zeros([BLOCK, HEAD], tl.float32), tl.zeros([BLOCK, HEAD], tl.float32)
    for start in range(0, length, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        of_rows = base + rows[:, None] * HEAD + depth[None, :]
        q, do = tl.load(q_ptr + of_rows), tl.load(do_ptr + of_rows)
        lse, delta = tl.load(lse_ptr + head * length + rows), tl.load(delta_ptr + head * length + rows)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * scale * 1.44269504 - lse[:, None])
        dv += tl.dot(tl.trans(weights), do)
        ds = weights * (tl.dot(do, tl.trans(v)) - delta[:, None]) * scale
        dk += tl.dot(tl.trans(ds), q)
        tl.atomic_add(dq_ptr + of_rows, tl.dot(ds, k))
    tl.store(dk_ptr + at, dk)
    tl.store(dv_ptr + at, dv)


def attention(q, k, v, causal):
    """In float64: output, and the logarithm to base 2 of each row's sum."""
    q, k, v = (x.astype("float64") for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    return weights @ v, weights, (np.log(powers.sum(-1)) + scores.max(-1)) / np.log(2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float16", 4e-3)])
def test_attention(causal, dtype, tolerance):
    heads, length, head = 3, 77, 32
    q, k, v = np.random.randn(3, heads, length, head).astype(dtype)
    out, lse = np.empty_like(q), np.empty((heads, length), "float32")
    grid = (triton.cdiv(length, 16), heads)
    scale = 1.44269504 / np.sqrt(head)
    attention_kernel[grid](
        *map(array, (q, k, v, out, lse)), scale, length, HEAD=head, BLOCK_M=16, BLOCK_N=32, CAUSAL=causal
    )
    expected, _, sums = attention(q, k, v, causal)
    np.testing.assert_allclose(out, expected, atol=tolerance)
    np.testing.assert_allclose(lse, sums, atol=tolerance * 5)


def test_attention_gradient():
    heads, length, head = 2, 64, 16
    q, k, v, do = np.random.randn(4, heads, length, head).astype("float32")
    out, weights, lse = attention(q, k, v, False)
    delta = (out * do).sum(-1).astype("float32")
    dq, dk, dv = np.zeros((3, heads, length, head), "float32")
    scale = 1 / np.sqrt(head)
    attention_gradient_kernel[(length // 16, heads)](
        *map(array, (q, k, v, do, lse.astype("float32"), delta, dq, dk, dv)), scale, length, HEAD=head, BLOCK=16
    )
    ds = weights * (do @ v.transpose(0, 2, 1).astype("float64") - delta[..., None]) * scale
    np.testing.assert_allclose(dv, weights.transpose(0, 2, 1) @ do, atol=1e-4)
    np.testing.assert_allclose(dq, ds @ k, atol=1e-4)
    np.testing.assert_allclose(dk, ds.transpose(0, 2, 1) @ q, atol=1e-4)


@triton.jit
def layer_norm_gradient_kernel(
    dx_ptr, dy_ptr, dw_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, n,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradient of the input, and partial ones of the weight, which rows of a group add up one after the other under a lock."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=mask, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + row * n + columns, mask=mask, other=0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=mask, other=0).to(tl.float32)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    normal = tl.where(mask, (x - mean) * rstd, 0.0)
    scaled = tl.where(mask, w * dy, 0.0)
    dx = (scaled - (normal * tl.sum(normal * scaled, 0) / n + tl.sum(scaled, 0) / n)) * rstd
    tl.store(dx_ptr + row * n + columns, dx, mask=mask)
    lock = lock_ptr + row % GROUPS
    count = lock_ptr + GROUPS + row % GROUPS
    partial = dw_ptr + (row % GROUPS) * n + columns
    dw = dy * normal
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        dw += tl.load(partial, mask=mask)
    tl.store(partial, dw, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_layer_norm_gradient_under_locks():
    rows, n, groups = 40, 300, 4
    x, dy = np.random.randn(2, rows, n).astype("float32")
    w = np.random.randn(n).astype("float32")
    mean = x.mean(1)
    rstd = 1 / np.sqrt(x.var(1) + 1e-5)
    dx, dw, locks = np.empty_like(x), np.zeros((groups, n), "float32"), np.zeros(2 * groups, "int32")
    tensors = (dx, dy, dw, x, w, mean.astype("float32"), rstd.astype("float32"), locks)
    layer_norm_gradient_kernel[(rows,)](*map(array, tensors), n, GROUPS=groups, BLOCK=512)
    normal = ((x - mean[:, None]) * rstd[:, None]).astype("float64")
    scaled = w * dy
    centred = scaled - normal * (normal * scaled).mean(1, keepdims=True) - scaled.mean(1, keepdims=True)
    np.testing.assert_allclose(dx, centred * rstd[:, None], atol=1e-4)
    np.testing.assert_allclose(dw.sum(0), (dy * normal).sum(0), atol=1e-4)
    assert (locks[:groups] == 0).all()


@triton.jit
def gathered_product_kernel(out, a, b, rows, N: tl.constexpr, DEPTH: tl.constexpr):
    at = tl.load(rows + tl.arange(0, DEPTH))[:, None] * N + tl.arange(0, N)[None, :]
    product = tl.dot(tl.load(a + at).trans(), tl.load(b + at))
    tl.store(out + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :], product)


def test_product_of_gathered_rows():
    n, depth = 64, 128
    a, b = (np.random.randn(200, n).astype("float16") for _ in range(2))
    rows = np.arange(depth, dtype="int32") * 73 % 200
    out = np.full((n, n), np.nan, "float32")
    gathered_product_kernel[(1,)](*map(array, (out, a, b, rows)), N=n, DEPTH=depth)
    expected = a[rows].astype("float64").T @ b[rows].astype("float64")
    np.testing.assert_allclose(out, expected, atol=1e-3, rtol=1e-3)


@triton.jit
def gather_kernel(out, x, indices, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(indices + at), 0))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_indices_of_every_width(dtype):
    x, indices = np.random.randn(64).astype("float32"), np.random.permutation(64).astype(dtype)
    out = np.full(64, np.nan, "float32")
    gather_kernel[(1,)](*map(array, (out, x, indices)), N=64)
    np.testing.assert_array_equal(out, x[indices])


@triton.jit
def grouped_matmul_kernel(pointers, sizes, groups, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """Products of several pairs of matrices of different sizes: a persistent grid takes tiles of one after the other."""
    tile, done = tl.program_id(0), 0
    for group in range(groups):
        m, n, k = tl.load(sizes + group * 3), tl.load(sizes + group * 3 + 1), tl.load(sizes + group * 3 + 2)
        across = tl.cdiv(n, BLOCK)
        tiles = tl.cdiv(m, BLOCK) * across
        while tile >= done and tile < done + tiles:
            a = tl.load(pointers + group * 3).to(tl.pointer_type(tl.float32))
            b = tl.load(pointers + group * 3 + 1).to(tl.pointer_type(tl.float32))
            c = tl.load(pointers + group * 3 + 2).to(tl.pointer_type(tl.float32))
            rows = (tile - done) // across * BLOCK + tl.arange(0, BLOCK)
            columns = (tile - done) % across * BLOCK + tl.arange(0, BLOCK)
            sums = tl.zeros((BLOCK, BLOCK), tl.float32)
            for start in range(0, k, BLOCK):
                depth = start + tl.arange(0, BLOCK)
                left = (rows[:, None] < m) & (depth[None, :] < k)
                right = (depth[:, None] < k) & (columns[None, :] < n)
                x = tl.load(a + rows[:, None] * k + depth[None, :], mask=left, other=0.0)
                y = tl.load(b + depth[:, None] * n + columns[None, :], mask=right, other=0.0)
                sums = tl.dot(x, y, sums)
            tl.store(c + rows[:, None] * n + columns[None, :], sums, mask=(rows[:, None] < m) & (columns[None, :] < n))
            tile += PROGRAMS
        done += tiles


def test_grouped_matmul():
    shapes = [(40, 33, 20), (16, 16, 16), (5, 70, 9)]
    inputs = [(np.random.randn(m, k).astype("float32"), np.random.randn(k, n).astype("float32")) for m, n, k in shapes]
    outputs = [np.full((m, n), np.nan, "float32") for m, n, _ in shapes]
    addresses = [matrix.ctypes.data for (a, b), c in zip(inputs, outputs) for matrix in (a, b, c)]
    grouped_matmul_kernel[(3,)](
        array(np.array(addresses, "int64")), array(np.array(shapes, "int32")), len(shapes), PROGRAMS=3, BLOCK=16
    )
    for (a, b), c in zip(inputs, outputs):
        np.testing.assert_allclose(c, a.astype("float64") @ b, atol=1e-4)


@triton.jit
def persistent_matmul_kernel(a, b, c, M, N, K, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr):
    """A few programs take all tiles of the product in turn."""
    across = tl.cdiv(N, BLOCK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK) * across, PROGRAMS, flatten=True):
        rows = tile // across * BLOCK + tl.arange(0, BLOCK)
        columns = tile % across * BLOCK + tl.arange(0, BLOCK)
        sums = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(tl.cdiv(K, BLOCK)):
            depth = k * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(a + rows[:, None] * K + depth[None, :], mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
            y = tl.load(b + depth[:, None] * N + columns[None, :], mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0)
            sums = tl.dot(x, y, sums)
        if ACTIVATION:
            sums = tl.maximum(sums, 0.0)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c + rows[:, None] * N + columns[None, :], sums.to(c.dtype.element_ty), mask=inside)


@pytest.mark.parametrize("activation", [False, True])
def test_persistent_matmul(activation):
    m, n, k = 70, 90, 50
    a, b = np.random.randn(m, k).astype("float16"), np.random.randn(k, n).astype("float16")
    c = np.full((m, n), np.nan, "float16")
    persistent_matmul_kernel[(3,)](array(a), array(b), array(c), m, n, k, PROGRAMS=3, BLOCK=16, ACTIVATION=activation)
    expected = a.astype("float64") @ b.astype("float64")
    np.testing.assert_allclose(c, np.maximum(expected, 0) if activation else expected, atol=2e-2)


@triton.jit
def libdevice_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, mask=at < n, other=0.5), tl.load(y_ptr + at, mask=at < n, other=0.5)
    z = libdevice.asin(x) + libdevice.tanh(y) * libdevice.atan2(y, x) + libdevice.log1p(y) + libdevice.pow(y, x)
    tl.store(out_ptr + at, z + libdevice.log10(y) + libdevice.hypot(x, y) - libdevice.copysign(y, x), mask=at < n)


def test_libdevice():
    n = 1000
    x, y = np.random.uniform(-1, 1, n).astype("float32"), np.random.uniform(0.1, 2, n).astype("float32")
    out = np.empty_like(x)
    libdevice_kernel[(triton.cdiv(n, 256),)](array(x), array(y), array(out), n, BLOCK=256)
    x, y = x.astype("float64"), y.astype("float64")
    expected = np.arcsin(x) + np.tanh(y) * np.arctan2(y, x) + np.log1p(y) + y**x
    np.testing.assert_allclose(out, expected + np.log10(y) + np.hypot(x, y) - np.copysign(y, x), atol=2e-6)


@triton.jit
def combine_pairs(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def along_kernel(x_ptr, out_ptr, index_ptr, N: tl.constexpr):
    rows, columns = tl.arange(0, 4), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])
    at = rows[:, None] * N + columns[None, :]
    tl.store(out_ptr + at, tl.cumsum(x, 1))
    tl.store(out_ptr + 4 * N + at, tl.cumprod(x, 0, reverse=True))
    tl.store(out_ptr + 8 * N + at, tl.sort(x, descending=True))
    _, recurrence = tl.associative_scan((x, x * 0.5), 1, combine_pairs)
    tl.store(out_ptr + 12 * N + at, recurrence)
    tl.store(out_ptr + 16 * N + at, tl.flip(x, 1))
    tl.store(index_ptr + rows, tl.argmax(x, 1))
    tl.store(index_ptr + 4 + rows, tl.argmin(x, 1))
    tl.store(index_ptr + 8 + tl.arange(0, 8), tl.histogram((x * 8).to(tl.int32).reshape(4 * N), 8))


def test_scans_sorts_and_indices():
    n = 32
    x = np.random.rand(4, n).astype("float32")
    out, index = np.empty((5, 4, n), "float32"), np.empty(16, "int32")
    along_kernel[(1,)](array(x), array(out), array(index), N=n)
    recurrence, state = np.empty_like(x), np.zeros(4)
    for j in range(n):
        state = state * x[:, j] + 0.5 * x[:, j] if j else 0.5 * x[:, j]
        recurrence[:, j] = state
    np.testing.assert_allclose(out[0], x.astype("float64").cumsum(1), rtol=1e-5)
    np.testing.assert_allclose(out[1], x[::-1].cumprod(0)[::-1], rtol=1e-5)
    np.testing.assert_array_equal(out[2], -np.sort(-x, 1))
    np.testing.assert_allclose(out[3], recurrence, rtol=1e-5)
    np.testing.assert_array_equal(out[4], x[:, ::-1])
    np.testing.assert_array_equal(index[:4], x.argmax(1))
    np.testing.assert_array_equal(index[4:8], x.argmin(1))
    np.testing.assert_array_equal(index[8:], np.bincount((x * 8).astype(int).ravel(), minlength=8))


@triton.jit
def atomics_kernel(x_ptr, out_ptr, float_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    tl.atomic_add(out_ptr, x)
    tl.atomic_max(out_ptr + 1, x)
    tl.atomic_min(out_ptr + 2, x)
    tl.atomic_and(out_ptr + 3, x)
    tl.atomic_or(out_ptr + 4, x)
    tl.atomic_xor(out_ptr + 5, x)
    tl.atomic_add(float_ptr, x.to(tl.float32))
    tl.atomic_max(float_ptr + 1, x.to(tl.float32))
    tl.atomic_min(float_ptr + 2, x.to(tl.float32))


def test_atomics_of_many_programs():
    x = np.random.randint(-1000, 1000, 2000).astype("int32")
    out, floats = np.array([0, -5000, 5000, -1, 0, 0], "int32"), np.array([0, -5000, 5000], "float32")
    atomics_kernel[(x.size,)](array(x), array(out), array(floats))
    folded = [np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    np.testing.assert_array_equal(out, [x.sum(), x.max(), x.min(), *folded])
    np.testing.assert_array_equal(floats, [x.sum(), x.max(), x.min()])


@triton.jit(noinline=True)
def polynomial(x, n):
    result = x * 0 + 1
    for _ in range(n):
        result = result * x + 1
    return result


@triton.jit
def calling_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y, one = x * 0, tl.load(x_ptr) * 0 + 1
    for i in range(n + 1):
        y = y * x + polynomial(one, i) - i
    if n > 2:
        pairs = tl.join(y, x).reshape(2 * BLOCK)
    else:
        pairs = tl.interleave(x, y)
    tl.store(out_ptr + tl.arange(0, 2 * BLOCK), pairs)


@pytest.mark.parametrize("n", [2, 3])
def test_functions_that_are_called_and_branches(n):
    x = np.random.rand(16).astype("float32")
    out = np.empty(32, "float32")
    calling_kernel[(1,)](array(x), array(out), n, BLOCK=16)
    y = sum(x.astype("float64") ** i for i in range(n + 1))  # the function's values less i are 1
    np.testing.assert_allclose(out.reshape(16, 2), np.stack([y, x] if n > 2 else [x, y], 1), rtol=1e-5)


@triton.jit
def descriptor_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out_ptr, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    target.store(at, source.load(at) * 2)


def test_descriptors_made_in_the_kernel():
    x = np.random.rand(20, 44).astype("float32")
    out = np.zeros_like(x)
    descriptor_kernel[(2, 3)](array(x), array(out), 20, 44, BLOCK=16)
    np.testing.assert_array_equal(out, 2 * x)


@triton.jit
def given_descriptor_kernel(x, out, factor, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    out.store([row, column], x.load([row, column]) * factor)


def test_descriptors_made_on_the_host():
    """What lies outside of the tensor is loaded as zero and not stored."""
    x, out = np.random.rand(48, 52).astype("float32"), np.zeros((48, 52), "float32")
    descriptors = [TensorDescriptor(array(values), [40, 52], [52, 1], [16, 16]) for values in (x, out)]
    given_descriptor_kernel[(3, 4)](*descriptors, 3.0, BLOCK=16)
    np.testing.assert_array_equal(out[:40], x[:40] * np.float32(3))
    np.testing.assert_array_equal(out[40:], 0)
