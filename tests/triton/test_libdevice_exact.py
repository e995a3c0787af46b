"""Functions of ``libdevice`` whose results are exact: integers, bits, and what is rounded once."""

from fractions import Fraction

import numpy as np
import pytest

import libdevice_kernels
from libdevice_kernels import N, given

WAYS = ["rz", "rd", "ru"]
CALLS = {
    **{name: f"libdevice.{name}(a, b)" for name in "mulhi mul24 hadd rhadd hiloint2double".split()},
    **{name: f"libdevice.{name}(a, b, c)" for name in "byte_perm sad fma_rn fma_rz fma_rd fma_ru".split()},
    **{name: f"libdevice.{name}(a)" for name in "double2hiint double2loint rcp64h rsqrt_rn exp10 abs ilogb rcp_rd rcp_rn isnan".split()},
    **{
        f"{name}_{way}": f"libdevice.{name}_{way}(a)"
        for name in ("int2float", "uint2float", "ll2float", "ull2float", "ll2double", "ull2double", "float2uint")
        for way in [*WAYS, "rn"]
    },
    "div_rn": "libdevice.div_rn(a, b)",
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    with libdevice_kernels.written(tmp_path_factory.mktemp("exact"), CALLS) as module:
        yield module


def integers(dtype, count=2):
    """Of all sizes, with the limits."""
    limits = np.iinfo(dtype)
    random = np.random.default_rng(7).integers(limits.min, limits.max, (count, N), dtype, endpoint=True)
    found = random >> np.random.randint(0, limits.bits, (count, N)).astype(dtype)
    found[:, :4] = [limits.min, limits.max, 0, 1]
    found[-1, :4] = [limits.min, limits.max, limits.max, limits.min]
    return found


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_the_upper_half_of_a_product(kernels, dtype):
    x, y = integers(dtype)
    bits = np.iinfo(dtype).bits
    np.testing.assert_array_equal(given(kernels, "mulhi", dtype, x, y), [a * b >> bits for a, b in zip(x.tolist(), y.tolist())])


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_products_and_sums_of_32_bits(kernels, dtype):
    x, y, z = integers(dtype, 3)
    # A sign is that of the lower 24 bits.
    of_24 = lambda number: (number & 0xFFFFFF) - (1 << 24 if dtype == "int32" and number & 0x800000 else 0)
    low = lambda number: np.array(number & 0xFFFFFFFF, "uint32").astype(dtype)
    pairs = list(zip(x.tolist(), y.tolist()))
    np.testing.assert_array_equal(given(kernels, "mul24", dtype, x, y), [low(of_24(a) * of_24(b)) for a, b in pairs])
    np.testing.assert_array_equal(given(kernels, "hadd", dtype, x, y), [(a + b) >> 1 for a, b in pairs])
    np.testing.assert_array_equal(given(kernels, "rhadd", dtype, x, y), [(a + b + 1) >> 1 for a, b in pairs])
    sums = [low(abs(a - b) + c) for (a, b), c in zip(pairs, z.tolist())]
    np.testing.assert_array_equal(given(kernels, "sad", dtype, x, y, z.astype("uint32")), sums)


def test_bytes_are_chosen(kernels):
    x, y, selector = integers("int32", 3)
    expected = []
    for a, b, places in zip(*(numbers.view("uint32").tolist() for numbers in (x, y, selector))):
        both = a | b << 32
        expected.append(sum((both >> 8 * (places >> 4 * place & 7) & 0xFF) << 8 * place for place in range(4)))
    np.testing.assert_array_equal(given(kernels, "byte_perm", "int32", x, y, selector).view("uint32"), expected)


def directed(number, way, dtype):
    """An exact number as the next float below, above, or towards zero."""
    # What a float64 has been rounded to may be on either side of it; the neighbours are looked at.
    near = np.nextafter(np.dtype(dtype).type(float(number)), np.dtype(dtype).type(0))
    candidates = [near]
    for _ in range(2):
        candidates.append(np.nextafter(candidates[-1], near.dtype.type(np.inf if number > 0 else -np.inf)))
    exact = [value for value in candidates if Fraction(float(value)) == number]
    if exact:
        return exact[0]
    below = [value for value in candidates if Fraction(float(value)) < number]
    beyond = [value for value in candidates if Fraction(float(value)) > number]
    is_down = way == "rd" or (way == "rz" and number > 0)
    return max(below) if is_down else min(beyond)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name, dtype, element",
    [
        ("int2float", "int32", "float32"),
        ("uint2float", "uint32", "float32"),
        ("ll2float", "int64", "float32"),
        ("ull2float", "uint64", "float32"),
        ("ll2double", "int64", "float64"),
        ("ull2double", "uint64", "float64"),
    ],
)
def test_integers_are_rounded_as_the_name_says(kernels, name, dtype, element, way):
    x = integers(dtype)[0]
    expected = [directed(Fraction(number), way, element) for number in x.tolist()]
    np.testing.assert_array_equal(given(kernels, f"{name}_{way}", element, x), expected)
    np.testing.assert_array_equal(given(kernels, f"{name}_rn", element, x), x.astype(element))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("way", WAYS)
