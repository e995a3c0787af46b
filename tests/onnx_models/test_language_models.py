"""What exported language models are made of, beside ONNX Runtime: attention with a cache, rotary embeddings."""

import numpy as np
import onnxruntime
import pytest
from test_beside_onnxruntime import MS, check, floats, model

import openmps.onnx as ort

onnxruntime.set_default_logger_severity(4)

ORDER = ["q", "k", "v", "pk", "pv", "lengths", "total", "cos", "sin", "places", "added", "sink"]
HEADS, OF_KEYS, DEPTH = 4, 2, 32


def grouped(
    rows: int, before: int, batch: int = 1, kept: int | None = None, lengths: list | None = None, packed: bool = False, **attributes
) -> tuple:
    """The model and its inputs: new rows behind others, in a cache of as many rows as are there, or more."""
    kept = before if kept is None else kept
    total = before + rows
    queries, keys = floats(batch, rows, HEADS * DEPTH), [floats(batch, rows, OF_KEYS * DEPTH) for _ in range(2)]
    inputs = {"q": np.concatenate([queries, *keys], 2)} if packed else {"q": queries, "k": keys[0], "v": keys[1]}
    inputs |= {"pk": floats(batch, OF_KEYS, kept, DEPTH), "pv": floats(batch, OF_KEYS, kept, DEPTH)}
    inputs["lengths"] = np.array(lengths or [total] * batch, np.int32) - 1
    constants = {"total": np.array([total], np.int32)}
    more = {name: attributes.pop(name) for name in ("added", "sink", "places") if name in attributes}
    if attributes.get("do_rotary"):
        columns = attributes.pop("columns", DEPTH) // 2
        constants |= {"cos": floats(32, columns), "sin": floats(32, columns)}
    inputs |= more
    given = inputs | constants
    order = [name if name in given else "" for name in ORDER]
    while not order[-1]:
        order.pop()
    attributes = {"num_heads": HEADS, "kv_num_heads": OF_KEYS} | attributes
    return model(MS + "GroupQueryAttention", inputs, constants, 3, order=order, **attributes), inputs


CASES = {
    "the first rows": {"rows": 5, "before": 0},
    "the first rows, turned": {"rows": 5, "before": 0, "do_rotary": 1},
    "one row more": {"rows": 1, "before": 6, "do_rotary": 1},
    "pairs of neighbours": {"rows": 1, "before": 6, "do_rotary": 1, "rotary_interleaved": 1},
    "a part of the columns": {"rows": 1, "before": 6, "do_rotary": 1, "columns": 16, "packed": True},
    "several rows more": {"rows": 3, "before": 6, "do_rotary": 1},
    "all in one tensor": {"rows": 5, "before": 0, "do_rotary": 1, "packed": True},
    "one row, all in one tensor": {"rows": 1, "before": 3, "do_rotary": 1, "packed": True},
    "a window": {"rows": 6, "before": 0, "local_window_size": 3},
    "a window over others": {"rows": 1, "before": 6, "local_window_size": 3},
    "bounds of scores": {"rows": 6, "before": 0, "softcap": 2.0, "scale": 0.7},
    "sequences that are equally long": {"rows": 1, "before": 6, "batch": 3, "do_rotary": 1},
    "a smooth softmax": {"rows": 4, "before": 0, "smooth_softmax": 1},
    "a smooth softmax behind others": {"rows": 1, "before": 4, "smooth_softmax": 1, "local_window_size": 3},
    "a number of each head": {"rows": 4, "before": 0, "sink": floats(HEADS)},
    "something added": {"rows": 4, "before": 0, "added": floats(1, HEADS, 4, 4)},
    "something added behind others": {"rows": 1, "before": 4, "added": floats(1, 1, 1, 5)},
    "places": {"rows": 1, "before": 4, "do_rotary": 1, "places": np.array([[9]])},
    "to both sides": {"rows": 4, "before": 0, "causal": 0, "batch": 2, "lengths": [4, 2]},
}


@pytest.mark.parametrize("name", CASES)
def test_attention_with_a_cache(name):
    check(*grouped(**CASES[name]))


@pytest.mark.parametrize("lengths", [[7, 4, 6], [7, 7, 1]])
@pytest.mark.parametrize("window", [-1, 3])
def test_sequences_of_several_lengths(lengths, window):
    """What lies in a cache behind a sequence's end is nobody's."""
    content, inputs = grouped(1, 6, 3, lengths=lengths, do_rotary=1, local_window_size=window)
    ours = ort.InferenceSession(content).run(None, inputs)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    for own, other in zip(ours[1:], theirs[1:], strict=True):
        assert own.shape == other.shape
        for at, length in enumerate(lengths):
            np.testing.assert_allclose(own[at, :, :length], other[at, :, :length], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "before", "kept"), [(4, 0, 9), (1, 4, 9), (2, 4, 9)])
def test_a_cache_with_room_for_more(rows, before, kept):
    content, inputs = grouped(rows, before, kept=kept, do_rotary=1)
    ours = ort.InferenceSession(content).run(None, inputs)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    for own, other in zip(ours[1:], theirs[1:], strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own[:, :, : rows + before], other[:, :, : rows + before], rtol=1e-5, atol=1e-6)


X, TABLES = floats(2, 3, 32), {"cos": floats(16, 4), "sin": floats(16, 4)}
ROTARY = {
    "one place for all": ({"x": X, "p": np.array([5])}, {}),
    "a place for each row": ({"x": X, "p": np.array([[3, 4, 5], [0, 1, 2]])}, {}),
    "pairs of neighbours": ({"x": X, "p": np.array([5])}, {"interleaved": 1}),
    "heads apart": ({"x": floats(2, 4, 3, 8), "p": np.array([5])}, {}),
    "a part of the columns": ({"x": floats(2, 3, 48), "p": np.array([5])}, {"num_heads": 4, "rotary_embedding_dim": 8}),
}


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_embeddings(name):
    inputs, attributes = ROTARY[name]
    check(model(MS + "RotaryEmbedding", inputs, TABLES, **attributes), inputs)


@pytest.mark.parametrize("parts", [1, 2])
def test_attention_of_what_is_in_one_tensor(parts):
    """ONNX Runtime has it on GPUs alone: beside the same in tensors of their own."""
    given = [floats(2, 3, 16) for _ in range(3)]
    separate = model(MS + "MultiHeadAttention", dict(zip("qkv", given, strict=True)), {}, num_heads=2)
    heads = [part.reshape(2, 3, 2, 8) for part in given]
    joined = np.stack(heads, 3) if parts == 1 else np.stack(heads[1:], 3)
    inputs = {"q": joined} if parts == 1 else {"q": given[0], "kv": joined}
    content = model(MS + "MultiHeadAttention", inputs, {}, num_heads=2)
    (expected,) = ort.InferenceSession(separate).run(None, dict(zip("qkv", given, strict=True)))
    (result,) = ort.InferenceSession(content).run(None, inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_attention_from_a_place_on():
    inputs, constants = {"x": floats(2, 3, 8)}, {"w": floats(8, 24) / 3, "b": floats(24), "m": np.array([3, 2, 1, 0], np.int32)}
    check(model(MS + "Attention", inputs, constants, num_heads=2), inputs)
