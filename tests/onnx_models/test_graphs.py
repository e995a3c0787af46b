"""What a model's graph may look like: the order of its nodes, inputs of which little is known, tensors that a run may give; beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_beside_onnxruntime import both, check, floats, model, of_nodes

import openmps.onnx as ort

onnxruntime.set_default_logger_severity(4)
value = helper.make_tensor_value_info


def whole(nodes: list, given: list, made: list, held: dict, ir_version: int = 8) -> bytes:
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "g", given, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version).SerializeToString()


def test_nodes_in_any_order():
    nodes = [("Neg", ["b"], ["y"]), ("Add", ["a", "x"], ["b"]), ("Abs", ["x"], ["a"])]
    inputs = {"x": floats(2, 3)}
    check(of_nodes([helper.make_node(*node) for node in nodes], inputs, {}, ["y"]), inputs)


def test_a_branch_before_what_it_reads():
    branches = [helper.make_graph([helper.make_node(kind, ["a"], ["r"])], kind, [], [value("r", 1, None)]) for kind in ("Neg", "Exp")]
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    inputs = {"c": np.array(True), "x": floats(3)}
    check(of_nodes([choice, helper.make_node("Abs", ["x"], ["a"])], inputs, {}, ["y"]), inputs)


def test_a_circle_is_refused():
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Add", ["x", "y"], ["a"])]
    with pytest.raises(ValueError, match="made of itself"):
        ort.InferenceSession(of_nodes(nodes, {"x": floats(2)}, {}, ["y"]))


def test_an_input_of_any_number_of_dimensions():
    content = whole([helper.make_node("ReduceSum", ["x"], ["y"])], [value("x", TensorProto.FLOAT, None)], [value("y", TensorProto.FLOAT, None)], {})
    for shape in ((), (3,), (2, 3, 4)):
        check(content, {"x": floats(*shape)})
    assert ort.InferenceSession(content).get_inputs()[0].shape == []


OVERRIDABLE = whole(
    [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Mul", ["s", "f"], ["y"])],
    [value("x", 1, [2, "n"]), value("w", 1, ["n"]), value("f", 1, [])],
    [value("y", 1, None)],
    {"w": np.array([1, 2], np.float32), "f": np.float32(3)},
)


@pytest.mark.parametrize("instead", [{}, {"w": floats(2)}, {"f": np.float32(-2)}, {"w": floats(2), "f": np.float32(5)}])
def test_tensors_that_a_run_gives(instead):
    check(OVERRIDABLE, {"x": floats(2, 2)} | {name: np.asarray(array) for name, array in instead.items()})


def test_tensors_that_a_run_may_give_are_told():
    ours, theirs = [kind.InferenceSession(OVERRIDABLE).get_overridable_initializers() for kind in (ort, onnxruntime)]
    told = [[(tensor.name, tensor.type, tensor.shape) for tensor in tensors] for tensors in (ours, theirs)]
    assert told[0] == told[1]
    session = ort.InferenceSession(OVERRIDABLE)
    with pytest.raises(ValueError, match="w"):
        session.run(None, {"x": floats(2, 2), "w": floats(2, 2)})
    with pytest.raises(ValueError, match="no input"):
        session.run(None, {"x": floats(2, 2), "v": floats(2)})


def test_old_models_let_no_run_give_their_tensors():
    given = [value("x", 1, [2]), value("w", 1, [2])]
    content = whole([helper.make_node("Add", ["x", "w"], ["y"])], given, [value("y", 1, None)], {"w": floats(2)}, ir_version=3)
    assert ort.InferenceSession(content).get_overridable_initializers() == []
    check(content, {"x": floats(2)})


BEYOND = 2**60 + 1


def test_numbers_that_floats_leave_out():
    made = helper.make_node("ConstantOfShape", ["s"], ["y"], value=numpy_helper.from_array(np.array([BEYOND])))
    inputs = {"s": np.array([2, 3])}
    check(of_nodes([made], inputs, {}, ["y"]), inputs)
    inputs = {"x": np.array([BEYOND + 2])}
    content = model("Pad", inputs, {"p": np.array([1, 2]), "v": np.array(BEYOND)})
    for ours, theirs in zip(*both(content, inputs), strict=True):
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("kind", ["Div", "Mod"])
def test_integers_divided_by_nothing_are_refused(kind):
    content = model(kind, {"x": np.array([1, 2])}, {"d": np.array([1, 0])})
    with pytest.raises(ValueError, match="divided by 0"):
        ort.InferenceSession(content).run(None, {"x": np.array([1, 2])})
