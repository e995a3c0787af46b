"""PTX in kernels (`tl.inline_asm_elementwise`): instructions of one element, on bits, on two floats in a register, and of several elements at once."""

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array


@triton.jit
def assembly_kernel(x_ptr, y_ptr, out_ptr, ASSEMBLY: tl.constexpr):
    at = tl.arange(0, 64)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, tl.inline_asm_elementwise(ASSEMBLY, "=f,f,f", [x, y], dtype=tl.float32, is_pure=True, pack=1))


@pytest.mark.parametrize(
    ("assembly", "function"),
    [
        ("tanh.approx.f32 $0, $1;", lambda x, y: np.tanh(x)),
        ("ex2.approx.ftz.f32 $0, $1;", lambda x, y: np.exp2(x)),
        ("lg2.approx.f32 $0, $2;", lambda x, y: np.log2(y)),
        ("rcp.approx.ftz.f32 $0, $2;", lambda x, y: 1 / y),
        ("mov.b32 $0, $2;", lambda x, y: y),
        ("cvt.rzi.f32.f32 $0, $1;", lambda x, y: np.trunc(x)),
        ("{ .reg .f16 h; cvt.rn.f16.f32 h, $1; cvt.f32.f16 $0, h; }", lambda x, y: x.astype("float16").astype("float32")),
        ("{ .reg .s32 i; cvt.rpi.ftz.f32.f32 $0, $2; cvt.rzi.s32.f32 i, $0; cvt.rn.f32.s32 $0, i; }", lambda x, y: np.ceil(y)),
        ("cvt.rna.tf32.f32 $0, $1;", lambda x, y: ((x.view("int32") + 0x1000) & ~0x1FFF).view("float32")),
        ("add.sat.f32 $0, $1, $2;", lambda x, y: np.clip(x + y, 0, 1)),
        ("{ .reg .pred p; setp.gt.f32 p, $1, $2; selp.f32 $0, $1, $2, p; }", np.maximum),
        ("{\n .reg .f32 t;\n mul.f32 t, $1, $2; // a product\n fma.rn.f32 $0, t, $2, 0f3F800000;\n}", lambda x, y: x * y * y + 1),
    ],
)
def test_inline_assembly_of_known_instructions(assembly, function):
    random = np.random.default_rng(0)
    x, y, out = random.standard_normal(64).astype("float32"), random.random(64).astype("float32") + 0.5, np.zeros(64, "float32")
    assembly_kernel[(1,)](array(x), array(y), array(out), assembly)
    np.testing.assert_allclose(out, function(x, y), rtol=1e-6)


def test_inline_assembly_of_other_instructions_is_refused_by_name():
    x = np.zeros(64, "float32")
    with pytest.raises(NotImplementedError, match=r"the PTX .max.xorsign.abs.f32 \$0, \$1, \$2.: not covered"):
        assembly_kernel[(1,)](array(x), array(x), array(x.copy()), "max.xorsign.abs.f32 $0, $1, $2;")


@triton.jit
def permuted(x, y, selector):
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [x, y, selector], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def unpacked_halves(weight, TABLE: tl.constexpr):
    """Two integers of 4 bits as float16, as AWQ's kernels take them out of a word: the numbers 1024 + n, less 1024."""
    assembly: tl.constexpr = """{
        .reg .b32 both;
        lop3.b32 both, $2, $3, $4, $5;
        sub.f16x2 both, both, $6;
        mov.b32 {$0, $1}, both;
    }"""
    arguments = [weight, 0x000F000F, 0x64006400, TABLE, 0x64006400]
    return tl.inline_asm_elementwise(assembly, "=h,=h,r,n,n,n,r", arguments, dtype=(tl.float16, tl.float16), is_pure=True, pack=1)


@triton.jit
def bits_kernel(x_ptr, y_ptr, out_ptr, halves_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, permuted(x, y, 0x7610))
    tl.store(out_ptr + N + at, permuted(x, y, x))
    rotated = tl.inline_asm_elementwise("shf.l.wrap.b32 $0, $1, $2, 7;", "=r,r,r", [x, y], dtype=tl.uint32, is_pure=True, pack=1)
    tl.store(out_ptr + 2 * N + at, rotated)
    low, high = unpacked_halves(x, 0xEA)
    tl.store(halves_ptr + at, low)
    tl.store(halves_ptr + N + at, high)


