"""Linear layers with weights of 8 and 4 bits on device mps, without fallback.

Integers and scales are those of Paddle's CPU, byte by byte, where its kernel computes; products are those with the numbers that they stand for.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import quant

BITS = {"weight_only_int8": ("int8", 127), "weight_only_int4": ("int4", 7)}
ROUNDING = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
# Of products, as a part of the largest one.
PRODUCTS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


def weight(rows: int, columns: int, dtype: str, seed: int = 0) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng((seed, rows, columns)).standard_normal((rows, columns))).astype(dtype)


def plain(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy()


def close(found: paddle.Tensor, wanted: np.ndarray, dtype: str) -> None:
    np.testing.assert_allclose(plain(found), wanted, rtol=0.0, atol=PRODUCTS[dtype] * np.abs(wanted).max(initial=0.0))


def quantised(x: np.ndarray, scale: np.ndarray, largest: int, group: int) -> np.ndarray:
    """The integers, halves away from zero."""
    rows = scale.reshape(-1, 1, x.shape[1])
    share = (x.reshape(rows.shape[0], -1, x.shape[1]) / rows).astype("float32")
    levels = np.sign(share) * np.floor(np.abs(share).astype("float64") + 0.5)
    return np.clip(levels, -largest, largest).reshape(x.shape)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("algorithm", BITS)
@pytest.mark.parametrize("group", [-1, 64, 128])
@pytest.mark.parametrize("arch", [80, 86, 70])
@pytest.mark.parametrize("rows, columns", [(128, 32), (256, 80)])
def test_integers_and_scales_are_those_of_the_cpu(rows, columns, arch, group, algorithm, dtype):
    x = weight(rows, columns, dtype)
    mine = quant.weight_quantize(x, algorithm, arch, group)
    paddle.set_device("cpu")
    theirs = quant.weight_quantize(paddle.to_tensor(plain(x), place="cpu").astype(dtype), algorithm, arch, group)
    np.testing.assert_array_equal(plain(mine[1]), plain(theirs[1]))
    np.testing.assert_array_equal(mine[0].numpy(), theirs[0].numpy())


def test_no_architecture_is_one_with_tensor_cores():
    x = weight(128, 32, "float16")
    for algorithm in BITS:
        np.testing.assert_array_equal(quant.weight_quantize(x, algorithm)[0].numpy(), quant.weight_quantize(x, algorithm, 80)[0].numpy())


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("algorithm", BITS)
@pytest.mark.parametrize("group", [-1, 64, 128])
def test_numbers_come_back(group, algorithm, dtype):
    x = weight(256, 48, dtype)
    integers, scale = quant.weight_quantize(x, algorithm, group_size=group)
    found = quant.weight_dequantize(integers, scale, algorithm, group_size=group)
    assert found.dtype == x.dtype and found.shape == x.shape
    levels = quantised(plain(x), plain(scale), BITS[algorithm][1], group)
    rows = plain(scale).reshape(-1, 1, 48)
    wanted = (levels.reshape(rows.shape[0], -1, 48) * rows).reshape(256, 48)
    np.testing.assert_allclose(plain(found), wanted, rtol=ROUNDING[dtype], atol=1e-7)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("algorithm", BITS)
@pytest.mark.parametrize("group", [-1, 64, 128])
@pytest.mark.parametrize("arch", [None, 70])
@pytest.mark.parametrize("shape, bias", [((3, 128), True), ((2, 5, 128), False), ((1, 128), True), ((0, 128), True)])
def test_a_layer_is_the_product_with_its_numbers(shape, bias, arch, group, algorithm, dtype):
    w, x = weight(128, 32, dtype), paddle.to_tensor(np.random.default_rng(1).standard_normal(shape)).astype(dtype)
    b = paddle.to_tensor(np.random.default_rng(2).standard_normal(32)).astype(dtype) if bias else None
    integers, scale = quant.weight_quantize(w, algorithm, arch, group)
    x.stop_gradient = False
    found = quant.weight_only_linear(x, integers, b, scale, BITS[algorithm][0], arch, group)
    # Where integers lie says nothing of what they are.
    numbers = plain(quant.weight_dequantize(*quant.weight_quantize(w, algorithm, group_size=group), algorithm, group_size=group))
    wanted = plain(x) @ numbers + (0.0 if b is None else plain(b))
    close(found, wanted, dtype)
    if group != -1 or arch == 70 or 0 in shape:
        return  # Paddle's rule of the gradient asks for scales of whole columns and an architecture from 80 on.
    upstream = paddle.to_tensor(np.random.default_rng(3).standard_normal(found.shape)).astype(dtype)
    gradient = paddle._C_ops.weight_only_linear_grad(x, integers, b, scale, upstream, BITS[algorithm][0], 80, group)
    close(gradient, plain(upstream) @ numbers.T, dtype)


def test_gradients_go_through_the_layer():
    w, x = weight(128, 32, "float16"), weight(4, 128, "float16", 1)
    integers, scale = quant.weight_quantize(w)
    x.stop_gradient = False
    out = quant.weight_only_linear(x, integers, None, scale, "int8", 80)
    out.sum().backward()
    numbers = plain(quant.weight_dequantize(integers, scale))
    close(x.grad, np.tile(numbers.sum(1), (4, 1)), "float16")


def test_strided_inputs():
    w = weight(32, 128, "float16")
    integers, scale = quant.weight_quantize(w.transpose([1, 0]))
    theirs = quant.weight_quantize(paddle.to_tensor(w.numpy().T.copy()))
    np.testing.assert_array_equal(integers.numpy(), theirs[0].numpy())
    x = weight(128, 6, "float16", 1)
    found = quant.weight_only_linear(x.transpose([1, 0])[::2], integers, None, scale)
    wanted = quant.weight_only_linear(paddle.to_tensor(x.numpy().T[::2].copy()), integers, None, scale)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_integers_of_llm_int8(dtype):
    w = weight(64, 32, dtype)
    integers, scale = quant.weight_quantize(w, "llm.int8")
    paddle.set_device("cpu")
    theirs = quant.weight_quantize(paddle.to_tensor(w.numpy() if dtype == "float16" else w.astype("float32").numpy()).astype(dtype), "llm.int8", arch=80)
    paddle.set_device("mps")
    for mine, other in zip((integers, scale), theirs, strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        np.testing.assert_array_equal(mine.numpy(), other.numpy())
    x, bias = weight(5, 64, dtype, 1), weight(1, 32, dtype, 2)[0]
    found = quant.llm_int8_linear(x, integers, bias, scale)
    numbers = integers.numpy().astype("float64") * scale.numpy()[:, None]
    plain = [tensor.astype("float32").numpy().astype("float64") for tensor in (x, bias)]
    close(found, plain[0] @ numbers.T + plain[1], dtype)


def test_columns_of_zeros_and_halves():
    values = np.zeros((64, 16), "float32")
    values[:, 1] = 127.0
    values[:4, 1] = [0.5, -0.5, 2.5, -126.5]
    x = paddle.to_tensor(values).astype("float16")
    integers, scale = quant.weight_quantize(x)
    found = plain(quant.weight_dequantize(integers, scale))
    np.testing.assert_array_equal(found[:5, 1], [1, -1, 3, -127, 127])
    np.testing.assert_array_equal(np.delete(found, 1, 1), 0.0)


@pytest.mark.parametrize(
    "named, call",
    [
        (r"attribute algo is .w4a8", lambda x: quant.weight_quantize(x, "w4a8", 80)),
        ("weight_scale", lambda x: quant.llm_int8_linear(x.transpose([1, 0]), inserted(x)[0], None, paddle.ones([5]))),
        ("attribute element type of the weight is float16", lambda x: quant.llm_int8_linear(x, x[:16], None, paddle.ones([16]))),
        ("75, 80", lambda x: quant.weight_quantize(x, arch=61)),
        ("quant_method", lambda x: quant.weight_only_linear(x.transpose([1, 0]), *inserted(x), "int2")),
        ("attribute weight_scale is .* 16 scales", lambda x: quant.weight_only_linear(x.transpose([1, 0]), inserted(x)[0], None, paddle.ones([5], dtype="float16"))),
        ("attribute element type of weight_scale is float32", lambda x: quant.weight_only_linear(x.transpose([1, 0]), inserted(x)[0], None, paddle.ones([16]))),
        (r"attribute \(rows, columns\) of the weight is \(60, 16\)", lambda x: quant.weight_quantize(x[:60])),
        ("divisible by 16", lambda x: quant.weight_quantize(x[:, :3])),
        ("float64", lambda x: quant.weight_quantize(x.astype("float64"))),
        ("attribute element type of the weight is float16", lambda x: quant.weight_dequantize(x, paddle.ones([64], dtype="float16"))),
    ],
)
def test_what_is_refused_is_named(named, call):
    with pytest.raises(Exception, match=named):
        call(weight(64, 16, "float16"))


def inserted(x: paddle.Tensor) -> list[paddle.Tensor | None]:
    """Integers, no bias, and scales."""
    integers, scale = quant.weight_quantize(x)
    return [integers, None, scale]
