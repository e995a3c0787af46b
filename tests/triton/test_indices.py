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


@triton.jit
def beyond_kernel(wide, below, BASE: tl.constexpr, STEP: tl.constexpr):
    i = tl.arange(0, 16)
    at = BASE + i * STEP
    tl.store(wide + i, at.to(tl.int64))
    tl.store(below + i, (at < 0).to(tl.int32))


@pytest.mark.parametrize(("base", "step"), [(2**31 - 8, 1), (-(2**31) + 8, -1), (2**31 - 16, 1), (-(2**31) + 15, -1)])
def test_integers_of_32_bits_wrap_where_a_known_number_takes_them_past_the_last(base, step):
    wide, below = np.zeros(16, "int64"), np.zeros(16, "int32")
    beyond_kernel[(1,)](array(wide), array(below), base, step)
    at = (base + np.arange(16) * step).astype("int32")
    np.testing.assert_array_equal(wide, at)
    np.testing.assert_array_equal(below, at < 0)


@triton.jit
def widened_kernel(by_row, by_column, out):
    row, column = tl.arange(0, 4), tl.arange(0, 8)
    at = tl.load(by_row + row)[:, None] + tl.load(by_column + column)[None, :]
    tl.store(out + row[:, None] * 8 + column[None, :], at.to(tl.int64) * 100_000)


@pytest.mark.parametrize("furthest", [100_000, 2**31 - 4])
def test_sums_of_loaded_integers_wrap_at_32_bits_and_not_once_they_are_widened(furthest):
    by_row, by_column = np.array([5, 50_000, 70_000, furthest], "int32"), np.arange(8, dtype="int32")
    out = np.zeros((4, 8), "int64")
    widened_kernel[(1,)](array(by_row), array(by_column), array(out))
    np.testing.assert_array_equal(out, (by_row[:, None] + by_column).astype("int64") * 100_000)


@triton.jit
def far_kernel(x, first, second, out, back, BY_ROW: tl.constexpr):
    row, column = tl.arange(0, 8)[:, None], tl.arange(0, 8)[None, :]
    i = row if BY_ROW else column
    at = x - back + tl.load(first + i) + tl.load(second + i) + (column if BY_ROW else row * 8)
    tl.store(out + row * 8 + column, tl.load(at))


@pytest.mark.parametrize("by_row", [True, False])
def test_loaded_integers_of_32_bits_are_added_to_pointers_without_wrapping(by_row):
    x, out = np.arange(64, dtype="int8"), np.zeros((8, 8), "int8")
    first = np.full(8, 2_000_000_000, "int32")
    second = first + np.arange(8, dtype="int32") * (8 if by_row else 1)
    far_kernel[(1,)](array(x), array(first), array(second), array(out), 4_000_000_000, by_row)
    np.testing.assert_array_equal(out, x.reshape(8, 8))


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


@triton.jit
def unsigned_kernel(out, e: tl.uint16, f: tl.uint32, g: tl.uint8):
    i = tl.arange(0, 8)
    tl.store(out, e.to(tl.int16).to(tl.int32))
    tl.store(out + 1, f.to(tl.int32, bitcast=True) // 2)
    tl.store(out + 2, g.to(tl.int8).to(tl.int32))
    tl.store(out + 3, (f.to(tl.int32) < 5).to(tl.int32))
    tl.store(out + 8 + i, 7, mask=i < f.to(tl.int32))


def test_parameters_that_are_declared_unsigned_have_the_bits_of_their_type():
    out = np.zeros(16, "int32")
    unsigned_kernel[(1,)](array(out), 60000, 2**32 - 6, 250)
    np.testing.assert_array_equal(out, [-5536, -3, -6, 1] + [0] * 12)


@triton.jit(do_not_specialize=["count", "step"])
def stepping_kernel(x, out, count, step):
    total = tl.zeros([8], tl.float32)
    for at in range(0, count, step):
        total += tl.load(x + at + tl.arange(0, 8))
    tl.store(out + tl.arange(0, 8), total)


def test_a_loop_that_runs_no_times_may_have_a_step_of_0():
    out = np.ones(8, "float32")
    stepping_kernel[(1,)](array(np.ones(32, "float32")), array(out), 0, 0)
    np.testing.assert_array_equal(out, np.zeros(8))


@triton.jit(do_not_specialize=["n", "m"])
def chosen_products_kernel(x, y, out, n, m):
    i = tl.arange(0, 64)
    a, b = tl.load(x + i, mask=i < n, other=0.0), tl.load(y + i, mask=i < n, other=0.0)
    tl.store(out, tl.sum(tl.where(i < m, a * b, 0.0)))
    difference = tl.where(i < m, a - b, 0.0)
    tl.store(out + 1, tl.sum(tl.where(i < n, difference * difference, 0.0)))


@pytest.mark.parametrize(("n", "m"), [(40, 10), (10, 40), (64, 64), (-3, 7), (7, -3), (64, 5), (5, 64)])
def test_a_sum_of_products_is_of_what_was_chosen(n, m):
    x, y, out = np.arange(1, 65, dtype="float32"), np.full(64, 2, "float32"), np.zeros(2, "float32")
    chosen_products_kernel[(1,)](array(x), array(y), array(out), n, m)
    a, b = (np.where(np.arange(64) < n, values, 0) for values in (x, y))
    both = max(min(n, m), 0)
    np.testing.assert_array_equal(out, [(a * b)[: max(m, 0)].sum(), ((a - b)[:both] ** 2).sum()])


@triton.jit(do_not_specialize=["tokens", "heads"])
def heads_kernel(x, places, out, tokens, heads, STRIDE: tl.constexpr, BY_ELEMENT: tl.constexpr):
    token, head, at = tl.arange(0, 4)[:, None, None], tl.arange(0, 4)[None, :, None], tl.arange(0, 16)[None, None, :]
    mask = (token < tokens) & (head < heads)
    if BY_ELEMENT:
        mask = mask & ((token + head + at) % 3 != 1)
    place = tl.load(places + token)
    value = tl.load(x + place * 64 * STRIDE + head * 16 * STRIDE + at * STRIDE, mask=mask, other=-7)
    tl.store(out + token * 64 + head * 16 + at, value)
    tl.store(out + 256 + (place * 64 + head * 16 + at) * STRIDE, value + 1, mask=mask)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
@pytest.mark.parametrize("by_element", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_masks_of_outer_dimensions_leave_whole_rows_of_memory(stride, by_element, dtype):
    x = (np.arange(256 * stride) % 100).astype(dtype)
    places = np.array([2, 0, 3, 1], "int32")
    token, head, at = np.ogrid[:4, :4, :16]
    for tokens, heads in [(4, 4), (3, 2), (0, 4), (4, -1), (9, 1)]:
        out = np.full(256 + 256 * stride, -1, dtype)
        heads_kernel[(1,)](array(x), array(places), array(out), tokens, heads, stride, by_element)
        mask = (token < tokens) & (head < heads) & ((token + head + at) % 3 != 1 if by_element else at >= 0)
        where = (places[token] * 64 + head * 16 + at) * stride
        expected = np.full_like(out, -1)
        expected[:256] = np.where(mask, x[where], -7).ravel()
        expected[256:][where[mask]] = x[where[mask]] + 1
        np.testing.assert_array_equal(out, expected)