def permutation(x, y, selector):
    """The bytes that half bytes of the selector name; with their highest bit, the sign of those."""
    both = np.stack([x, y], 1).view("uint8")
    half_bytes = (selector[:, None] >> np.arange(0, 16, 4)) & 15
    named = np.take_along_axis(both, (half_bytes & 7).astype("int64"), 1)
    signs = np.where(named >= 128, 255, 0).astype("uint8")
    return np.where(half_bytes >= 8, signs, named).copy().view("uint32")[:, 0]


def test_inline_assembly_on_bits():
    n = 128
    x, y = np.random.randint(0, 2**32, (2, n), dtype="uint32")
    out, halves = np.zeros((3, n), "uint32"), np.zeros((2, n), "float16")
    bits_kernel[(1,)](array(x), array(y), array(out), array(halves), n)
    np.testing.assert_array_equal(out[0], permutation(x, y, np.full(n, 0x7610, "uint32")))
    np.testing.assert_array_equal(out[1], permutation(x, y, x))
    np.testing.assert_array_equal(out[2], y << 7 | x >> 25)
    np.testing.assert_array_equal(halves, [x & 15, x >> 16 & 15])


@triton.jit
def packed_kernel(x_ptr, y_ptr, sum_ptr, byte_ptr, single_ptr, again_ptr, N: tl.constexpr):
    row, column = tl.arange(0, 2)[:, None], tl.arange(0, N // 2)[None, :]
    at = row * (N // 2) + column
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(sum_ptr + at, tl.inline_asm_elementwise("fma.rn.f16x2 $0, $1, $2, $2;", "=r,r,r", [x, y], dtype=tl.float16, is_pure=True, pack=2))
    assembly: tl.constexpr = """{
        .reg .b16 low, high;
        cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
        cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;
        mov.b32 $0, {low, high};
    }"""
    single = tl.load(single_ptr + at)
    small = tl.inline_asm_elementwise(assembly, "=r,r,r,r,r", [single], dtype=tl.float8e4nv, is_pure=True, pack=4)
    tl.store(byte_ptr + at, small.to(tl.uint8, bitcast=True))
    # A tied operand is where the result begins.
    again = tl.inline_asm_elementwise("", "=r,0", [x], dtype=tl.float16, is_pure=False, pack=2)
    tl.store(again_ptr + at, tl.inline_asm_elementwise("bar.sync 0;", "=r,0", [again], dtype=tl.float16, is_pure=False, pack=2))


def test_inline_assembly_of_several_elements_at_once():
    n = 256
    x, y = np.random.standard_normal((2, n)).astype("float16")
    single = np.random.standard_normal(n).astype("float32") * 100
    found, bytes_, again = np.zeros(n, "float16"), np.zeros(n, "uint8"), np.zeros(n, "float16")
    packed_kernel[(1,)](*map(array, (x, y, found, bytes_, single, again)), n)
    np.testing.assert_array_equal(found, (x.astype("float64") * y + y).astype("float16"))
    np.testing.assert_array_equal(again, x)
    exponent, fraction = bytes_ >> 3 & 15, bytes_ & 7
    value = np.ldexp(np.where(exponent > 0, 8.0 + fraction, fraction), np.maximum(exponent, 1).astype("int32") - 10) * np.where(bytes_ > 127, -1, 1)
    np.testing.assert_allclose(value, np.clip(single, -448, 448), rtol=1 / 16, atol=2**-10)


@triton.jit
def exchange_kernel(x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x_ptr + at, tl.load(x_ptr + at) + 1)
    tl.inline_asm_elementwise("bar.sync 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(x_ptr + N + at, tl.load(x_ptr + N - 1 - at))


def test_inline_assembly_of_a_barrier():
    x = np.arange(128, dtype="int32")
    exchange_kernel[(1,)](array(x), 64)
    np.testing.assert_array_equal(x, np.concatenate([np.arange(64) + 1, np.arange(64)[::-1] + 1]))
