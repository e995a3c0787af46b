"""Functions of ``libdevice``: those that say how they round, those on bits, and names that a kernel's module only mentions."""

import inspect
import math

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.language import core
from triton.language.extra import libdevice

from libdevice_kernels import imported
from openmps.triton import array
from openmps.triton import libdevice as covered

N = 1024


@triton.jit
def one_kernel(x_ptr, out_ptr, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, FUNCTION(tl.load(x_ptr + at)))


@triton.jit
def two_kernel(x_ptr, y_ptr, out_ptr, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, FUNCTION(tl.load(x_ptr + at), tl.load(y_ptr + at)))


@triton.jit
def signs_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, libdevice.signbit(tl.load(x_ptr)))


@triton.jit
def error_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, libdevice.erfc(tl.load(x_ptr)))


def given(kernel, name, inputs, dtype):
    """A function of libdevice over arrays, through a function of Triton that calls it, as kernels do."""
    out = np.zeros(N, dtype)
    kernel[(1,)](*map(array, inputs), array(out), WRAPPED[name], N)
    return out


@triton.jit
def _add_rz(x, y):
    return libdevice.add_rz(x, y)


@triton.jit
def _add_rd(x, y):
    return libdevice.add_rd(x, y)


@triton.jit
def _sub_ru(x, y):
    return libdevice.sub_ru(x, y)


@triton.jit
def _mul_rz(x, y):
    return libdevice.mul_rz(x, y)


@triton.jit
def _mul_ru(x, y):
    return libdevice.mul_ru(x, y)


@triton.jit
def _div_rz(x, y):
    return libdevice.div_rz(x, y)


@triton.jit
def _div_rd(x, y):
    return libdevice.div_rd(x, y)


@triton.jit
def _div_ru(x, y):
    return libdevice.div_ru(x, y)


@triton.jit
def _remainder(x, y):
    return libdevice.remainder(x, y)


@triton.jit
def _nextafter(x, y):
    return libdevice.nextafter(x, y)


@triton.jit
def _ldexp(x, y):
    return libdevice.ldexp(x, y)


@triton.jit
def _sqrt_rz(x):
    return libdevice.sqrt_rz(tl.abs(x))


@triton.jit
def _asinh(x):
    return libdevice.asinh(x)


@triton.jit
def _acosh(x):
    return libdevice.acosh(1 + tl.abs(x))


@triton.jit
def _atanh(x):
    return libdevice.atanh(x / (tl.abs(x) + 1))


@triton.jit
def _sinpi(x):
    return libdevice.sinpi(x)


@triton.jit
def _logb(x):
    return libdevice.logb(x)


@triton.jit
def _signbit(x):
    return libdevice.signbit(x)


@triton.jit
def _rounded_up(x):
    return libdevice.float2int_ru(x)


@triton.jit
def _bits(x):
    return libdevice.float_as_int(x)


@triton.jit
def _popc(x):
    return libdevice.popc(x)


@triton.jit
def _clz(x):
    return libdevice.clz(x)


@triton.jit
def _ffs(x):
    return libdevice.ffs(x)


@triton.jit
def _brev(x):
    return libdevice.brev(x)


WRAPPED = {name: function for name, function in list(globals().items()) if isinstance(function, triton.JITFunction)}


def numbers(dtype="float32"):
    x, y = np.random.standard_normal((2, N)) * 10.0 ** np.random.randint(-6, 7, (2, N))
    return x.astype(dtype), y.astype(dtype)


def directed(exact, way):
    """Numbers of more than float32's digits, rounded down, up or towards zero."""
    near = exact.astype("float32")
    down = np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near)
    up = np.where(near < exact, np.nextafter(near, np.float32(np.inf)), near)
    return {"rd": down, "ru": up, "rz": np.where(exact > 0, down, up)}[way]


@pytest.mark.parametrize("name", ["add_rz", "add_rd", "sub_ru", "mul_rz", "mul_ru", "div_rz", "div_rd", "div_ru", "sqrt_rz"])
def test_results_are_rounded_as_the_name_says(name):
    operation, way = name.split("_")
    x, y = numbers()
    exact = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    a, b = x.astype("longdouble"), y.astype("longdouble")
    if operation == "sqrt":
        found, expected = given(one_kernel, f"_{name}", [x], "float32"), directed(np.sqrt(np.abs(a)), way)
    else:
        found, expected = given(two_kernel, f"_{name}", [x, y], "float32"), directed(exact[operation](a, b), way)
    np.testing.assert_array_equal(found, expected)


