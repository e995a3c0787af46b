"""Elements at places that memory names: atomic operations, gathers and scatters under masks, and scans, against NumPy, bit by bit where that is defined."""

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array

ROWS, COLUMNS, PLACES = 300, 96, 37
TYPES = ["float16", "float32", "float64", "int32", "int64"]


@triton.jit
def add_rows_kernel(x_ptr, index_ptr, out_ptr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * COLUMNS + at, mask=at < COLUMNS)
    tl.atomic_add(out_ptr + tl.load(index_ptr + row) * COLUMNS + at, x, mask=at < COLUMNS)


@triton.jit
def add_tile_kernel(x_ptr, index_ptr, out_ptr, rows, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT), tl.arange(0, WIDTH)
    mask = (row < rows)[:, None] & (at < COLUMNS)[None, :]
    x = tl.load(x_ptr + row[:, None] * COLUMNS + at[None, :], mask=mask)
    place = tl.load(index_ptr + row, mask=row < rows, other=0)
    tl.atomic_add(out_ptr + place[:, None] * COLUMNS + at[None, :], x, mask=mask)


@triton.jit
def change_kernel(x_ptr, index_ptr, out_ptr, old_ptr, n, KIND: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    mask = (at < n) & (at % 5 != 3)
    place = out_ptr + tl.load(index_ptr + at, mask=at < n, other=0)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    if KIND == "add":
        old = tl.atomic_add(place, x, mask=mask)
    elif KIND == "max":
        old = tl.atomic_max(place, x, mask=mask)
    elif KIND == "min":
        old = tl.atomic_min(place, x, mask=mask)
    elif KIND == "xor":
        old = tl.atomic_xor(place, x, mask=mask)
    else:
        old = tl.atomic_xchg(place, x, mask=mask)
    tl.store(old_ptr + at, old, mask=mask)


@triton.jit
def tickets_kernel(count_ptr, seen_ptr, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    ticket = tl.atomic_add(count_ptr + at * 0, 1)
    tl.atomic_add(seen_ptr + ticket, 1)


@triton.jit
def steps_kernel(out_ptr, old_ptr, first, step, A: tl.constexpr, B: tl.constexpr):
    row, column = tl.arange(0, A)[:, None], tl.arange(0, B)[None, :]
    value = tl.broadcast_to((row + 1).to(tl.float32), (A, B))
    old = tl.atomic_add(out_ptr + first + row * 1000 + column * step, value)
    tl.store(old_ptr + row * B + column, old)


@triton.jit
def masked_kernel(x_ptr, index_ptr, mask_ptr, out_ptr, back_ptr, n, WIDTH: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, WIDTH)
    mask = tl.load(mask_ptr + row * WIDTH + at) != 0
    whole = tl.load(x_ptr + row * WIDTH + at, mask=mask, other=-1)
    near = tl.load(x_ptr + row * WIDTH + at - 2, mask=(at >= 2) & mask, other=-2)
    index = tl.load(index_ptr + row * WIDTH + at)
    far = tl.load(x_ptr + index, mask=mask, other=-3)
    tl.store(out_ptr + row * 3 * WIDTH + at, whole)
    tl.store(out_ptr + row * 3 * WIDTH + WIDTH + at, near)
    tl.store(out_ptr + row * 3 * WIDTH + 2 * WIDTH + at, far)
    tl.store(back_ptr + index, whole, mask=mask)
    tl.store(back_ptr + n + row * WIDTH + at, far, mask=mask)


@triton.jit
def add(x, y):
    return x + y


@triton.jit
def maximum(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def product(x, y):
    return x * y


@triton.jit
def bitwise(x, y):
    return x | y


@triton.jit
def scan_kernel(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, COMBINE: tl.constexpr, REVERSE: tl.constexpr):
    places = tl.arange(0, A)[:, None, None] * (B * C) + tl.arange(0, B)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    x = tl.load(x_ptr + places)
    if COMBINE == "add":
        y = tl.associative_scan(x, 1, add, reverse=REVERSE)
    elif COMBINE == "max":
        y = tl.associative_scan(x, 1, maximum, reverse=REVERSE)
    elif COMBINE == "product":
        y = tl.associative_scan(x, 1, product, reverse=REVERSE)
    else:
        y = tl.associative_scan(x, 1, bitwise, reverse=REVERSE)
    tl.store(out_ptr + places, y)


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :])
    if AXIS == 1:
        places = tl.arange(0, A)[:, None] * K + tl.arange(0, K)[None, :]
    else:
        places = tl.arange(0, K)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(out_ptr + places, tl.gather(x, tl.load(index_ptr + places), AXIS))


@triton.jit
def histogram_kernel(x_ptr, mask_ptr, out_ptr, N: tl.constexpr, BINS: tl.constexpr, MASKED: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    if MASKED:
        counts = tl.histogram(x, BINS, mask=tl.load(mask_ptr + at) != 0)
    else:
        counts = tl.histogram(x, BINS)
    tl.store(out_ptr + tl.arange(0, BINS), counts)


@triton.jit
def divide_kernel(x_ptr, y_ptr, quotient_ptr, rest_ptr, by_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(quotient_ptr + at, x // y)
    tl.store(rest_ptr + at, x % y)
    tl.store(by_ptr + at, x // 7 * 100 + x % 64)


@triton.jit
def narrow_kernel(x_ptr, sums_ptr, most_ptr, scaled_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + row * COLUMNS + column)
    sums = tl.sum(x, 1)
    tl.store(sums_ptr + tl.arange(0, ROWS), sums)
    tl.store(most_ptr + tl.arange(0, ROWS), tl.max(x, 1))
    tl.store(scaled_ptr + row * COLUMNS + column, tl.where(x > 0, x * sums[:, None], x + (column + 1).to(x.dtype)))


def whole_numbers(shape, dtype: str) -> np.ndarray:
    """Their sums are exact in any order."""
    return np.random.randint(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_are_added_at_once(dtype):
    x, index = whole_numbers((ROWS, COLUMNS), dtype), np.random.randint(0, PLACES, ROWS).astype(np.int32)
    expected = np.zeros((PLACES, COLUMNS), dtype)
    np.add.at(expected, index, x)
    out = np.zeros_like(expected)
    add_rows_kernel[(ROWS,)](array(x), array(index), array(out), COLUMNS, 128)
    np.testing.assert_array_equal(out, expected)
    out[:] = 0
    add_tile_kernel[((ROWS + 7) // 8,)](array(x), array(index), array(out), ROWS, COLUMNS, 8, 128)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("add", dtype) for dtype in TYPES] + [(kind, dtype) for kind in ("max", "min", "xor", "xchg") for dtype in ("int32", "uint32", "int64")],
)
def test_each_place_is_changed_and_says_what_was_there(kind, dtype):
    """Places are apart, so that there is one result; they lie on both sides of a boundary of 4 KiB, some of them neighbours."""
    n = 1500
    index = np.random.permutation(4000)[:n].astype(np.int32)
    index[100:300] = index[100] // 2 * 2 + 4000 + np.arange(200)
    x, out = whole_numbers(n, dtype), whole_numbers(5 * n + 8000, dtype)
    old, before = np.full(n, 9, dtype), out.copy()
    change_kernel[((n + 127) // 128,)](array(x), array(index), array(out), array(old), n, kind, 128)
    on = np.arange(n) % 5 != 3
    operation = {"add": np.add, "max": np.maximum, "min": np.minimum, "xor": np.bitwise_xor, "xchg": lambda _, x: x}[kind]
    expected, expected_old = before.copy(), np.where(on, before[index], 9).astype(dtype)
    expected[index[on]] = operation(before[index[on]], x[on])
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(old, expected_old)


@pytest.mark.parametrize("step", [1, 0, 2, -1, 7])
@pytest.mark.parametrize("shape", [(4, 16), (8, 64)])
def test_columns_may_step_in_any_way(shape, step):
    out, old = np.zeros(8 * 1000, np.float32), np.full(shape, -1, np.float32)
    first = 500
    steps_kernel[(1,)](array(out), array(old), first, step, *shape)
    expected, given = np.zeros_like(out), np.arange(1, shape[0] + 1, dtype=np.float32)[:, None]
    places = first + np.arange(shape[0])[:, None] * 1000 + np.arange(shape[1]) * step
    np.add.at(expected, places, np.broadcast_to(given, shape))
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.sort(old, 1), given * np.arange(shape[1]) if step == 0 else np.zeros(shape))


def test_each_element_of_a_tile_draws_another_ticket():
    programs, width = 64, 64
    count, seen = np.zeros(1, np.int32), np.zeros(programs * width, np.int32)
    tickets_kernel[(programs,)](array(count), array(seen), width)
    assert count[0] == programs * width and (seen == 1).all()


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95, 1.0])
def test_masks_leave_what_they_say(dtype, share):
    rows, width = 9, 64
    n = rows * width
    x, index = np.random.randint(-100, 100, n).astype(dtype), np.random.permutation(n).astype(np.int64)
    mask = (np.random.rand(rows, width) < share).astype(np.int8)
    mask[0, :20], mask[1, 33:] = 1, 1
    out, back = np.zeros((rows, 3, width), dtype), np.full(2 * n, 7, dtype)
    masked_kernel[(rows,)](array(x), array(index), array(mask), array(out), array(back), n, width)
    on, at = mask != 0, np.arange(width)
    whole, far = np.where(on, x.reshape(rows, width), -1), np.where(on, x[index].reshape(rows, width), -3)
    near = np.where(on & (at >= 2), np.roll(x, 2).reshape(rows, width), -2)
    np.testing.assert_array_equal(out, np.stack([whole, near, far], 1).astype(dtype))
    expected = np.full(2 * n, 7, dtype)
    expected[index.reshape(rows, width)[on]] = whole[on]
    expected[n:][on.ravel()] = far[on]
    np.testing.assert_array_equal(back, expected)


SCANS = {"add": np.add, "max": np.maximum, "product": np.multiply, "or": np.bitwise_or}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 1), (3, 8, 1), (1, 16, 1), (2, 32, 1), (1, 512, 1), (4, 4, 4), (1, 32, 16), (2, 64, 64)])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("add", "int32"),
        ("add", "float32"),
        ("add", "float16"),
        ("max", "float32"),
        ("max", "float64"),
        ("max", "int8"),
        ("product", "int64"),
        ("or", "int16"),
    ],
)
def test_scans_are_those_of_one_element_after_the_other(name, dtype, shape, reverse):
    shape = tuple(1 << (length - 1).bit_length() for length in shape)
    x = whole_numbers(shape, dtype)
    if dtype.startswith("float") and name == "max":
        x[np.random.rand(*shape) < 0.1], x[np.random.rand(*shape) < 0.02] = -np.inf, np.nan
    out = np.zeros_like(x)
    scan_kernel[(1,)](array(x), array(out), *shape, name, reverse)
    along = x[:, ::-1] if reverse else x
    expected = SCANS[name].accumulate(along, axis=1, dtype=x.dtype)
    np.testing.assert_array_equal(out, expected[:, ::-1] if reverse else expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_zero_keeps_its_sign_through_a_sum(reverse):
    x, out = np.full(64, -0.0, np.float32), np.zeros(64, np.float32)
    scan_kernel[(1,)](array(x), array(out), 1, 64, 1, "add", reverse)
    assert np.signbit(out).all()


@pytest.mark.parametrize("index_type", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_elements_are_gathered_along_an_axis(axis, dtype, index_type):
    rows, columns, taken = 16, 32, 64
    x = np.random.randint(-100, 100, (rows, columns)).astype(dtype)
    shape = (rows, taken) if axis == 1 else (taken, columns)
    index = np.random.randint(0, x.shape[axis], shape).astype(index_type)
    out = np.zeros(shape, dtype)
    gather_kernel[(1,)](array(x), array(index), array(out), rows, columns, taken, axis)
    np.testing.assert_array_equal(out, np.take_along_axis(x, index.astype(np.int64), axis))


@pytest.mark.parametrize("masked", [False, True])
def test_a_histogram_counts_what_lies_in_its_bins(masked):
    x, mask = np.random.randint(0, 32, 256).astype(np.int32), np.random.randint(0, 2, 256).astype(np.int8)
    out = np.zeros(32, np.int32)
    histogram_kernel[(1,)](array(x), array(mask), array(out), 256, 32, masked)
    np.testing.assert_array_equal(out, np.bincount(x[mask != 0] if masked else x, minlength=32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
def test_integers_are_divided_towards_zero(dtype):
    n, bounds = 256, np.iinfo(dtype)
    x = np.random.randint(bounds.min, bounds.max, n, dtype=dtype)
    y = np.where(np.arange(n) % 2, np.random.randint(1, 9, n), np.random.randint(bounds.min, bounds.max, n, dtype=dtype)).astype(dtype)
    y[y == 0] = 3
    x[:4], y[:4] = [bounds.max, bounds.min, bounds.max, bounds.min], [1, 1, bounds.max, 2]
    quotient, rest, by = (np.zeros_like(x) for _ in range(3))
    divide_kernel[(1,)](array(x), array(y), array(quotient), array(rest), array(by), n)
    whole = [int(a) // int(b) if (a < 0) == (b < 0) else -(abs(int(a)) // abs(int(b))) for a, b in zip(x, y, strict=True)]
    wrapped = np.array([w if w <= bounds.max else int(bounds.min) for w in whole], dtype)
    np.testing.assert_array_equal(quotient, wrapped)
    np.testing.assert_array_equal(rest, np.array([int(a) - w * int(b) for a, b, w in zip(x, y, whole, strict=True)], dtype))
    if dtype in ("int32", "uint32", "int64"):
        expected = [int(abs(a) // 7 * 100 + abs(a) % 64) * (1 if a >= 0 else -1) for a in map(int, x)]
        mask = (1 << bounds.bits) - 1
        np.testing.assert_array_equal(by.astype(object) & mask, np.array([e & mask for e in expected], object))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "int64"])
@pytest.mark.parametrize("shape", [(64, 1), (64, 2), (16, 8), (128, 16), (4, 4), (32, 32)])
def test_rows_of_a_few_columns(shape, dtype):
    x = whole_numbers(shape, dtype)
    sums, most, scaled = np.zeros(shape[0], dtype), np.zeros(shape[0], dtype), np.zeros_like(x)
    narrow_kernel[(1,)](array(x), array(sums), array(most), array(scaled), *shape)
    np.testing.assert_array_equal(sums, x.sum(1, dtype=dtype))
    np.testing.assert_array_equal(most, x.max(1))
    by_column = (np.arange(shape[1]) + 1).astype(dtype)
    np.testing.assert_array_equal(scaled, np.where(x > 0, x * x.sum(1, dtype=dtype)[:, None], x + by_column))
