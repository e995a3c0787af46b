"""What kernels say of single elements: functions mapped over tiles, waiting for flags, lines that are printed, roundings by name."""

import subprocess
import sys

import numpy as np
import pytest
import triton
import triton.language as tl

import versions
from openmps.triton import array


@triton.jit
def branching(x, y):
    if x > y:
        if y == 2:
            return x * 10, y
        return x + 1, y + 1
    elif x == y:
        return x, y * 3
    else:
        return y, x


@triton.jit
def swapping(x0, x1, x2, x3, y0, y1, y2, y3):
    return x0 // y0, x1 // y1, x2 // y2, x3 // y3, x0 % y0, x1 % y1, x2 % y2, x3 % y3


@triton.jit
def mapping_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    larger, smaller = tl.map_elementwise(branching, x, y)
    quotient, remainder = tl.map_elementwise(swapping, x, y + 1, pack=4)
    tl.store(out_ptr + at, larger)
    tl.store(out_ptr + N + at, smaller)
    tl.store(out_ptr + 2 * N + at, quotient)
    tl.store(out_ptr + 3 * N + at, remainder)


@triton.jit
def running_kernel(x_ptr, out_ptr, N: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.cumsum(tl.load(x_ptr + at), 0, reverse=REVERSE))


@triton.jit
def waiting_kernel(flag_ptr, out_ptr):
    at = tl.arange(0, 4)
    tl.atomic_store(flag_ptr + at, 7)
    arrived = tl.atomic_poll(flag_ptr + at, 7) & tl.atomic_poll(flag_ptr, 7)
    tl.store(out_ptr + at, arrived.to(tl.int32) + 1)


@triton.jit
def reading_kernel(flag_ptr, x_ptr, out_ptr, seen_ptr):
    while tl.load(flag_ptr, volatile=True) == 0:
        pass
    at = tl.arange(0, 4)
    tl.store(out_ptr + at, tl.atomic_load(x_ptr + at))
    tl.store(seen_ptr + at, tl.atomic_load(flag_ptr + at, mask=at < 3), mask=at < 3)


@triton.jit
def impatient_kernel(flag_ptr):
    tl.atomic_poll(flag_ptr, 1, timeout_ns=1000)


