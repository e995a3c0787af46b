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
    q_ptr, k_ptr, v_ptr, out_ptr, scale, length,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Flash attention, a block of queries a program."""
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
