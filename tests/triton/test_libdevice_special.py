"""The error function's family, the gamma function and the Bessel functions of ``libdevice``, beside float64 and integrals."""

import math
import statistics

import numpy as np
import pytest

import libdevice_kernels
from libdevice_kernels import N

#: Functions of one number.
ONE = "erfc erfcx erfinv erfcinv normcdf normcdfinv lgamma tgamma j0 j1 y0 y1 cyl_bessel_i0 cyl_bessel_i1".split()


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    calls = {name: f"libdevice.{name}(a)" for name in ONE} | {name: f"libdevice.{name}(b, a)" for name in ("jn", "yn")}
    with libdevice_kernels.written(tmp_path_factory.mktemp("special"), calls) as module:
        yield module


def given(kernels, name, x, order=0):
    return libdevice_kernels.given(kernels, name, x.dtype, x, np.asarray(order, "int32")).astype("float64")


def scaled_erfc(x):
    """e^(x^2) erfc(x), for large x as a continued fraction."""
    if x < 3:
        return math.exp(x * x) * math.erfc(x)
    value = x
    for step in range(200, 0, -1):
        value = x + step / 2 / value
    return 1 / value / math.sqrt(math.pi)


def inverse_erf(x):
    return newton(x, lambda found: x - math.erf(found)) if abs(x) <= 0.5 else inverse_erfc(1 - x)


def inverse_erfc(y):
    if abs(1 - y) <= 0.5:
        return inverse_erf(1 - y)
    return newton(math.sqrt(-math.log(y)), lambda found: math.erfc(found) - y) if y < 1 else -inverse_erfc(2 - y)


def newton(found, lacking):
    for _ in range(60):
        found += lacking(found) * math.sqrt(math.pi) / 2 * math.exp(found * found)
    return found


TURN = (np.arange(1024) + np.longdouble(0.5)) * np.longdouble("6.283185307179586476925286766559") / 1024
NODES, WEIGHTS = np.polynomial.legendre.leggauss(300)


def integral(function, end):
    return float(WEIGHTS @ function((NODES + 1) * end / 2) * end / 2)


def bessel_j(order, x):
    # A sum over a whole period is exact but for what is far smaller than its digits.
    return float(np.cos(order * TURN - np.longdouble(x) * np.sin(TURN)).mean())


def bessel_y(order, x):
    end = math.asinh(60 / x) + order
    decaying = lambda t: (np.exp(order * t - x * np.sinh(t)) + (-1) ** order * np.exp(-order * t - x * np.sinh(t)))
    return (integral(lambda t: np.sin(x * np.sin(t) - order * t), math.pi) - integral(decaying, end)) / math.pi


def bessel_i(order, x):
    return float((np.exp(np.longdouble(x) * np.cos(TURN)) * np.cos(order * TURN)).mean())


def between(low, high):
    return lambda: np.random.uniform(low, high, N)


def powers(low, high):
    return lambda: np.exp(np.random.uniform(math.log(low), math.log(high), N))


#: Name, what is exact, numbers, last digits that float32 may be off, and float64 (which what is exact is computed in).
CASES = [
    ("erfc", math.erfc, between(-6, 9), 4, 6),
    ("erfcx", scaled_erfc, between(-3, 20), 4, 40),
    ("erfcx", lambda x: 1 / x / math.sqrt(math.pi), powers(1e9, 1e30), 3, 4),
    ("erfinv", inverse_erf, between(-1, 1), 4, 8),
    ("erfinv", lambda x: x * math.sqrt(math.pi) / 2 * (1 + math.pi * x * x / 12), powers(1e-30, 1e-4), 3, 4),
    ("erfcinv", inverse_erfc, between(0, 2), 4, 8),
    ("erfcinv", inverse_erfc, powers(1e-37, 1), 4, 8),
    ("normcdf", lambda x: math.erfc(-x / math.sqrt(2)) / 2, between(-2, 8), 4, 10),
    ("normcdfinv", statistics.NormalDist().inv_cdf, between(1e-7, 1), 4, 16),
    ("lgamma", math.lgamma, between(1e-6, 30), 6, 16),
    ("lgamma", math.lgamma, between(-2.25, 0), 6, 16),
    ("lgamma", math.lgamma, powers(1e-30, 1e30), 4, 8),
    ("tgamma", math.gamma, between(1e-6, 34), 5, 16),
    ("tgamma", math.gamma, between(-30, 0), 5, 16),
    ("cyl_bessel_i0", lambda x: bessel_i(0, x), between(-80, 80), 6, 8),
    ("cyl_bessel_i1", lambda x: bessel_i(1, x), between(-80, 80), 6, 8),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda index: f"{CASES[index][0]}-{index}")
def test_functions_are_exact_but_for_a_few_last_digits(kernels, case, dtype):
    name, exact, numbers, of_single, of_double = CASES[case]
    x = numbers().astype(dtype)
    expected = np.array([exact(number) for number in x.tolist()])
    allowed = (of_single if dtype == "float32" else of_double) * np.spacing(np.abs(expected).astype(dtype))
    if name == "lgamma" and dtype == "float64":
        allowed = np.maximum(allowed, 1e-15)  # Python's own is no better near its zeros.
    wrong = ~(np.abs(given(kernels, name, x) - expected) <= allowed)
    assert not wrong.any(), (x[wrong][:3], given(kernels, name, x)[wrong][:3], expected[wrong][:3])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["j0", "j1", "y0", "y1"])
