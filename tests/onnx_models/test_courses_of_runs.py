"""Models of which each run finds out what it does: runs in a row take one way and another, beside ONNX Runtime."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from test_beside_onnxruntime import of_nodes

import openmps.onnx as ort

RANDOM = np.random.default_rng(11)


def graph_of(nodes: list, outputs: list, inputs: list | None = None) -> onnx.GraphProto:
    return helper.make_graph(nodes, "g", inputs or [], [onnx.ValueInfoProto(name=name) for name in outputs])


def choice(condition: str, result: str, yes: list, no: list) -> onnx.NodeProto:
    """One of two branches, each of which hands back what its last node makes."""
    branches = [graph_of(nodes, nodes[-1].output) for nodes in (yes, no)]
    return helper.make_node("If", [condition], [result], then_branch=branches[0], else_branch=branches[1])


def model_of(nodes: list, outputs: list) -> bytes:
    return of_nodes(nodes, {"x": np.zeros(1, np.float32)}, NUMBERS, outputs)


NUMBERS = {"half": np.float32(0.5), "two": np.float32(2), "most": np.int64(50), "yes": np.bool_(True), "hundred": np.float32(100)}


def branching() -> bytes:
    """Two branches, one of which branches again, and a value that is made before both and read behind them."""
    inner = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Greater", ["largest", "two"], ["is_large"]),
        choice("is_large", "of_inner", [helper.make_node("Mul", ["x", "half"], ["smaller"])], [helper.make_node("Exp", ["x"], ["larger"])]),
    ]
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
        helper.make_node("Greater", ["mean", "half"], ["is_much"]),
        choice("is_much", "chosen", inner, [helper.make_node("Neg", ["x"], ["negative"])]),
        helper.make_node("Add", ["chosen", "square"], ["y"]),
    ]
    return model_of(nodes, ["y"])


def looping() -> bytes:
    """Doubles until the sum is above a hundred, and says how often."""
    scalar = [("round", TensorProto.INT64), ("before", TensorProto.BOOL)]
    arguments = [
        *(helper.make_tensor_value_info(name, kind, []) for name, kind in scalar),
        helper.make_tensor_value_info("v", TensorProto.FLOAT, [None]),
    ]
    body = [
        helper.make_node("Mul", ["v", "two"], ["doubled"]),
        helper.make_node("ReduceSum", ["doubled"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "hundred"], ["on"]),
        helper.make_node("Identity", ["round"], ["this"]),
    ]
    loop = helper.make_node("Loop", ["most", "yes", "x"], ["last", "rounds"], body=graph_of(body, ["on", "doubled", "this"], arguments))
    return model_of([loop, helper.make_node("Sub", ["last", "x"], ["y"])], ["y", "rounds"])


def counting() -> bytes:
    """How many numbers are not 0 decides the shape: nearly every run is one of its own."""
    nodes = [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Cast", ["at"], ["y"], to=TensorProto.FLOAT)]
    return model_of(nodes, ["y"])


def reading() -> bytes:
    """The input itself is a size: nothing has to be run for it."""
    nodes = [helper.make_node("Cast", ["x"], ["size"], to=TensorProto.INT64), helper.make_node("Expand", ["half", "size"], ["y"])]
    return model_of(nodes, ["y"])


def check(content: bytes, runs: list) -> None:
    theirs, ours = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]), ort.InferenceSession(content)
    for x in runs:
        for found, expected in zip(ours.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def of_all_ways(times: int) -> list:
    """Negative, middling and large ones, in turns and in no order."""
    means = np.concatenate([np.tile([-1.0, 1.0, 4.0], times), RANDOM.choice([-1.0, 1.0, 4.0], 3 * times)])
    return [(mean + 0.1 * RANDOM.standard_normal(5)).astype(np.float32) for mean in means]


@pytest.mark.parametrize("content", [branching(), looping()], ids=["branches", "loops"])
def test_runs_take_the_way_of_their_numbers(content):
    check(content, [np.abs(x) if content == looping() else x for x in of_all_ways(10)])


def test_runs_that_differ_by_nature():
    check(counting(), [(RANDOM.random(300) < RANDOM.random()).astype(np.float32) for _ in range(120)])


def test_an_input_is_a_size():
    check(reading(), [np.array([size], np.float32) for size in [3, 4, 3, 4, 0, 3]])


def test_threads_share_what_runs_did():
    content = branching()
    theirs, ours = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]), ort.InferenceSession(content)
    runs = of_all_ways(15)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: ours.run(None, {"x": x})[0], runs))
    for x, of_one in zip(runs, found, strict=True):
        np.testing.assert_allclose(of_one, theirs.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_an_error_names_its_operation_each_time():
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Cast", ["largest"], ["at"], to=TensorProto.INT64),
        helper.make_node("Gather", ["x", "at"], ["picked"]),
        helper.make_node("Greater", ["picked", "half"], ["is_much"]),
        choice("is_much", "y", [helper.make_node("Neg", ["x"], ["negative"])], [helper.make_node("Exp", ["x"], ["larger"])]),
    ]
    session = ort.InferenceSession(model_of(nodes, ["y"]))
    good, bad = np.array([1, 0.7, 0], np.float32), np.array([9, 0.7, 0], np.float32)
    texts = []
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": good})[0], -good)
        with pytest.raises(ort.errors.Fail) as raised:
            session.run(None, {"x": bad})
        texts.append(str(raised.value))
    assert texts[0] == texts[1] and "9" in texts[0], texts