def test_what_overflows_is_the_largest_number_when_rounded_towards_zero():
    x = np.full(N, 3e38, "float32")
    largest = np.finfo("float32").max
    assert (given(two_kernel, "_add_rz", [x, x], "float32") == largest).all()
    assert (given(two_kernel, "_mul_ru", [x, x], "float32") == np.inf).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponents_neighbours_and_remainders(dtype):
    x, y = numbers(dtype)
    x[:6] = [0, -0.0, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny / 2, np.inf, -np.inf]
    np.testing.assert_array_equal(given(two_kernel, "_nextafter", [x, y], dtype), np.nextafter(x, y))
    np.testing.assert_array_equal(given(one_kernel, "_signbit", [x], "int32"), np.signbit(x))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(given(one_kernel, "_logb", [x], dtype)[2:4], np.log2(x[2:4]))
    finite = slice(6, None)
    np.testing.assert_array_equal(given(one_kernel, "_logb", [x], dtype)[finite], np.frexp(x[finite])[1] - 1)
    remainders = [math.remainder(a, b) for a, b in zip(x[finite].tolist(), y[finite].tolist())]
    np.testing.assert_array_equal(given(two_kernel, "_remainder", [x, y], dtype)[finite], np.array(remainders, dtype))
    powers = np.random.randint(-170, 150, N).astype("int32") * (1 if dtype == "float32" else 8)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(given(two_kernel, "_ldexp", [x, powers], dtype), np.ldexp(x, powers))


@pytest.mark.parametrize(
    "name, exact, ulps", [("asinh", np.arcsinh, 4), ("acosh", lambda x: np.arccosh(1 + np.abs(x)), 6), ("atanh", lambda x: np.arctanh(x / (np.abs(x) + 1)), 4), ("sinpi", None, 4)]
)
def test_inverse_hyperbolic_functions_and_turns(name, exact, ulps):
    x = numbers("float32")[0]
    x = x[np.random.randint(0, N, N)] if name != "atanh" else np.random.standard_normal(N).astype("float32")
    if name == "sinpi":
        x = (np.random.standard_normal(N) * 3).astype("float32")
        exact = lambda x: np.sin(np.pi * (x - 2 * np.round(x / 2)))
    found = given(one_kernel, f"_{name}", [x], "float32")
    wide = x.astype("float64")
    if name == "atanh":
        wide = (x / (np.abs(x) + np.float32(1))).astype("float64")
        exact = np.arctanh
    elif name == "acosh":
        wide = (np.float32(1) + np.abs(x)).astype("float64")
        exact = np.arccosh
    expected = exact(wide)
    assert (np.abs(found - expected) <= ulps * np.spacing(np.abs(expected).astype("float32"))).all()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_bits_are_counted_and_turned_round(dtype):
    limits = np.iinfo(dtype)
    x = np.random.randint(limits.min, limits.max, N, dtype) >> np.random.randint(0, limits.bits, N).astype(dtype)
    x[:3] = [0, -1, limits.min]
    texts = [format(int(number) % 2**limits.bits, f"0{limits.bits}b") for number in x]
    np.testing.assert_array_equal(given(one_kernel, "_popc", [x], "int32"), [text.count("1") for text in texts])
    np.testing.assert_array_equal(given(one_kernel, "_clz", [x], "int32"), [(text + "1").index("1") for text in texts])
    np.testing.assert_array_equal(given(one_kernel, "_ffs", [x], "int32"), [text[::-1].find("1") + 1 for text in texts])
    turned = np.array([int(text[::-1], 2) for text in texts], f"u{dtype}").astype(dtype)
    np.testing.assert_array_equal(given(one_kernel, "_brev", [x], dtype), turned)


def test_floats_as_integers():
    x = np.random.standard_normal(N).astype("float32") * 100
    np.testing.assert_array_equal(given(one_kernel, "_rounded_up", [x], "int32"), np.ceil(x))
    np.testing.assert_array_equal(given(one_kernel, "_bits", [x], "int32"), x.view("int32"))


def declared():
    return [name for name in dir(libdevice) if not name.startswith("_") and callable(getattr(libdevice, name))]


def test_every_function_that_triton_declares_is_covered():
    names = " ".join(covered.TABLE.values()).split()
    assert len(names) == len(set(names)), "each has one place"
    assert len(declared()) > 190 and not set(declared()) - set(names)


def signatures(monkeypatch):
    """Of each function the types that it takes on CUDA, and what it gives; Triton says so where it calls CUDA's own."""
    from triton.language.extra.cuda import libdevice as of_cuda

    tables = []

    class Result:
        def to(self, element, **_):
            tables[-1] = dict.fromkeys(tables[-1], (None, element))

    def call(name, path, operands, table, **_):
        tables.append(table)
        return Result()

    monkeypatch.setattr(core, "extern_elementwise", call)
    for name in declared():
        if hasattr(of_cuda, name):
            function = getattr(of_cuda, name)
            function(*[None] * (len(inspect.signature(function).parameters) - 1), _semantic=True)
            yield name, tables.pop()


