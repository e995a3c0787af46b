"""Indices at the ends of their types, and those that are read from memory before a tile is broadcast."""

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array


@triton.jit
def shifted_kernel(source, shift, out, ROWS_LAST: tl.constexpr, RUNNING: tl.constexpr):
    by = tl.load(shift + tl.arange(0, 1))
    if RUNNING:
        by = tl.cumsum(by, 0)
    row, column = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    if ROWS_LAST:
        at = source + column + by[:, None] + row * 8
    else:
        at = source + row * 8 + by[:, None] + column
    tl.store(out + row * 8 + column, tl.load(at))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("rows_last", [False, True])
def test_one_index_of_memory_shifts_every_element_of_a_tile(rows_last, running, dtype):
    out = np.zeros((4, 8), "int32")
    shift = np.array([5] + [1 << 20] * 15, dtype)
    shifted_kernel[(1,)](array(np.arange(64, dtype="int32")), array(shift), array(out), rows_last, running)
    np.testing.assert_array_equal(out, np.arange(5, 37).reshape(4, 8))


@triton.jit
def hashed_kernel(below, wide, chosen, loaded, source, B: tl.constexpr):
    i = tl.arange(0, B)
    hashed = i * 1103515245 + 12345
    tl.store(below + i, (hashed < 0).to(tl.int32))
    tl.store(wide + i, hashed.to(tl.int64))
    tl.store(chosen + i, tl.where(hashed < 1 << 20, 1, 2))
    around = i * 1073741824 * 4
    tl.store(loaded + i, tl.load(source + around))


def test_integers_of_32_bits_wrap_where_they_are_compared_widened_and_added_to_pointers():
    below, chosen, loaded = (np.zeros(8, "int32") for _ in range(3))
    wide = np.zeros(8, "int64")
    hashed_kernel[(1,)](array(below), array(wide), array(chosen), array(loaded), array(np.array([7], "int32")), 8)
    hashed = (np.arange(8) * 1103515245 + 12345).astype("int32")
    np.testing.assert_array_equal(wide, hashed)
    np.testing.assert_array_equal(below, hashed < 0)
    np.testing.assert_array_equal(chosen, np.where(hashed < 1 << 20, 1, 2))
    np.testing.assert_array_equal(loaded, [7] * 8)


@triton.jit(do_not_specialize=["limit"])
def below_kernel(out, limit, HOW: tl.constexpr):
    i = tl.arange(0, 8)
    if HOW == "at most":
        mask = i <= limit
    elif HOW == "less 4":
        mask = i - 4 < limit
    elif HOW == "and 1":
        mask = i + 1 < limit
    else:
        mask = 3 * i <= limit
    tl.store(out + i, 1, mask=mask)


@pytest.mark.parametrize("how", ["at most", "less 4", "and 1", "times 3"])
def test_bounds_may_be_the_smallest_and_the_largest_number(how):
    for limit, expected in [(2**63 - 1, 1), (-(2**63), 0), (2**63 - 2, 1)]:
        out = np.zeros(8, "int32")
        below_kernel[(1,)](array(out), limit, how)
        np.testing.assert_array_equal(out, [expected] * 8)