@triton.jit
def towards_zero_kernel(x_ptr, half_ptr, brain_ptr, byte_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(half_ptr + at, x.to(tl.float16, fp_downcast_rounding="rtz"))
    tl.store(brain_ptr + at, x.to(tl.bfloat16, fp_downcast_rounding="rtz").to(tl.float32))
    tl.store(byte_ptr + at, x.to(tl.float8e5, fp_downcast_rounding="rtz").to(tl.uint8, bitcast=True))


@triton.jit
def b15_kernel(x_ptr, byte_ptr, back_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    byte = tl.load(x_ptr + at).to(tl.float8e4b15)
    tl.store(byte_ptr + at, byte.to(tl.uint8, bitcast=True))
    every = at.to(tl.uint8).to(tl.float8e4b15, bitcast=True)
    tl.store(back_ptr + at, every.to(tl.float32))


@triton.jit
def truth_kernel(x_ptr, y_ptr, out_ptr, product_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at) != 0, tl.load(y_ptr + at) != 0
    bits = (x * y).to(tl.int32) + (x + y).to(tl.int32) * 2 + (x - y).to(tl.int32) * 4 + (x < y).to(tl.int32) * 8
    bits += (x >= y).to(tl.int32) * 16 + tl.maximum(x, y).to(tl.int32) * 32 + tl.minimum(x, y).to(tl.int32) * 64 + (x << y).to(tl.int32) * 128
    tl.store(out_ptr + at, bits)
    tl.store(product_ptr, tl.reduce(x, 0, times).to(tl.int32) + 2 * tl.sum(x, 0).to(tl.int32))


@triton.jit
def times(x, y):
    return x * y


def test_booleans_are_integers_of_one_bit():
    x, y = np.array([[0, 0, 1, 1], [0, 1, 0, 1]], "int32")
    out, product = np.zeros(4, "int32"), np.zeros(1, "int32")
    truth_kernel[(1,)](array(x), array(y), array(out), array(product), 4)
    sums = (x & y) + (x ^ y) * 6 + (x < y) * 8 + (x >= y) * 16 + (x | y) * 32 + (x & y) * 64 + (x & ~y & 1) * 128
    np.testing.assert_array_equal(out, sums)
    assert product[0] == 4


def test_a_function_is_mapped_over_the_elements_of_tiles():
    x, y = np.random.randint(0, 4, (2, 32)).astype("int32")
    out = np.zeros((4, 32), "int32")
    mapping_kernel[(1,)](array(x), array(y), array(out), 32)
    greater, equal = x > y, x == y
    first = np.where(greater, np.where(y == 2, x * 10, x + 1), np.where(equal, x, y))
    second = np.where(greater, np.where(y == 2, y, y + 1), np.where(equal, y * 3, x))
    np.testing.assert_array_equal(out, [first, second, x // (y + 1), x % (y + 1)])


def test_functions_of_functions_are_called():
    """A function with several returns is not inlined by Triton in a loop or condition; its name has `<locals>` in it."""

    @triton.jit
    def sign(x):
        if x < 0:
            return -1
        elif x == 0:
            return 0
        return 1

    @triton.jit
    def kernel(x_ptr, out_ptr, n, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(out_ptr + at, tl.map_elementwise(sign, tl.load(x_ptr + at)))
        i = 0
        while tl.condition(i < n, disable_licm=True):
            tl.store(out_ptr + N + i, sign(tl.load(x_ptr + i)))
            i += 1

    x, out = np.array([3, -1, 0, -7], "int32"), np.zeros((2, 4), "int32")
    kernel[(1,)](array(x), array(out), 4, 4)
    np.testing.assert_array_equal(out, [np.sign(x)] * 2)


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_of_half_types_are_rounded_once(reverse):
    # Rounded at each step, the sum of ones would stop at 2048.
    x = np.ones(4096, "float16") + np.arange(4096, dtype="float16") % 2
    out = np.zeros_like(x)
    running_kernel[(1,)](array(x), array(out), 4096, reverse)
    exact = np.cumsum(x[::-1], dtype="float64")[::-1] if reverse else np.cumsum(x, dtype="float64")
    np.testing.assert_array_equal(out, exact.astype("float16"))


@versions.needs(hasattr(tl, "atomic_load"), "tl.atomic_load and tl.atomic_poll")
def test_waiting_for_flags():
    flag, out = np.zeros((2, 4), "int32")
    waiting_kernel[(1,)](array(flag), array(out))
    np.testing.assert_array_equal([flag, out], [[7] * 4, [2] * 4])


@versions.needs(hasattr(tl, "atomic_load"), "tl.atomic_load and tl.atomic_poll")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_reading_what_others_write_changes_nothing(dtype):
    flag, seen = np.array([1, -2, 3, 4], "int32"), np.zeros(4, "int32")
    # Zeros of both signs, the smallest number, a NaN that signals: bits are read, and nothing is written.
    bits = {"float32": [0x80000000, 1, 0x7F800001, 0xC0600000], "float16": [0x8000, 1, 0x7C01, 0xC300], "int32": [0, 1, 2**31, 2**32 - 1]}
    x = np.array(bits[dtype], "uint16" if dtype == "float16" else "uint32").view(dtype)
    x.flags.writeable = flag.flags.writeable = False
    out = np.ones_like(x)
    reading_kernel[(1,)](array(flag), array(x), array(out), array(seen))
    np.testing.assert_array_equal(seen, [1, -2, 3, 0])
    assert out.tobytes() == x.tobytes()


@versions.needs(hasattr(tl, "atomic_load"), "tl.atomic_load and tl.atomic_poll")
def test_waiting_for_a_limited_time_is_refused():
    with pytest.raises(NotImplementedError, match="tt.atomic_poll: a limit of time"):
        impatient_kernel[(1,)](array(np.zeros(1, "int32")))


def test_roundings_towards_zero():
    x = np.random.standard_normal(256).astype("float32") * 10.0 ** np.random.randint(-9, 6, 256)
    x = x.astype("float32")
    x[:8] = [1e9, -1e9, np.inf, -np.inf, 0.0, -0.0, 65519.0, np.nan]
    half, brain, byte = np.zeros(256, "float16"), np.zeros(256, "float32"), np.zeros(256, "uint8")
    towards_zero_kernel[(1,)](array(x), array(half), array(brain), array(byte), 256)
    nearest = np.clip(x, -65504, 65504).astype("float16")
    bits = nearest.view("int16") - (np.abs(nearest.astype("float64")) > np.abs(x.astype("float64"))).astype("int16")
    expected = np.where(np.isinf(x), x, bits.view("float16"))
    np.testing.assert_array_equal(half, expected)
    np.testing.assert_array_equal(brain, np.where(np.isnan(x), x, (x.view("uint32") & 0xFFFF0000).view("float32")))
    # A float8e5 is the upper half of a float16, and beyond its range the largest finite one.
    upper = (bits.view("uint16") >> 8).astype("uint8")
    is_finite = ~(np.isinf(x) | np.isnan(x))
    np.testing.assert_array_equal(byte[is_finite], upper[is_finite])


def test_float8e4b15():
    x = np.concatenate([np.linspace(-2.5, 2.5, 248), [0.0, -0.0, 1e-9, 2.0**-17, 3 * 2.0**-18, 6e4, -6e4, 1.8]]).astype("float16")
    byte, back = np.zeros(256, "uint8"), np.zeros(256, "float32")
    b15_kernel[(1,)](array(x), array(byte), array(back), 256)
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, fraction * 2.0**-17, (8 + fraction) * 2.0 ** (exponent - 18.0)) * np.where(codes < 128, 1, -1)
    np.testing.assert_array_equal(back, value)
    # The largest is 1.75 (0x7e); of two that are as near the even one is taken.
    magnitude = np.minimum(np.abs(x.astype("float64")), 1.75)
    distance = np.abs(value[None, :127] - magnitude[:, None])
    nearest = np.lexsort((codes[None, :127] + np.zeros_like(distance), codes[None, :127] % 2 + np.zeros_like(distance), distance), axis=1)[:, 0]
    np.testing.assert_array_equal(byte, nearest | np.where(np.signbit(x), 128, 0))


PRINTING = """
import numpy as np, triton, triton.language as tl
from openmps.triton import array

@triton.jit
def kernel(x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.device_print("x", x)
    tl.device_print("bits", tl.program_id(0) + 10, hex=True)
    print("")
    tl.device_print("two", at[None, :] - 1, (at[None, :] > 0))

kernel[(3,)](array(np.array([-1.5, np.inf], "float32")), 2)
"""


def test_lines_are_printed_in_the_order_of_programs(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PRINTING)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    expected = []
    for program in range(3):
        pid = f"pid ({program}, 0, 0)"
        expected += [f"{pid} idx (0) x: -1.500000", f"{pid} idx (1) x: inf", f"{pid} idx () bits: 0x{program + 10:08x}", pid]
        expected += [f"{pid} idx (0, 0) two: (operand 0) -1", f"{pid} idx (0, 1) two: (operand 0) 0"]
        expected += [f"{pid} idx (0, 0) two: (operand 1) 0", f"{pid} idx (0, 1) two: (operand 1) 1"]
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected, done.stderr


@triton.jit
def integers_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at).to(out_ptr.dtype.element_ty))


@pytest.mark.parametrize("source", ["float32", "float16", "float64"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16"])
def test_floats_become_the_low_bits_of_short_integers(source, target):
    """As in NumPy and so in Triton's interpreter; what int32 does not reach, and NaN, becomes 0."""
    x = np.array([0.9, -0.9, -1, 127.5, 128, 200, -129, 255, 256, 300, -300, 40_000, 65_504, np.inf, -np.inf, np.nan], source)
    out = np.full(x.size, 77, target)
    integers_kernel[(1,)](array(x), array(out), x.size)
    expected = np.where(np.isfinite(x), np.trunc(np.nan_to_num(x.astype("float64"), posinf=0, neginf=0)), 0).astype("int64").astype(target)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("target", ["int32", "uint32", "int64", "uint64"])
def test_floats_become_the_nearest_of_long_integers(target):
    x, limits = np.array([-1.5, 1e30, -1e30, np.nan, 3e9, -3e9, 7.9, 0], "float32"), np.iinfo(target)
    out = np.full(x.size, 77, target)
    integers_kernel[(1,)](array(x), array(out), x.size)
    assert out.tolist() == [min(max(int(number), limits.min), limits.max) for number in np.nan_to_num(x).tolist()]