def test_bessel_functions_near_and_far(kernels, name, dtype):
    near, far = np.random.uniform(0.05, 8, 300), np.random.uniform(8, 60, 300)
    x = np.concatenate([near, far, np.exp(np.random.uniform(-30, 0, 200))]).astype(dtype)
    x = x[x > 0.02] if name[0] == "y" else np.concatenate([x, -x[:200]])
    of = bessel_j if name[0] == "j" else bessel_y
    expected = np.array([of(int(name[1]), number) for number in x.tolist()])
    error = np.abs(given(kernels, name, x) - expected)
    # As CUDA's: digits up to 8, where the zeros count too, and beyond it the distance. The integrals are sums of what is larger.
    allowed = 9 * np.spacing(np.abs(expected).astype(dtype)) + (0 if dtype == "float32" else 4e-14 * (1 + np.abs(expected)))
    assert (error <= np.where(np.abs(x) < 8, allowed, 1e-6 if dtype == "float32" else 1e-13)).all()


@pytest.mark.parametrize("dtype, least", [("float32", 1e-6), ("float64", 1e-13)])
@pytest.mark.parametrize("name", ["jn", "yn"])
def test_bessel_functions_of_any_order(kernels, name, dtype, least):
    orders = np.random.randint(0, 40, 300).astype("int32")
    x = np.random.uniform(1, 60, 300).astype(dtype)
    of = bessel_j if name == "jn" else bessel_y
    expected = np.array([of(order, number) for order, number in zip(orders.tolist(), x.tolist())])
    is_finite = np.abs(expected) < np.finfo(dtype).max / 2
    error = np.abs(given(kernels, name, x, orders) - expected)
    assert (error <= 20 * least * (1 + np.abs(expected)))[is_finite].all()
    if name == "jn":
        # (x / 2)^n / n! (1 - (x / 2)^2 / (n + 1)) where x is small.
        x, orders = np.exp(np.random.uniform(-4, -2, 300)).astype(dtype), np.random.randint(2, 8, 300).astype("int32")
        z = (x.astype("float64") / 2) ** 2
        terms = [(-z) ** k / (math.factorial(k) * np.array([math.factorial(n + k) for n in orders.tolist()], float)) for k in range(8)]
        expected = (x.astype("float64") / 2) ** orders * sum(terms)
        np.testing.assert_allclose(given(kernels, name, x, orders), expected, rtol=20 * np.finfo(dtype).eps)


INF, NAN = math.inf, math.nan
SPECIAL = {
    "erfc": [(INF, 0), (-INF, 2), (0, 1), (-0.0, 1)],
    "erfcx": [(INF, 0), (-INF, INF), (0, 1)],
    "erfinv": [(0, 0), (-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (-INF, NAN)],
    "erfcinv": [(0, INF), (2, -INF), (1, 0), (-1, NAN), (2.5, NAN), (INF, NAN)],
    "normcdf": [(INF, 1), (-INF, 0), (0, 0.5)],
    "normcdfinv": [(0, -INF), (1, INF), (0.5, 0), (-0.5, NAN), (1.5, NAN)],
    "lgamma": [(1, 0), (2, 0), (0, INF), (-0.0, INF), (-3, INF), (INF, INF), (-INF, INF)],
    "tgamma": [(1, 1), (2, 1), (0, INF), (-0.0, -INF), (-3, NAN), (INF, INF), (-INF, NAN), (1000, INF), (-1000.5, -0.0)],
    "j0": [(0, 1), (INF, 0), (-INF, 0)],
    "j1": [(0, 0), (-0.0, -0.0), (INF, 0), (-INF, -0.0)],
    "y0": [(0, -INF), (-0.0, -INF), (-1, NAN), (INF, 0), (-INF, NAN)],
    "y1": [(0, -INF), (-0.0, -INF), (-1, NAN), (INF, 0), (-INF, NAN), (1e-45, -INF)],
    "cyl_bessel_i0": [(0, 1), (INF, INF), (-INF, INF)],
    "cyl_bessel_i1": [(0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_numbers(kernels, name, dtype):
    cases = [(NAN, NAN), *SPECIAL[name]]
    if dtype == "float64":
        cases = [case for case in cases if case[0] != 1e-45]
    x, expected = np.array(cases, dtype).T.copy()
    found = given(kernels, name, x)
    np.testing.assert_array_equal(found, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[is_number]), np.signbit(expected[is_number]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_numbers_of_any_order(kernels, dtype):
    orders, x, of_first, of_second = zip(
        (0, 0, 1, -INF),
        (3, 0, 0, -INF),
        (3, INF, 0, 0),
        (2, NAN, NAN, NAN),
        (-1, 1, NAN, NAN),
        (2, -1, 0.11490348493190048, NAN),
        (3, -1, -0.019563353982668407, NAN),
        (12, 1e-30, 0, -INF),
    )
    x = np.array(x, dtype)
    for name, expected in (("jn", of_first), ("yn", of_second)):
        found = given(kernels, name, x, np.array(orders, "int32"))
        np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps)


def test_halves_are_computed_in_float32(kernels):
    x = np.linspace(-3, 3, 100).astype("float16")
    expected = np.array([math.erfc(number) for number in x.tolist()])
    np.testing.assert_array_equal(given(kernels, "erfc", x), expected.astype("float16"))
