"""Operators that language models are built of, on device mps, without fallback: fused linear layers, their gradients, drawing of tokens, rows of experts.

Paddle's CPU has none of them: values and gradients are those of the same formula in float64 on the CPU.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.incubate.nn import functional as fused
from paddle.nn import functional as F

operators = paddle._C_ops
# Of the largest number that is wanted.
TYPES = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    return paddle.to_tensor(array).astype(dtype).astype("float64").numpy()


def close(mine: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """Within a part of the largest number that is wanted: those about zero are sums of larger ones."""
    np.testing.assert_allclose(mine, wanted, rtol=0.0, atol=tolerance * np.abs(wanted).max(initial=0.0))


def run(function, arrays, weights, dtype="float32", device="mps"):
    """The results and the gradients of a weighted sum of the first one, in float64."""
    paddle.set_device(device)
    inputs = [paddle.to_tensor(array).astype(dtype) for array in arrays]
    for tensor in inputs:
        tensor.stop_gradient = False
    out = function(*inputs)
    (out * paddle.to_tensor(weights(out.shape)).astype(dtype)).sum().backward()
    return [tensor.astype("float64").numpy() for tensor in (out, *(tensor.grad for tensor in inputs))]


def compare(function, formula, arrays, dtype="float32"):
    arrays = [rounded(array, dtype) for array in arrays]
    weights = lambda shape: rounded(drawn(*shape, seed=9), dtype)
    for mine, wanted in zip(run(function, arrays, weights, dtype), run(formula, arrays, weights, "float64", "cpu"), strict=True):
        close(mine, wanted, TYPES[dtype])


ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "gelu": lambda x: F.gelu(x, approximate=True)}


def linear(transpose_x: bool, transpose_y: bool, activation: str):
    """The layer as Paddle calls it, and its formula."""
    call = lambda x, y, b: operators.fused_gemm_epilogue(x, y, b, transpose_x, transpose_y, activation)[0]
    formula = lambda x, y, b: ACTIVATIONS[activation](paddle.matmul(x, y, transpose_x, transpose_y) + b)
    return call, formula


def layer_arrays(rows: tuple[int, ...], depth: int, columns: int, transpose_x: bool, transpose_y: bool) -> list[np.ndarray]:
    x = (*rows[:-1], depth, rows[-1]) if transpose_x else (*rows, depth)
    return [drawn(*x), drawn(*((columns, depth) if transpose_y else (depth, columns))), drawn(columns)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("transpose_x", [False, True])
@pytest.mark.parametrize("transpose_y", [False, True])
def test_fused_gemm_epilogue(transpose_x, transpose_y, activation, dtype):
    # Halves, of which products and sums are exact in every type: ReLU's gradient jumps where they are about zero.
    arrays = [np.clip(np.round(2 * array) / 2, -2, 2) for array in layer_arrays((7,), 5, 128, transpose_x, transpose_y)]
    compare(*linear(transpose_x, transpose_y, activation), arrays, dtype)


@pytest.mark.parametrize("rows", [(1,), (3, 4), (2, 3, 5)])
@pytest.mark.parametrize("transpose_x", [False, True])
def test_fused_gemm_epilogue_of_batches(rows, transpose_x):
    compare(*linear(transpose_x, False, "none"), layer_arrays(rows, 6, 11, transpose_x, False))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_fused_linear(bias, transposed):
    arrays = layer_arrays((3, 4), 6, 9, False, transposed)[: 3 if bias else 2]
    compare(
        lambda x, w, b=None: fused.fused_linear(x, w, b, transposed),
        lambda x, w, b=None: paddle.matmul(x, w, transpose_y=transposed) + (0.0 if b is None else b),
        arrays,
    )


def test_fused_linear_of_strided_inputs():
    compare(
        lambda x, w, b: fused.fused_matmul_bias(x.transpose([1, 0])[::2], w[:, 1:], b[1:]),
        lambda x, w, b: x.transpose([1, 0])[::2] @ w[:, 1:] + b[1:],
        [drawn(6, 9), drawn(6, 8), drawn(8)],
    )


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_fused_linear_of_nothing(shape):
    compare(lambda x, w, b: fused.fused_linear(x, w, b), lambda x, w, b: x @ w + b, [drawn(*shape), drawn(shape[1], 4), drawn(4)])


def test_the_layer_of_paddle():
    paddle.seed(1)
    layer = paddle.incubate.nn.FusedLinear(6, 4)
    x = paddle.to_tensor(drawn(5, 6), dtype="float32")
    np.testing.assert_allclose(layer(x).numpy(), (x @ layer.weight + layer.bias).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_fused_linear_activation(activation):
    compare(
        lambda x, w, b: fused.fused_linear_activation(x, w, b, activation=activation),
        lambda x, w, b: ACTIVATIONS[activation or "none"](x @ w + b),
        layer_arrays((3, 4), 6, 128, False, False),
    )


def test_fused_linear_activation_in_a_static_program():
    arrays = {"x": drawn(3, 8), "w": drawn(8, 128), "b": drawn(128)}
    paddle.enable_static()
    program = paddle.static.Program()
    with paddle.static.program_guard(program):
        inputs = [paddle.static.data(name, list(array.shape), "float32") for name, array in arrays.items()]
        outs = [fused.fused_linear_activation(*inputs, activation=name) for name in (None, "relu", "gelu")]
        found = paddle.static.Executor(paddle.CustomPlace("mps", 0)).run(
            program, feed={name: array.astype("float32") for name, array in arrays.items()}, fetch_list=outs
        )
    paddle.disable_static()
    product = paddle.to_tensor(arrays["x"] @ arrays["w"] + arrays["b"], place="cpu")
    for mine, activation in zip(found, ACTIVATIONS.values(), strict=True):
        np.testing.assert_allclose(mine, activation(product).numpy(), rtol=1e-5, atol=1e-5)


def test_an_unknown_activation_is_named():
    x, w, b = (paddle.to_tensor(drawn(*shape), dtype="float32") for shape in ((2, 3), (3, 128), (128,)))
    with pytest.raises(Exception, match="tanh"):
        operators.fused_gemm_epilogue(x, w, b, False, False, "tanh")


def test_what_an_activation_was_given_has_the_upstreams_shape():
    x, y, before, upstream = (paddle.ones(shape) for shape in ([2, 3], [3, 128], [128], [2, 128]))
    with pytest.raises(Exception, match=r"attribute reserve_space is \[128\]"):
        operators.fused_gemm_epilogue_grad(x, y, before, upstream, False, False, "gelu_grad")


UNITS = {
    "gelu": F.gelu,
    "relu": F.relu,
    "geglu": lambda x: F.gelu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "swiglu": lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape, bias", [((3, 10), True), ((2, 5, 6), True), ((1, 2), False)])
def test_fused_bias_act(shape, bias, unit, dtype):
    x, b = (paddle.to_tensor(drawn(*of)).astype(dtype) for of in (shape, shape[-1:]))
    found = fused.fused_bias_act(x, b if bias else None, act_method=unit)
    assert found.dtype == x.dtype
    with paddle.base.dygraph.guard(paddle.CPUPlace()):
        wide = [paddle.to_tensor(tensor.astype("float64").numpy(), place="cpu") for tensor in (x, b)]
        wanted = UNITS[unit](wide[0] + wide[1] if bias else wide[0]).numpy()
    close(found.astype("float64").numpy(), wanted, TYPES[dtype])


def test_fused_bias_act_moves_and_scales():
    x, bias, shift, smooth = (drawn(*shape, seed=seed) for seed, shape in enumerate([(4, 6), (6,), (3,), (3,)]))
    found = fused.fused_bias_act(*(paddle.to_tensor(a, dtype="float32") for a in (x, bias)), None, *(paddle.to_tensor(a, dtype="float32") for a in (shift, smooth)), act_method="swiglu")
    gate, value = np.split(x + bias, 2, -1)
    np.testing.assert_allclose(found.numpy(), (gate / (1 + np.exp(-gate)) * value + shift) * smooth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "named, arguments",
    [
        ("quant_scale", {"quant_scale": 0.5, "quant_max_bound": 127.0, "quant_min_bound": -127.0}),
        ("dequant_scales", {"dequant_scales": "scales"}),
        ("smooth", {"shift": "scales"}),
        ("sigmoid", {"act_method": "sigmoid"}),
    ],
)
def test_fused_bias_act_names_what_it_refuses(named, arguments):
    scales = paddle.ones([6])
    with pytest.raises(Exception, match=named):
        fused.fused_bias_act(paddle.ones([2, 6]), **{key: scales if value == "scales" else value for key, value in arguments.items()})


def test_quantised_numbers_are_refused():
    with pytest.raises(Exception, match="int32"):
        fused.fused_bias_act(paddle.ones([2, 6], dtype="int32"), compute_dtype="fp16")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("multi_precision", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_gradients_are_added_up(kept, multi_precision, dtype):
    x, upstream = (paddle.to_tensor(drawn(*shape)).astype(dtype) for shape in ((2, 7, 5), (2, 7, 3)))
    sums = ("float32" if dtype in ("float16", "bfloat16") else dtype) if multi_precision else dtype
    before = [paddle.to_tensor(drawn(*shape, seed=3)).astype(sums) if kept else None for shape in ((5, 3), (3,))]
    wide = [tensor.astype("float64").numpy() for tensor in (x, upstream)]
    wanted = [wide[0].reshape(14, 5).T @ wide[1].reshape(14, 3), wide[1].sum((0, 1))]
    wanted = [part + (0.0 if tensor is None else tensor.astype("float64").numpy()) for part, tensor in zip(wanted, before, strict=True)]
    found = operators.fused_linear_param_grad_add(x, upstream, *before, multi_precision, True)
    tolerance = 2e-5 if sums == "float32" else TYPES[sums]
    for mine, value in zip(found, wanted, strict=True):
        assert str(mine.dtype) == f"paddle.{sums}"
        close(mine.astype("float64").numpy(), value, tolerance)
    if kept:
        # As on Paddle's GPUs the sum is what was kept.
        np.testing.assert_array_equal(found[0].astype("float64").numpy(), before[0].astype("float64").numpy())


def test_gradients_of_another_type_are_refused():
    x, upstream = (paddle.ones(shape, dtype="float16") for shape in ([4, 5], [4, 3]))
    with pytest.raises(Exception, match="dweight"):
        operators.fused_linear_param_grad_add(x, upstream, paddle.ones([5, 3], dtype="float16"), None, True, False)


PROBABILITIES = np.asarray([[0.05, 0.5, 0.3, 0.15], [0.97, 0.01, 0.01, 0.01], [0.25, 0.25, 0.25, 0.25]])


def frequencies(part: list[float], mode: str, count: int = 4000, **arguments) -> np.ndarray:
    """How often each token of each row is drawn."""
    rows = len(PROBABILITIES)
    x = paddle.to_tensor(np.tile(PROBABILITIES, (count, 1)), dtype="float32")
    _, tokens = paddle.tensor.top_p_sampling(x, paddle.to_tensor(np.tile(part, count), dtype="float32").reshape([-1, 1]), mode=mode, **arguments)
    tokens = tokens.numpy().reshape(count, rows)
    return np.stack([np.bincount(tokens[:, row], minlength=4) for row in range(rows)]) / count


@pytest.mark.parametrize("mode", ["truncated", "non-truncated"])
def test_tokens_are_drawn_as_often_as_they_are_probable(mode):
    found = frequencies([0.999999] * 3, mode)
    np.testing.assert_allclose(found, PROBABILITIES, atol=0.035)


def test_tokens_beyond_the_part_are_not_drawn():
    # Of the first row 0.5 and a part of 0.3 are reached, of the second the first token only.
    found = frequencies([0.6, 0.9, 0.5], "truncated")
    np.testing.assert_allclose(found[0], [0.0, 0.5 / 0.6, 0.1 / 0.6, 0.0], atol=0.035)
    np.testing.assert_array_equal(found[1], [1.0, 0.0, 0.0, 0.0])
    assert found[2][2:].sum() == 0.0
    found = frequencies([0.6, 0.9, 0.5], "non-truncated")
    np.testing.assert_allclose(found[0], [0.0, 0.625, 0.375, 0.0], atol=0.035)


def test_seeds_repeat_tokens():
    x = paddle.to_tensor(np.random.default_rng(0).dirichlet(np.ones(50), 16), dtype="float32")
    part = paddle.full([16, 1], 0.95)
    draw = lambda **arguments: paddle.tensor.top_p_sampling(x, part, **arguments)[1].numpy()
    np.testing.assert_array_equal(draw(seed=7), draw(seed=7))
    assert (draw(seed=7) != draw(seed=8)).any()
    rows = paddle.to_tensor(np.arange(16).reshape(16, 1))
    np.testing.assert_array_equal(draw(topp_seed=rows), draw(topp_seed=rows))
    # A row's tokens follow from its own seed alone.
    np.testing.assert_array_equal(draw(topp_seed=rows)[3], paddle.tensor.top_p_sampling(x[3:4], part[3:4], topp_seed=rows[3:4])[1].numpy()[0])
    paddle.seed(5)
    first = draw()
    second = draw()
    paddle.seed(5)
    np.testing.assert_array_equal(first, draw())
    assert (first != second).any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_scores_and_first_tokens(dtype):
    x = paddle.to_tensor(np.random.default_rng(1).dirichlet(np.ones(30), 5)).astype(dtype)
    part = paddle.full([5], 0.8).astype(dtype)
    scores, tokens, first_scores, first = operators.top_p_sampling(x, part, None, None, 3, 4, "truncated")
    plain = x.astype("float64").numpy()
    order = np.argsort(-plain, 1, kind="stable")
    np.testing.assert_array_equal(first.numpy(), order[:, :4])
    np.testing.assert_array_equal(first_scores.astype("float64").numpy(), np.take_along_axis(plain, order[:, :4], 1))
    np.testing.assert_array_equal(scores.astype("float64").numpy(), np.take_along_axis(plain, tokens.numpy(), 1))


@pytest.mark.parametrize("mode", ["truncated", "non-truncated"])
def test_a_threshold_keeps_improbable_tokens_away(mode):
    x = paddle.to_tensor(np.tile(PROBABILITIES[:1], (500, 1)), dtype="float32")
    part, threshold = paddle.full([500, 1], 0.999999), paddle.full([500, 1], 0.2)
    tokens = paddle.tensor.top_p_sampling(x, part, threshold, mode=mode)[1].numpy()
    assert set(tokens.ravel()) == {1, 2}
    above = paddle.tensor.top_p_sampling(x, part, paddle.full([500, 1], 0.9), mode=mode)[1].numpy()
    assert set(above.ravel()) == {1}


def test_what_cannot_be_drawn_is_named():
    x, part = paddle.to_tensor(PROBABILITIES, dtype="float32"), paddle.full([3, 1], 0.5)
    with pytest.raises(Exception, match="non-truncated"):
        paddle.tensor.top_p_sampling(x, part, mode="beam")
    with pytest.raises(Exception, match=r"attribute ps is \["):
        paddle.tensor.top_p_sampling(x, part[:2])


@pytest.mark.parametrize("mode", ["truncated", "non-truncated"])
@pytest.mark.parametrize("tokens", [0, 5])
def test_of_no_rows_nothing_is_drawn(tokens, mode):
    scores, drawn_tokens = paddle.tensor.top_p_sampling(paddle.zeros([0, tokens]), paddle.zeros([0, 1]), mode=mode)
    assert scores.shape == drawn_tokens.shape == [0, 1]
    assert scores.dtype == paddle.float32 and drawn_tokens.dtype == paddle.int64


CHOICES = np.asarray([[0, 2], [2, -1], [-1, -1], [1, 0], [2, 0]])


def expert_rows(alignment: int):
    """Tokens, probabilities, and what must come: rows, places, probabilities and experts of rows."""
    x, parts = drawn(5, 6), np.abs(drawn(5, 2))
    counts = [int((CHOICES == expert).sum()) for expert in range(4)]
    starts = np.cumsum([0, *(-(-count // alignment) * alignment for count in counts)])
    rows, places, of_rows, owners = np.zeros((starts[-1], 6)), np.full((5, 4), -1), np.zeros((starts[-1], 1)), np.full(starts[-1], -1)
    for expert in range(4):
        for at, (token, choice) in enumerate(zip(*np.nonzero(CHOICES == expert), strict=True)):
            row = starts[expert] + at
            rows[row], places[token, expert], of_rows[row], owners[row] = x[token], row, parts[token, choice], expert
    return x, parts, counts, (rows, places, of_rows, owners)


@pytest.mark.parametrize("alignment", [1, 4])
def test_tokens_in_the_order_of_their_experts_and_back(alignment):
    x, parts, counts, (rows, places, of_rows, owners) = expert_rows(alignment)
    x = paddle.to_tensor(x).astype("bfloat16")
    rows = np.where(owners[:, None] < 0, 0.0, paddle.to_tensor(rows).astype("bfloat16").astype("float32").numpy())
    choices, probabilities = paddle.to_tensor(CHOICES, dtype="int32"), paddle.to_tensor(parts, dtype="float32")
    found = F.moe_permute(x, None, choices, probabilities, 4, counts, alignment, return_expert_indices=True)
    np.testing.assert_array_equal(found[0].astype("float32").numpy(), rows)
    np.testing.assert_array_equal(found[1].numpy(), places)
    np.testing.assert_allclose(found[2].numpy(), of_rows, rtol=1e-6)
    np.testing.assert_array_equal(found[4].numpy(), owners)
    for weighs in (False, True):
        back, own = F.moe_unpermute(found[0], found[1], choices, found[2], 5, 4, True, weighs)
        weights = np.where(CHOICES < 0, 0.0, parts if weighs else 1.0).sum(1, keepdims=True)
        np.testing.assert_allclose(back.astype("float32").numpy(), x.astype("float32").numpy() * weights, rtol=2e-2, atol=1e-6)
        np.testing.assert_allclose(own.numpy(), np.where(CHOICES < 0, 0.0, parts), rtol=1e-6)


def test_rows_of_experts_that_are_refused():
    x, parts, counts, _ = expert_rows(1)
    x, choices, probabilities = paddle.to_tensor(x, dtype="bfloat16"), paddle.to_tensor(CHOICES, dtype="int32"), paddle.to_tensor(parts, dtype="float32")
    # Too few, too many, and too many numbers.
    for wrong in ([1, 1, 1, 1], [2**31 - 1] * 4, [*counts, 0]):
        with pytest.raises(Exception, match="attribute tokens_per_expert is"):
            F.moe_permute(x, None, choices, probabilities, 4, wrong, 1)
    with pytest.raises(Exception, match="attribute expert_routemap_topk is 2"):
        F.moe_permute(x, None, choices, probabilities, 2, counts[:2], 1)
    twice = paddle.to_tensor(np.where(CHOICES == -1, 2, CHOICES), dtype="int32")
    with pytest.raises(Exception, match=r"attribute expert_routemap_topk is \[2, 2\]"):
        F.moe_permute(x, None, twice, probabilities, 4, [5] * 4, 1)


@pytest.mark.parametrize("experts", [65, 1000])
def test_numbers_of_experts_that_are_refused(experts):
    x, parts, counts, _ = expert_rows(1)
    counts = [*counts, *[0] * (experts - len(counts))]  # Paddle's own rule of shapes reads as many without asking
    x, choices, probabilities = paddle.to_tensor(x, dtype="bfloat16"), paddle.to_tensor(CHOICES, dtype="int32"), paddle.to_tensor(parts, dtype="float32")
    with pytest.raises(Exception, match="attribute num_experts is"):
        F.moe_permute(x, None, choices, probabilities, experts, counts, 1)
