"""Floats of 8 and 4 bits: conversions, products, and block-scaled products in the manner of Triton's tutorial 10."""

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def small_values(fraction_bits: int, bias: int, largest: int) -> np.ndarray:
    """The number of each byte, from the definition of the format."""
    byte = np.arange(256)
    magnitude = byte & 0x7F
    exponent, fraction = magnitude >> fraction_bits, magnitude & ((1 << fraction_bits) - 1)
    whole = np.where(exponent == 0, fraction, fraction + (1 << fraction_bits))
    values = whole * 2.0 ** (np.maximum(exponent, 1) - bias - fraction_bits)
    values[magnitude > largest] = np.nan
    return np.where(byte < 128, values, -values)


E4M3, E5M2 = small_values(3, 7, 0x7E), small_values(2, 15, 0x7B)
E5M2[[0x7C, 0xFC]] = np.inf, -np.inf


@triton.jit
def widen_kernel(x_ptr, four_ptr, five_ptr):
    at = tl.arange(0, 256)
    x = tl.load(x_ptr + at)
    tl.store(four_ptr + at, x.to(tl.float8e4nv, bitcast=True).to(tl.float32))
    tl.store(five_ptr + at, x.to(tl.float8e5, bitcast=True).to(tl.float32))


def test_every_byte_is_widened():
    four, five = np.empty((2, 256), "float32")
    widen_kernel[(1,)](array(np.arange(256, dtype="uint8")), array(four), array(five))
    np.testing.assert_array_equal(four, E4M3)
    np.testing.assert_array_equal(five, E5M2)


@triton.jit
def absolute_kernel(x_ptr, four_ptr, five_ptr):
    at = tl.arange(0, 256)
    x = tl.load(x_ptr + at)
    tl.store(four_ptr + at, tl.abs(x.to(tl.float8e4nv, bitcast=True)).to(tl.uint8, bitcast=True))
    tl.store(five_ptr + at, tl.abs(x.to(tl.float8e5, bitcast=True)).to(tl.uint8, bitcast=True))


def test_absolute_values_lose_the_sign():
    four, five = np.empty((2, 256), "uint8")
    absolute_kernel[(1,)](array(np.arange(256, dtype="uint8")), array(four), array(five))
    np.testing.assert_array_equal([four, five], [np.arange(256) % 128] * 2)


@triton.jit
def narrow_kernel(x_ptr, four_ptr, five_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(four_ptr + at, x.to(tl.float8e4nv).to(tl.uint8, bitcast=True))
    tl.store(five_ptr + at, x.to(tl.float8e5).to(tl.uint8, bitcast=True))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_numbers_are_rounded_to_the_nearest(dtype):
    x = np.concatenate([np.random.default_rng(0).normal(0, 40, 1000), [0, 1e-9, 447, 449, 1e4, -1e4] * 4]).astype(dtype)
    four, five = np.empty((2, x.size), "uint8")
    narrow_kernel[(1,)](array(x), array(four), array(five), BLOCK=x.size)
    for table, largest, found in [(E4M3, 448, four), (E5M2, 57344, five)]:
        clipped = np.clip(x.astype("float64"), -largest, largest)
        finite = table[np.isfinite(table)]
        nearest = np.abs(clipped[:, None] - finite).min(1)
        np.testing.assert_array_equal(np.abs(table[found] - clipped), nearest)


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    a = tl.load(a_ptr + rows * SIZE + columns).to(tl.float8e4nv, bitcast=True)
    b = tl.load(b_ptr + rows * SIZE + columns).to(tl.float8e5, bitcast=True)
    tl.store(out_ptr + rows * SIZE + columns, tl.dot(a.to(tl.float16), b.to(tl.float16)))


def test_product_of_bytes():
    random = np.random.default_rng(1)
    a, b = random.integers(0, 0x70, (2, 32, 32)).astype("uint8")
    out = np.empty((32, 32), "float32")
    product_kernel[(1,)](array(a), array(b), array(out), SIZE=32)
    expected = E4M3[a] @ E5M2[b]
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@triton.jit
def block_scaled_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K,
    A_FORM: tl.constexpr, B_FORM: tl.constexpr, A_PACK: tl.constexpr, B_PACK: tl.constexpr, GROUP: tl.constexpr,
    SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tiles of bytes along K with a scale for every GROUP numbers; the right factor is given transposed."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    a_at, b_at = tl.arange(0, BLOCK_K // A_PACK), tl.arange(0, BLOCK_K // B_PACK)
    scale_at = tl.arange(0, BLOCK_K // GROUP)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * (K // A_PACK) + (k // A_PACK + a_at)[None, :])
        b = tl.load(b_ptr + columns[:, None] * (K // B_PACK) + (k // B_PACK + b_at)[None, :])
        a_scale = tl.load(a_scale_ptr + rows[:, None] * (K // GROUP) + (k // GROUP + scale_at)[None, :])
        b_scale = tl.load(b_scale_ptr + columns[:, None] * (K // GROUP) + (k // GROUP + scale_at)[None, :])
        if SCALE == "e4m3":
            a_scale, b_scale = a_scale.to(tl.float8e4nv, bitcast=True), b_scale.to(tl.float8e4nv, bitcast=True)
        sums = tl.dot_scaled(a, a_scale, A_FORM, b.T, b_scale, B_FORM, sums)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sums)


def factor(random, form: str, rows: int, k: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Bytes, the numbers that they are, and how many are in one."""
    if form == "e2m1":
        packed = random.integers(0, 256, (rows, k // 2)).astype("uint8")
        return packed, np.stack([E2M1[packed & 15], E2M1[packed >> 4]], -1).reshape(rows, k), 2
    table, most = (E4M3, 0x7E) if form == "e4m3" else (E5M2, 0x58)
    packed = (random.integers(0, most, (rows, k)) | random.integers(0, 2, (rows, k)) << 7).astype("uint8")
    return packed, table[packed], 1


@pytest.mark.parametrize(
    "a_form, b_form, scale", [("e4m3", "e4m3", "e8m0"), ("e5m2", "e2m1", "e8m0"), ("e2m1", "e2m1", "e4m3")]
)
def test_block_scaled_product(a_form, b_form, scale):
    """mxfp8, mixed, and nvfp4: a scale for 32 numbers as a power of two, or for 16 as a float of 8 bits."""
    random = np.random.default_rng(2)
    m, n, k, group = 32, 64, 128, 16 if scale == "e4m3" else 32
    a, a_numbers, a_pack = factor(random, a_form, m, k)
    b, b_numbers, b_pack = factor(random, b_form, n, k)
    low, high = (0x30, 0x48) if scale == "e4m3" else (120, 132)
    scales = [random.integers(low, high, (size, k // group)).astype("uint8") for size in (m, n)]
    values = [E4M3[x] if scale == "e4m3" else 2.0 ** (x.astype(int) - 127) for x in scales]
    out = np.empty((m, n), "float32")
    block_scaled_kernel[(m // 16, n // 32)](
        *map(array, (a, scales[0], b, scales[1], out)), m, n, k,
        A_FORM=a_form, B_FORM=b_form, A_PACK=a_pack, B_PACK=b_pack, GROUP=group, SCALE=scale,
        BLOCK_M=16, BLOCK_N=32, BLOCK_K=64,
    )  # fmt: skip
    a_wide, b_wide = (x * np.repeat(s, group, 1) for x, s in zip((a_numbers, b_numbers), values))
    expected = a_wide @ b_wide.T
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
