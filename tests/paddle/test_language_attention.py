"""Attention as language models call it, on device mps, without fallback: of whole batches, of sequences in a row, of a step with a cache.

Paddle's CPU has none of these kernels: values and gradients are those of the formula in float64 on the CPU.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.incubate.nn.functional import masked_multihead_attention
from paddle.nn import functional as F
from paddle.nn.functional.flash_attention import flash_attention, flash_attn_unpadded

operators = paddle._C_ops
TYPES = {"float64": 1e-12, "float32": 3e-5, "float16": 2e-2, "bfloat16": 1e-1}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def run(function, arrays, dtype, device):
    paddle.set_device(device)
    inputs = [paddle.to_tensor(array).astype(dtype) for array in arrays]
    for tensor in inputs:
        tensor.stop_gradient = False
    out = function(*inputs)
    (out * paddle.to_tensor(drawn(*out.shape, seed=9)).astype(dtype)).sum().backward()
    return [tensor.astype("float64").numpy() for tensor in (out, *(tensor.grad for tensor in inputs))]


def compare(function, formula, arrays, dtype="float32"):
    rounded = [paddle.to_tensor(array).astype(dtype).astype("float64").numpy() for array in arrays]
    for mine, wanted in zip(run(function, rounded, dtype, "mps"), run(formula, rounded, "float64", "cpu"), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=TYPES[dtype], atol=TYPES[dtype] * 2)


def formula(q, k, v, mask=None, causal=False, scale=None):
    """Queries (batch, sequence, heads, size); the last query sees all keys, one that sees none gives zeros."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, 2).transpose([0, 2, 1, 3]) for x in (k, v))
    scores = paddle.matmul(q.transpose([0, 2, 1, 3]), k, transpose_y=True) * (scale or q.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores + mask
    rows, keys = scores.shape[-2:]
    seen = paddle.to_tensor(np.tril(np.ones((rows, keys), "float64"), keys - rows if causal else keys))
    weights = paddle.exp(scores - scores.max(-1, keepdim=True)) * seen
    weights = weights / paddle.maximum(weights.sum(-1, keepdim=True), paddle.to_tensor(1e-300, dtype="float64"))
    return paddle.matmul(weights, v).transpose([0, 2, 1, 3])


def flash(q, k, v, mask=None, causal=False):
    return operators.flash_attn(q, k, v, None, mask, 0.0, causal, False, False, "")[0]


SHAPES = {"square": (2, 6, 6, 4, 4, 8), "grouped": (1, 5, 9, 6, 2, 16), "few keys": (2, 7, 4, 2, 1, 4), "one": (1, 1, 12, 2, 2, 8)}


def qkv(name: str) -> list[np.ndarray]:
    batch, rows, keys, heads, key_heads, size = SHAPES[name]
    return [drawn(batch, rows, heads, size), drawn(batch, keys, key_heads, size, seed=1), drawn(batch, keys, key_heads, size, seed=2)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_flash_attention(shape, causal, dtype):
    compare(lambda *x: flash(*x, causal=causal), lambda *x: formula(*x, causal=causal), qkv(shape), dtype)


@pytest.mark.parametrize("of_heads", [1, 6])
def test_flash_attention_with_a_mask(of_heads):
    mask = drawn(1, of_heads, 5, 9, seed=4)
    mask[..., 3:] = np.where(mask[..., 3:] > 1, -1e9, mask[..., 3:])
    compare(lambda *x: flash(*x, mask=paddle.to_tensor(mask, dtype="float32")), lambda *x: formula(*x, mask=paddle.to_tensor(mask)), qkv("grouped"))


def test_flash_attention_of_strided_inputs():
    cut = lambda x: x.transpose([0, 2, 1, 3])[:, ::2]
    compare(lambda *x: flash(*map(cut, x), causal=True), lambda *x: formula(*map(cut, x), causal=True), qkv("square"))


@pytest.mark.parametrize("rows, keys", [(0, 4), (3, 0)])
def test_flash_attention_of_nothing(rows, keys):
    arrays = [paddle.zeros([2, rows, 2, 8])] + [paddle.zeros([2, keys, 2, 8])] * 2
    found = flash(*arrays)
    assert found.shape == [2, rows, 2, 8] and not found.numpy().any()


@pytest.mark.parametrize("causal", [False, True])
def test_paddles_functions_compute_the_same(causal):
    """Where a device is no GPU, Paddle composes attention of other kernels."""
    q, k, v = (paddle.to_tensor(array, dtype="float16") for array in qkv("square"))
    wanted = flash(q, k, v, causal=causal).astype("float32").numpy()
    for found in (flash_attention(q, k, v, causal=causal)[0], F.scaled_dot_product_attention(q, k, v, is_causal=causal)):
        np.testing.assert_allclose(found.astype("float32").numpy(), wanted, atol=5e-3)


LENGTHS = ([3, 0, 5, 1], [3, 2, 8, 4])


def starts(lengths: list[int]) -> paddle.Tensor:
    return paddle.to_tensor(np.cumsum([0, *lengths]), dtype="int32")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_sequences_in_a_row(causal, dtype):
    arrays = [drawn(sum(LENGTHS[at]), heads, 8, seed=seed) for seed, (at, heads) in enumerate([(0, 4), (1, 2), (1, 2)])]

    def call(q, k, v):
        return flash_attn_unpadded(q, k, v, starts(LENGTHS[0]), starts(LENGTHS[1]), 5, 8, 0.25, causal=causal)[0]

    def each(q, k, v):
        ends = [np.cumsum([0, *lengths]) for lengths in LENGTHS]
        parts = []
        for at in range(4):
            part = lambda x, ends=ends, at=at, which=0: x[int(ends[which][at]) : int(ends[which][at + 1])].unsqueeze(0)
            if LENGTHS[0][at]:
                parts.append(formula(part(q), part(k, which=1), part(v, which=1), causal=causal, scale=0.25).squeeze(0))
        return paddle.concat(parts)

    compare(call, each, arrays, dtype)


@pytest.mark.parametrize(
    "named, arguments",
    [("dropout", (None, None, 0.5, False, False, False, "")), ("return_softmax", (None, None, 0.0, False, True, False, ""))],
)
def test_what_attention_refuses_is_named(named, arguments):
    q, k, v = (paddle.to_tensor(array, dtype="float32") for array in qkv("square"))
    with pytest.raises(Exception, match=named):
        operators.flash_attn(q, k, v, *arguments)


def test_sequences_beyond_the_tokens_are_named():
    q = paddle.ones([4, 2, 8])
    with pytest.raises(Exception, match="cu_seqlens_k"):
        flash_attn_unpadded(q, q, q, starts([2, 2]), starts([2, 3]), 2, 3, 1.0)


#: Shapes of keys and values beside queries of (4, 2, 8), each with what is named.
UNFIT = {
    "values of fewer tokens": ([4, 2, 8], [2, 2, 8], "shape of v"),
    "values of other heads": ([4, 2, 8], [4, 1, 8], "shape of v"),
    "keys of another size": ([4, 2, 6], [4, 2, 8], "shape of k"),
    "heads that do not divide": ([4, 3, 8], [4, 3, 8], "heads of q, k"),
}


@pytest.mark.parametrize(("keys", "values", "named"), UNFIT.values(), ids=UNFIT)
def test_operands_that_do_not_fit_are_named(keys, values, named):
    paddle.set_device("mps")
    q, k, v = paddle.ones([4, 2, 8]), paddle.ones(keys), paddle.ones(values)
    with pytest.raises(Exception, match=named):
        flash_attn_unpadded(q, k, v, starts([4]), starts([4]), 4, 4, 1.0)
    with pytest.raises(Exception, match=named):
        operators.flash_attn(q[None], k[None], v[None], None, None, 0.0, False, False, True, "")


def gradients(q, k, v, upstream, mask=None):
    kept = paddle.zeros([0]), paddle.zeros([2], "int64")
    return operators.flash_attn_grad(q, k, v, q, *kept, mask, upstream, 0.0, False)


def test_gradients_of_another_shape_are_named():
    paddle.set_device("mps")
    q = paddle.ones([1, 4, 2, 8])
    for upstream in (paddle.ones([1, 4, 2, 1]), paddle.ones([4, 2, 8]), paddle.ones([2, 4, 2, 8]), q.astype("float16")):
        with pytest.raises(Exception, match="gradient of out"):
            gradients(q, q, q, upstream)


def test_sequences_without_keys_give_zeros():
    paddle.set_device("mps")
    q, nothing = paddle.ones([4, 2, 8]), paddle.zeros([0, 2, 8])
    out = flash_attn_unpadded(q, nothing, nothing, starts([1, 3]), starts([0, 0]), 4, 0, 1.0)[0]
    np.testing.assert_array_equal(out.numpy(), np.zeros([4, 2, 8]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_large_negative_mask_is_the_same_forward_and_backward(dtype):
    """Beyond a half type's range it is infinite, and its row sees nothing."""
    paddle.set_device("mps")
    q, v = (paddle.to_tensor(drawn(1, rows, 1, 4)).astype(dtype) for rows in (2, 3))
    mask = paddle.to_tensor(np.array([[0.0, 0, 0], [-1e9, -1e9, -1e9]], "float32").reshape(1, 1, 2, 3))
    out = flash(q, v, v, mask)
    upstream = paddle.zeros_like(out)
    upstream[:, 1] = 1
    sees_nothing = float(out[:, 1].astype("float32").abs().sum()) == 0
    of_v = gradients(q, v, v, upstream, mask)[2]
    assert (float(of_v.astype("float32").abs().sum()) == 0) == sees_nothing


def test_masks_that_are_no_floats_or_do_not_fit_are_named():
    paddle.set_device("mps")
    q = paddle.ones([1, 4, 2, 8])
    for mask in (paddle.ones([1, 1, 4, 4], "bool"), paddle.ones([5, 1, 4, 4]), paddle.ones([1, 1, 1, 4, 4])):
        with pytest.raises(Exception, match="attn_mask"):
            flash(q, q, q, mask)


def test_what_was_not_dropped_has_a_gradient():
    paddle.set_device("mps")
    q = paddle.to_tensor(drawn(4, 2, 8)).astype("float32")
    q.stop_gradient = False
    out = flash_attn_unpadded(q, q, q, starts([4]), starts([4]), 4, 4, 1.0, dropout=0.1, training=False)[0]
    out.sum().backward()
    assert np.isfinite(q.grad.numpy()).all()


def packed(keys: np.ndarray, pack: int) -> np.ndarray:
    """Keys (batch, heads, length, size) as they are kept: `pack` elements of each together."""
    batch, heads, length, size = keys.shape
    return keys.reshape(batch, heads, length, size // pack, pack).transpose(0, 1, 3, 2, 4).reshape(keys.shape)


def turned(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, parts: int, halves: bool) -> np.ndarray:
    """Of x (batch, heads, size)."""
    batch, heads, size = x.shape
    x = x.reshape(batch, heads, parts, size // parts)
    cosine, sine = (angle.reshape(batch, 1, parts, size // parts) for angle in (cosine, sine))
    if halves:
        left, right = np.split(x, 2, -1)
        other = np.concatenate([-right, left], -1)
    else:
        other = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return (x * cosine + other * sine).reshape(batch, heads, size)


class Step:
    """A step of a model, and what it must give."""

    def __init__(self, dtype: str, heads: int = 4, key_heads: int = 4, places=(5, 5), length: int = 9, size: int = 16):
        self.batch, self.heads, self.key_heads, self.size = len(places), heads, key_heads, size
        self.places, self.dtype = places, dtype
        rounded = lambda array: paddle.to_tensor(array).astype(dtype).astype("float64").numpy()
        self.x = rounded(drawn(self.batch, (heads + 2 * key_heads) * size))
        self.bias = rounded(drawn(heads + 2 * key_heads, size, seed=1))
        self.cache = rounded(drawn(2, self.batch, key_heads, length, size, seed=2))
        self.mask = rounded(drawn(self.batch, 1, 1, max(places) + 1, seed=3))
        self.angles = drawn(2, self.batch, 1, 1, size, seed=4).astype("float32").astype("float64")

    def tensor(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(array).astype(self.dtype)

    def stored(self) -> paddle.Tensor:
        pack = {"float64": 2, "float32": 4}.get(self.dtype, 8)
        return self.tensor(np.stack([packed(self.cache[0], pack), self.cache[1]]))

    def wanted(self, bias=True, mask=True, parts=0, halves=False):
        x = self.x.reshape(self.batch, -1, self.size) + (self.bias if bias else 0.0)
        q, k, v = np.split(x, [self.heads, self.heads + self.key_heads], 1)
        if parts:
            q, k = (turned(part, self.angles[0], self.angles[1], parts, halves) for part in (q, k))
        keys, values = self.cache[0].copy(), self.cache[1].copy()
        outs = []
        for row, at in enumerate(self.places):
            if at < 0:
                outs.append(np.zeros((self.heads, self.size)))
                continue
            keys[row, :, at], values[row, :, at] = k[row], v[row]
            group = self.heads // self.key_heads
            scores = np.einsum("hd,hkd->hk", q[row], np.repeat(keys[row, :, : at + 1], group, 0)) * self.size**-0.5
            scores = scores + (self.mask[row, 0, 0, : at + 1] if mask else 0.0)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            outs.append(np.einsum("hk,hkd->hd", weights, np.repeat(values[row, :, : at + 1], group, 0)))
        return np.stack(outs).reshape(self.batch, -1), keys, values


STEP_TYPES = {"float64": 1e-12, "float32": 3e-5, "float16": 2e-3, "bfloat16": 1e-2}


def close(found, wanted, dtype):
    """Within a part of the largest number that is wanted, and NaN where that is wanted."""
    largest = np.nanmax(np.abs(wanted), initial=0.0)
    np.testing.assert_allclose(found.astype("float64").numpy(), wanted, rtol=0.0, atol=STEP_TYPES[dtype] * largest)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_a_step_with_a_cache(key_heads, dtype):
    step = Step(dtype, key_heads=key_heads)
    cache = step.stored()
    out, kept, *_ = masked_multihead_attention(step.tensor(step.x), cache, step.tensor(step.bias), step.tensor(step.mask))
    wanted, keys, values = step.wanted()
    close(out, wanted, dtype)
    pack = {"float64": 2, "float32": 4}.get(dtype, 8)
    close(kept, np.stack([packed(keys, pack), values]), dtype)
    np.testing.assert_array_equal(kept.astype("float64").numpy(), cache.astype("float64").numpy())


@pytest.mark.parametrize("mask", [False, True])
def test_sequences_of_many_lengths(mask):
    step = Step("float32", key_heads=2, places=(0, 7, -1, 3))
    lengths = paddle.to_tensor(step.places, dtype="int32").reshape([-1, 1])
    out, kept, *_ = masked_multihead_attention(step.tensor(step.x), step.stored(), None, step.tensor(step.mask) if mask else None, sequence_lengths=lengths)
    wanted, keys, values = step.wanted(bias=False, mask=mask)
    close(out, wanted, "float32")
    close(kept, np.stack([packed(keys, 4), values]), "float32")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("unused", [np.nan, np.inf])
@pytest.mark.parametrize("places", [(0, 3), (2, -1, 5), (4, 4)])
def test_what_lies_beyond_a_sequence_is_not_seen(places, unused, dtype):
    step = Step(dtype, key_heads=2, places=places)
    for row, at in enumerate(places):
        step.cache[:, row, :, max(at, 0) :] = unused
    lengths = paddle.to_tensor(places, dtype="int32").reshape([-1, 1])
    out, *_ = masked_multihead_attention(step.tensor(step.x), step.stored(), sequence_lengths=lengths)
    close(out, step.wanted(bias=False, mask=False)[0], dtype)


def test_sequences_that_have_ended_give_zeros():
    """Whatever is kept of them and comes for them."""
    step = Step("float32")
    cache, x = (tensor * float("nan") for tensor in (step.stored(), step.tensor(step.x)))
    assert not masked_multihead_attention(x, cache, sequence_lengths=paddle.full([2, 1], -1, "int32"))[0].numpy().any()
    x[1] = step.tensor(step.x)[1]
    out, *_ = masked_multihead_attention(x, step.stored(), sequence_lengths=paddle.to_tensor([[-1], [2]], dtype="int32"))
    assert not out[0].numpy().any() and np.isfinite(out[1].numpy()).all()


@pytest.mark.parametrize(
    "named, given",
    [
        ("attribute src_mask is", {"src_mask": np.zeros([2, 1, 1, 2], "float32")}),
        ("attribute src_mask is", {"src_mask": np.zeros([2, 3, 1, 9], "float32")}),
        ("attribute element type of src_mask is bool", {"src_mask": np.zeros([2, 1, 1, 9], "bool")}),
        ("attribute element type of src_mask is int32", {"src_mask": np.zeros([2, 1, 1, 9], "int32")}),
        ("attribute element type of sequence_lengths is bool", {"sequence_lengths": np.zeros([2, 1], "bool")}),
        ("attribute place of the new token is 9", {"sequence_lengths": np.asarray([[1], [9]], "int32")}),
    ],
    ids=["short", "heads", "truth", "integers", "true lengths", "far"],
)
def test_a_step_that_fails_leaves_the_cache(named, given):
    step = Step("float32")
    cache = step.stored()
    before = cache.numpy()
    given = {"sequence_lengths": np.full([2, 1], 5, "int32")} | given
    with pytest.raises(Exception, match=named):
        masked_multihead_attention(step.tensor(step.x), cache, **{name: paddle.to_tensor(array) for name, array in given.items()})
    np.testing.assert_array_equal(cache.numpy(), before)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("halves", [False, True])
def test_a_step_with_rotary_embedding(halves, parts):
    step = Step("float32")
    arguments = {"rotary_tensor": paddle.to_tensor(step.angles, dtype="float32"), "rotary_emb_dims": parts, "use_neox_rotary_style": halves}
    out, kept, *_ = masked_multihead_attention(step.tensor(step.x), step.stored(), step.tensor(step.bias), step.tensor(step.mask), **arguments)
    wanted, keys, values = step.wanted(parts=parts, halves=halves)
    close(out, wanted, "float32")
    close(kept, np.stack([packed(keys, 4), values]), "float32")


def test_steps_follow_each_other():
    """Four steps from an empty cache are causal attention of four tokens."""
    q, k, v = (drawn(2, 4, 3, 8, seed=seed) for seed in range(3))
    cache = paddle.zeros([2, 2, 3, 4, 8])
    for at in range(4):
        x = paddle.to_tensor(np.concatenate([part[:, at] for part in (q, k, v)], 1).reshape(2, -1), dtype="float32")
        out, cache, *_ = masked_multihead_attention(x, cache, sequence_lengths=paddle.full([2, 1], at, "int32"))
    whole = flash(*(paddle.to_tensor(part, dtype="float32") for part in (q, k, v)), causal=True)
    np.testing.assert_allclose(out.numpy(), whole.numpy()[:, -1].reshape(2, -1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "named, arguments",
    [
        ("out_scale", {"out_scale": 1.0}),
        ("beam_cache_offset", {"beam_cache_offset": "integers"}),
        ("qkv_out_scale", {"qkv_out_scale": "floats"}),
        ("src_mask, sequence_lengths", {"src_mask": None}),
        ("cache_kv", {"sequence_lengths": "far"}),
        ("rotary_tensor", {"rotary_emb_dims": 1}),
    ],
)
def test_what_a_step_refuses_is_named(named, arguments):
    step = Step("float32")
    tensors = {"integers": paddle.zeros([2, 1, 9], dtype="int32"), "floats": paddle.ones([3, 4, 16]), "far": paddle.full([2, 1], 9, "int32")}
    given = {"src_mask": step.tensor(step.mask)} | {key: tensors.get(value, value) if isinstance(value, str) else value for key, value in arguments.items()}
    with pytest.raises(Exception, match=named):
        masked_multihead_attention(step.tensor(step.x), step.stored(), **given)
