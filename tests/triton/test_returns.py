"""Kernels and functions that return in the middle."""

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array


@triton.jit
def early_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    x = tl.load(x_ptr + pid)
    y = x
    if x < 0:
        tl.store(out_ptr + pid, -1.0)
        return
    elif x == 0:
        y = 10.0
    else:
        if x > 100:
            tl.store(out_ptr + pid, 100.0)
            return
        y = x * 2
    tl.store(out_ptr + pid, y)


@triton.jit
def chosen(x, y):
    if x > y:
        if x > 10:
            return x, 1
        x += 0.5
    elif y > 20:
        return y, 2
    else:
        y -= 0.5
    return x * y, 3


@triton.jit
def calling_kernel(x_ptr, y_ptr, out_ptr, which_ptr):
    at = tl.program_id(0)
    value, which = chosen(tl.load(x_ptr + at), tl.load(y_ptr + at))
    tl.store(out_ptr + at, value)
    tl.store(which_ptr + at, which)


@triton.jit
def tile_kernel(x_ptr, out_ptr, limit, BLOCK: tl.constexpr):
    """A tile that both sides of a branch make, and a loop behind a return."""
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    total = tl.sum(x, 0)
    if total > limit:
        tl.store(out_ptr + at, x - total)
        if total > 2 * limit:
            return
        x = x + 1
    else:
        x = x * 3
    for _ in range(3):
        x += total
    tl.store(out_ptr + at, x)


@triton.jit
def item_kernel(x_ptr, out_ptr):
    """One element of a tile as a number."""
    x = tl.load(x_ptr + tl.arange(0, 1))
    if x.item() > 2:
        return
    tl.store(out_ptr, x.item() + 1)


def test_programs_return_early():
    x = np.array([3, -2, 0, 500, 7, 1], "float32")
    out = np.full_like(x, 9)
    early_kernel[(6,)](array(x), array(out), 5, BLOCK=4)
    np.testing.assert_array_equal(out, [6, -1, 10, 100, 14, 9])


def test_functions_return_early():
    x, y = (np.array(values, "float32") for values in ([12, 3, 1, 1, 30], [1, 2, 30, 2, 40]))
    out, which = np.zeros_like(x), np.zeros(5, "int32")
    calling_kernel[(5,)](array(x), array(y), array(out), array(which))
    np.testing.assert_array_equal(out, [12, 7, 30, 1.5, 40])
    np.testing.assert_array_equal(which, [1, 3, 2, 3, 2])


@pytest.mark.parametrize("limit", [1000, 300, 100])
def test_tiles_behind_branches(limit):
    x = np.arange(32, dtype="float32")
    out, total = np.zeros_like(x), x.sum()
    tile_kernel[(1,)](array(x), array(out), float(limit), BLOCK=32)
    expected = x - total if total > 2 * limit else (x + 1 if total > limit else x * 3) + 3 * total
    np.testing.assert_array_equal(out, expected)


def test_one_element_is_a_number():
    for number, expected in ((1, 2), (3, 0)):
        x, out = np.array([number], "float32"), np.zeros(1, "float32")
        item_kernel[(1,)](array(x), array(out))
        assert out[0] == expected