def test_a_product_and_a_sum_are_rounded_together(kernels, way, dtype):
    x, y, z = (np.random.standard_normal((3, N)) * 10.0 ** np.random.randint(-6, 7, (3, N))).astype(dtype)
    # Sums that nearly cancel have the product's last digits.
    z[::2] = -(x * y)[::2]
    z[::8] = np.nextafter(z[::8], z.dtype.type(0))
    exact = [Fraction(a) * Fraction(b) + Fraction(c) for a, b, c in zip(x.tolist(), y.tolist(), z.tolist())]
    expected = [directed(number, way, dtype) for number in exact]
    np.testing.assert_array_equal(given(kernels, f"fma_{way}", dtype, x, y, z), expected)


def test_halves_of_a_float64(kernels):
    x = np.random.standard_normal(N) * 10.0 ** np.random.randint(-300, 300, N)
    high, low = given(kernels, "double2hiint", "int32", x), given(kernels, "double2loint", "int32", x)
    np.testing.assert_array_equal(high, (x.view("int64") >> 32).astype("int32"))
    np.testing.assert_array_equal(low, x.view("int64").astype("int32"))
    np.testing.assert_array_equal(given(kernels, "hiloint2double", "float64", high, low), x)
    x[:6] = [0, -0.0, np.inf, -np.inf, 1e-310, 8e307]
    expected = [np.inf, -np.inf, 0, -0.0, np.inf, 0]
    found = given(kernels, "rcp64h", "float64", x)
    np.testing.assert_array_equal(found[:6], expected)
    assert (found.view("int64") & 0xFFFFFFFF == 0).all()
    np.testing.assert_allclose(found[6:], 1 / x[6:], rtol=2**-19)


def test_the_reciprocal_root_is_the_nearest_number(kernels):
    x = np.exp(np.random.uniform(-87, 88, N)).astype("float32")
    x[:9] = [0, -0.0, np.inf, -1, np.nan, 1, np.finfo("float32").max, np.finfo("float32").smallest_subnormal, np.finfo("float32").tiny / 3]
    found = given(kernels, "rsqrt_rn", "float32", x)
    np.testing.assert_array_equal(found[:6], [np.inf, -np.inf, 0, np.nan, np.nan, 1])
    for number, root in zip(x[5:].tolist(), found[5:]):
        # The middles between it and its neighbours lie on both sides.
        below, above = ((Fraction(float(root)) + Fraction(float(np.nextafter(root, np.float32(side))))) / 2 for side in (0, np.inf))
        assert below**2 * Fraction(number) < 1 < above**2 * Fraction(number), number


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_powers_of_ten_and_exponents(kernels, dtype):
    x, y = np.random.standard_normal((2, N)).astype(dtype)
    np.testing.assert_array_equal(given(kernels, "div_rn", dtype, x, y), x / y)
    np.testing.assert_array_equal(given(kernels, "rcp_rn", dtype, x), 1 / x)
    limit = 37 if dtype == "float32" else 300
    x = np.random.uniform(-limit, limit, N).astype(dtype)
    np.testing.assert_allclose(given(kernels, "exp10", dtype, x), 10 ** x.astype("longdouble"), rtol=2 * np.finfo(dtype).eps)
    special = np.array([np.inf, -np.inf, np.nan, 0, 1], dtype)
    np.testing.assert_array_equal(given(kernels, "exp10", dtype, special), [np.inf, 0, np.nan, 1, 10])
    np.testing.assert_array_equal(given(kernels, "ilogb", "int32", special), [2**31 - 1, 2**31 - 1, -(2**31), -(2**31), 0])
    np.testing.assert_array_equal(given(kernels, "rcp_rd", dtype, special), [0, -0.0, np.nan, np.inf, 1])
    np.testing.assert_array_equal(given(kernels, "isnan", "bool", special), np.isnan(special))


def test_absolute_values_of_integers_and_integers_without_a_sign(kernels):
    x = np.arange(-500, 524, dtype="int32")
    np.testing.assert_array_equal(given(kernels, "abs", "int32", x), np.abs(x))
    numbers = np.random.uniform(0, 2**32 - 300, N).astype("float32")
    for way, whole in {"rz": np.trunc, "rd": np.floor, "ru": np.ceil, "rn": np.rint}.items():
        np.testing.assert_array_equal(given(kernels, f"float2uint_{way}", "int32", numbers).view("uint32"), whole(numbers).astype("uint32"))