def test_functions_take_and_give_the_types_that_cudas_do(monkeypatch, tmp_path):
    cases = [(name, operands, result) for name, table in signatures(monkeypatch) for operands, (_, result) in table.items()]
    monkeypatch.undo()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert len(cases) > 300
    types = {"fp32": "float32", "fp64": "float64"}
    shown = lambda element: f"tl.{types.get(str(element), str(element))}"
    lines = ["import triton", "import triton.language as tl", "from triton.language.extra import libdevice"]
    for start in range(0, len(cases), 40):
        lines += ["@triton.jit", f"def kernel_{start}(out_ptr):"]
        for name, operands, result in cases[start : start + 40]:
            zeros = ", ".join(f"tl.zeros((16,), {shown(operand)})" for operand in operands)
            lines += [f"    result = libdevice.{name}({zeros})", f"    tl.static_assert(result.dtype == {shown(result)}, '{name}')"]
            lines += ["    tl.store(out_ptr + tl.arange(0, 16), result.to(tl.float32))"]
    with imported(tmp_path, lines) as module:
        for start in range(0, len(cases), 40):
            getattr(module, f"kernel_{start}")[(1,)](array(np.zeros(16, "float32")))


def test_a_function_that_only_another_triton_declares_is_refused_where_it_is_called(monkeypatch):
    monkeypatch.setattr(covered, "signbit", covered._refused("future"))
    with pytest.raises(triton.CompilationError, match=r"libdevice\.future: not covered"):
        signs_kernel[(1,)](array(np.zeros(1, "float32")), array(np.zeros(1, "int32")))


def test_a_function_of_floats_refuses_integers():
    with pytest.raises(triton.CompilationError, match=r"libdevice\.erfc: no function of int32"):
        error_kernel[(1,)](array(np.zeros(1, "int32")), array(np.zeros(1, "float32")))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, -1e4, 1e10, -1e10, 1e30, math.inf, -math.inf, math.nan]


def length(*sides: float) -> float:
    return math.inf if any(map(math.isinf, sides)) else math.hypot(*sides)


def left_over(x: float, y: float) -> float:
    return math.nan if math.isinf(x) or y == 0 or math.isnan(x + y) else math.remainder(x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("function", "expected"), [(covered.hypot, length), (covered.rhypot, lambda x, y: np.float64(1) / length(x, y)), (covered.remainder, left_over)]
)
def test_two_special_numbers_give_what_c_gives(function, expected, dtype):
    pairs = [(x, y) for x in SPECIAL for y in SPECIAL]
    x, y = np.array(pairs, dtype).T.copy()
    filled = [np.resize(numbers, N) for numbers in (x, y)]
    found = np.zeros(N, dtype)
    two_kernel[(1,)](*map(array, filled), array(found), function, N)
    with np.errstate(all="ignore"):
        wanted = np.array([expected(float(a), float(b)) for a, b in zip(x, y, strict=True)], dtype)
    np.testing.assert_allclose(found[: len(pairs)], wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_special_number_gives_what_c_gives(dtype):
    x = np.resize(np.array(SPECIAL, dtype), N)
    with np.errstate(all="ignore"):
        functions = [(covered.acosh, np.arccosh), (covered.cbrt, np.cbrt), (covered.rcbrt, lambda x: 1 / np.cbrt(x)), (covered.tanh, np.tanh)]
        for function, expected in [*functions, (covered.expm1, np.expm1), (covered.round, np.round)]:
            found = np.zeros(N, dtype)
            one_kernel[(1,)](array(x), array(found), function, N)
            np.testing.assert_allclose(found, expected(x), rtol=1e-6)
            assert (np.signbit(found) == np.signbit(expected(x)))[~np.isnan(x) & ~np.isnan(found)].all(), function


@triton.jit
def numbers_kernel(x_ptr, out_ptr):
    at = tl.arange(0, 4)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, libdevice.div_rn(x, 2.0) + libdevice.pow(2.0, at))
    tl.store(out_ptr + 4 + at, libdevice.nextafter(2.0, x) + libdevice.remainder(7.0, x + 1) + libdevice.ldexp(1.0, at))
    tl.store(out_ptr + 8 + at, libdevice.sqrt_rn(4.0) + libdevice.popc(7) + libdevice.signbit(-1.0) + libdevice.logb(8.0) + x)


def test_numbers_of_python_are_taken_as_cuda_s_functions_take_them():
    x, found = np.array([0.5, 1, 2, 4], "float32"), np.zeros(12, "float32")
    numbers_kernel[(1,)](array(x), array(found))
    after = np.nextafter(np.float32(2), x) + np.array([math.remainder(7, number + 1) for number in x]) + [1, 2, 4, 8]
    np.testing.assert_allclose(found, np.concatenate([x / 2 + [1, 2, 4, 8], after, 2 + 3 + 1 + 3 + x]), rtol=1e-6)
