"""Kernels in the manner of Triton's tutorials that benches/kernels.py times: the lines that people write."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Programs in groups of rows, rows and columns modulo the size, a mask along the depth."""
    pid = tl.program_id(axis=0)
    programs_m, programs_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP * programs_n
    first = pid // in_group * GROUP
    size = min(programs_m - first, GROUP)
    pid_m, pid_n = first + (pid % in_group) % size, (pid % in_group) // size
    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows[:, None] * stride_am + depth[None, :] * stride_ak)
    b_ptrs = b_ptr + (depth[:, None] * stride_bk + columns[None, :] * stride_bn)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        sums = tl.dot(a, b, sums)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr):
    """One row a program, walked three times in pieces."""
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for offset in range(0, N, BLOCK):
        columns = offset + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / N
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for offset in range(0, N, BLOCK):
        columns = offset + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        x = tl.where(columns < N, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for offset in range(0, N, BLOCK):
        columns = offset + tl.arange(0, BLOCK)
        mask = columns < N
        w, b = tl.load(w_ptr + columns, mask=mask), tl.load(b_ptr + columns, mask=mask)
        x = tl.load(x_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + columns, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, sums_ptr, scale, length,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Flash attention, a block of queries a program; for the gradient each row's logarithm of its sum (base 2) is kept."""
    head, rows = tl.program_id(1), tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    base, depth = head * length * HEAD, tl.arange(0, HEAD)
    q = tl.load(q_ptr + base + rows[:, None] * HEAD + depth[None, :])
    largest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, HEAD], tl.float32)
    end = (tl.program_id(0) + 1) * BLOCK_M if CAUSAL else length
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        at = base + columns[:, None] * HEAD + depth[None, :]
        scores = tl.dot(q, tl.trans(tl.load(k_ptr + at))) * (scale * 1.44269504)
        if CAUSAL:
            scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        correction = tl.exp2(largest - new)
        total = total * correction + tl.sum(weights, 1)
        sums = tl.dot(weights.to(v_ptr.dtype.element_ty), tl.load(v_ptr + at), sums * correction[:, None])
        largest = new
    out = out_ptr + base + rows[:, None] * HEAD + depth[None, :]
    tl.store(out, (sums / total[:, None]).to(out_ptr.dtype.element_ty))
    tl.store(sums_ptr + head * length + rows, largest + tl.log2(total))


@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, w_ptr, stride, N, eps, BLOCK: tl.constexpr):
    """A row a program, in one piece."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N + eps)
    w = tl.load(w_ptr + columns, mask=mask, other=0.0)
    tl.store(y_ptr + row * stride + columns, x * rstd * w, mask=mask)


@triton.jit
def layer_norm_gradient_kernel(
    dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, stride, N,
    GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row a program; each of GROUP rows of the weight's gradient is added to under a lock."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    normal = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    along_normal = tl.sum(normal * wdy, axis=0) / N
    along_one = tl.sum(wdy, axis=0) / N
    tl.store(dx_ptr + row * stride + columns, (wdy - (normal * along_normal + along_one)) * rstd, mask=mask)
    group = row % GROUP
    lock, count = lock_ptr + group, lock_ptr + GROUP + group
    dw, db = dw_ptr + group * N + columns, db_ptr + group * N + columns
    part_of_w, part_of_b = dy * normal, dy
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_of_w += tl.load(dw, mask=mask)
        part_of_b += tl.load(db, mask=mask)
    tl.store(dw, part_of_w, mask=mask)
    tl.store(db, part_of_b, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def layer_norm_weight_gradient_kernel(
    parts_of_w_ptr, parts_of_b_ptr, dw_ptr, db_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """The sum of the groups' rows, a block of columns a program."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in range(0, M, BLOCK_M):
        rows = i + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        at = rows[:, None] * N + columns[None, :]
        dw += tl.load(parts_of_w_ptr + at, mask=mask, other=0.0)
        db += tl.load(parts_of_b_ptr + at, mask=mask, other=0.0)
    tl.store(dw_ptr + columns, tl.sum(dw, axis=0), mask=columns < N)
    tl.store(db_ptr + columns, tl.sum(db, axis=0), mask=columns < N)


@triton.jit
def attention_delta_kernel(out_ptr, dout_ptr, delta_ptr, HEAD: tl.constexpr, BLOCK_M: tl.constexpr):
    """For each row the sum of the result times its gradient."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    at = rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    out, dout = tl.load(out_ptr + at).to(tl.float32), tl.load(dout_ptr + at).to(tl.float32)
    tl.store(delta_ptr + rows, tl.sum(out * dout, axis=1))


@triton.jit
def attention_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, sums_ptr, delta_ptr, dk_ptr, dv_ptr, scale, length,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradients by keys and values, a block of keys a program."""
    head, columns = tl.program_id(1), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    base, depth = head * length * HEAD, tl.arange(0, HEAD)
    at = base + columns[:, None] * HEAD + depth[None, :]
    k, v = tl.load(k_ptr + at), tl.load(v_ptr + at)
    dk = tl.zeros([BLOCK_N, HEAD], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD], tl.float32)
    # Queries before this block of keys see none of it; BLOCK_M divides BLOCK_N.
    begin = tl.program_id(0) * BLOCK_N if CAUSAL else 0
    for start in range(begin, length, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        of_rows = base + rows[:, None] * HEAD + depth[None, :]
        q, dout = tl.load(q_ptr + of_rows), tl.load(dout_ptr + of_rows)
        sums, delta = tl.load(sums_ptr + head * length + rows), tl.load(delta_ptr + head * length + rows)
        weights = tl.exp2(tl.dot(k, tl.trans(q)) * (scale * 1.44269504) - sums[None, :])
        if CAUSAL:
            weights = tl.where(columns[:, None] <= rows[None, :], weights, 0.0)
        dv = tl.dot(weights.to(dout.dtype), dout, dv)
        change = weights * (tl.dot(v, tl.trans(dout)) - delta[None, :])
        dk = tl.dot(change.to(q.dtype), q, dk)
    tl.store(dk_ptr + at, (dk * scale).to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + at, dv.to(dv_ptr.dtype.element_ty))


@triton.jit
def attention_query_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, sums_ptr, delta_ptr, dq_ptr, scale, length,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradient by queries, a block of them a program."""
    head, rows = tl.program_id(1), tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    base, depth = head * length * HEAD, tl.arange(0, HEAD)
    at = base + rows[:, None] * HEAD + depth[None, :]
    q, dout = tl.load(q_ptr + at), tl.load(dout_ptr + at)
    sums, delta = tl.load(sums_ptr + head * length + rows), tl.load(delta_ptr + head * length + rows)
    dq = tl.zeros([BLOCK_M, HEAD], tl.float32)
    end = (tl.program_id(0) + 1) * BLOCK_M if CAUSAL else length
    for start in range(0, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        of_columns = base + columns[:, None] * HEAD + depth[None, :]
        k, v = tl.load(k_ptr + of_columns), tl.load(v_ptr + of_columns)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * (scale * 1.44269504) - sums[:, None])
        if CAUSAL:
            weights = tl.where(columns[None, :] <= rows[:, None], weights, 0.0)
        change = weights * (tl.dot(dout, tl.trans(v)) - delta[:, None])
        dq = tl.dot(change.to(k.dtype), k, dq)
    tl.store(dq_ptr + at, (dq * scale).to(dq_ptr.dtype.element_ty))
