"""Operators of ONNX that few models have, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from test_beside_onnxruntime import check, floats, model, of_nodes

import openmps.onnx as ort

onnxruntime.set_default_logger_severity(4)

IMAGES = floats(2, 3, 9, 11)
REGIONS = np.array([[0, 0, 8, 8], [1.3, 2.1, 4.7, 7.9], [-3, -2, 15, 12], [5, 5, 5.2, 5.1], [9, 2, 3, 1]], np.float32)
OF_IMAGES = np.array([0, 1, 1, 0, 1])
SIZES = {"output_height": 3, "output_width": 2}

OPERATORS = {
    "regions": ("RoiAlign", {"x": IMAGES, "r": REGIONS, "i": OF_IMAGES}, {}, SIZES | {"sampling_ratio": 2, "spatial_scale": 0.8}),
    "regions by their sizes": ("RoiAlign", {"x": IMAGES, "r": REGIONS, "i": OF_IMAGES}, {}, SIZES),
    "regions of sides": (
        "RoiAlign", {"x": IMAGES, "r": REGIONS, "i": OF_IMAGES}, {}, SIZES | {"coordinate_transformation_mode": "output_half_pixel"},
    ),
    "columns": ("Col2Im", {"x": floats(2, 3 * 6, 12)}, {"i": np.array([5, 5]), "b": np.array([2, 3])}, {}),
    "columns with gaps": (
        "Col2Im", {"x": floats(1, 2 * 4, 9)}, {"i": np.array([5, 6]), "b": np.array([2, 2])},
        {"pads": [1, 0, 0, 1], "strides": [2, 2], "dilations": [1, 2]},
    ),
    "cubic sampling": ("GridSample", {"x": IMAGES, "g": floats(2, 4, 5, 2)}, {}, {"mode": "cubic"}),
    "cubic sampling, mirrored": ("GridSample", {"x": IMAGES, "g": floats(2, 4, 5, 2)}, {}, {"mode": "cubic", "padding_mode": "reflection"}),
    "cubic sampling, of the border": (
        "GridSample", {"x": IMAGES, "g": floats(2, 4, 5, 2)}, {}, {"mode": "cubic", "padding_mode": "border", "align_corners": 1},
    ),
    "the different ones": ("Unique", {"x": np.array([3, 1, 3, 2, 1, -1])}, {}, {}),
    "the different ones as they come": ("Unique", {"x": np.array([[3.0, 1, 3], [2, 1, -1]], np.float32)}, {}, {"sorted": 0}),
    "different slices": ("Unique", {"x": np.array([[1, 0, 1], [2, 3, 2]], np.float32)}, {}, {"axis": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator(name):
    kind, inputs, constants, attributes = OPERATORS[name]
    outputs = 4 if kind == "Unique" else 1
    check(model(kind, inputs, constants, outputs, opset=20 if kind == "GridSample" else 18, **attributes), inputs)


REFUSED = {
    "an image that is not there": ("RoiAlign", {"x": IMAGES, "r": REGIONS[:1], "i": np.array([7])}, SIZES, "image 7 of 2"),
    "an image before all": ("RoiAlign", {"x": IMAGES, "r": REGIONS[:1], "i": np.array([-1])}, SIZES, "region 0"),
    "boxes of nothing": ("RoiAlign", {"x": IMAGES, "r": REGIONS[:1], "i": np.array([0])}, {"output_height": 0}, "boxes of"),
    "a region without end": ("RoiAlign", {"x": IMAGES, "r": REGIONS[:1] * 1e9, "i": np.array([0])}, SIZES, "points a cell"),
    "columns of another window": ("Col2Im", {"x": floats(2, 7, 12), "i": np.array([5, 5]), "b": np.array([2, 3])}, {}, "columns of shape"),
    "an axis of a number": ("Unique", {"x": np.array(3)}, {"axis": 0}, "an axis of a single number"),
    "rows that have no room": ("TensorScatter", {"c": floats(1, 2, 3), "r": floats(1, 4, 3)}, {}, "rows of shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name):
    kind, inputs, attributes, says = REFUSED[name]
    content = model(kind, inputs, {}, opset=24, **attributes)
    with pytest.raises((ValueError, RuntimeError), match=says):
        ort.InferenceSession(content).run(None, inputs)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_with_offsets(masked, groups):
    inputs = {"x": floats(2, 4, 6, 7), "o": floats(2, 2 * 9 * 2, 3, 7)}
    constants = {"w": floats(4, 4 // groups, 3, 3), "b": floats(4)}
    order = ["x", "w", "o", "b"]
    if masked:
        inputs["m"] = floats(2, 2 * 9, 3, 7)
        order.append("m")
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 1], "offset_group": 2, "group": groups}
    check(model("DeformConv", inputs, constants, order=order, opset=19, **attributes), inputs, 1e-4)


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("rounds", [1, 4])
def test_scans(backwards, rounds):
    """A sum that goes round, and what each round made of it."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["sum", "slice"], ["next"]), helper.make_node("Neg", ["next"], ["shown"])]
    body = helper.make_graph(nodes, "body", [value("sum", 1, [3]), value("slice", 1, [3])], [value("next", 1, [3]), value("shown", 1, [3])])
    attributes = {"scan_input_axes": [1], "scan_input_directions": [backwards], "scan_output_axes": [1], "scan_output_directions": [backwards]}
    node = helper.make_node("Scan", ["first", "x"], ["y", "all"], body=body, num_scan_inputs=1, **attributes)
    inputs = {"first": floats(3), "x": floats(3, rounds)}
    check(of_nodes([node], inputs, {}, ["y", "all"]), inputs)


def _by_sign(read: str, made: str) -> list:
    """The negative of what is read where the sum so far is positive, else its power: which one, the values say."""
    value = helper.make_tensor_value_info
    branches = [helper.make_graph([helper.make_node(kind, [read], ["r"])], kind, [], [value("r", 1, [3])]) for kind in ("Neg", "Exp")]
    return [
        helper.make_node("ReduceSum", ["sum"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "nothing"], ["c"]),
        helper.make_node("If", ["c"], ["part"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Add", ["sum", "part"], [made]),
        helper.make_node("Abs", [made], ["shown"]),
    ]


def test_a_scan_that_reads_values():
    """The graph is run in each round, and what was collected before is there after it."""
    value = helper.make_tensor_value_info
    given, back = [value("sum", 1, [3]), value("slice", 1, [3])], [value("next", 1, [3]), value("shown", 1, [3])]
    body = helper.make_graph(_by_sign("slice", "next"), "body", given, back)
    node = helper.make_node("Scan", ["first", "x"], ["y", "all"], body=body, num_scan_inputs=1)
    inputs = {"first": floats(3), "x": floats(6, 3)}
    check(of_nodes([node], inputs, {"nothing": np.float32(0)}, ["y", "all"]), inputs)


def test_a_loop_that_reads_values():
    value = helper.make_tensor_value_info
    given = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("sum", 1, [3])]
    back = [value("on", TensorProto.BOOL, []), value("next", 1, [3]), value("shown", 1, [3])]
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["on"]), *_by_sign("sum", "next")], "body", given, back)
    node = helper.make_node("Loop", ["n", "", "first"], ["y", "all"], body=body)
    inputs = {"n": np.array(4), "first": floats(3)}
    check(of_nodes([node], inputs, {"nothing": np.float32(0)}, ["y", "all"]), inputs)


def test_a_list_that_is_mapped():
    value = helper.make_tensor_value_info
    given = [value("part", 1, None), value("same", 1, None)]
    body = helper.make_graph([helper.make_node("Mul", ["part", "same"], ["r"])], "body", given, [value("r", 1, None)])
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0),
        helper.make_node("SequenceMap", ["parts", "f"], ["products"], body=body),
        helper.make_node("ConcatFromSequence", ["products"], ["y"], axis=0),
    ]
    inputs = {"x": floats(4, 3), "f": floats(1, 3)}
    check(of_nodes(nodes, inputs, {}, ["y"]), inputs)


def test_scans_of_different_lengths_are_refused():
    value = helper.make_tensor_value_info
    body = helper.make_graph([helper.make_node("Add", ["a", "b"], ["r"])], "body", [value("a", 1, [3]), value("b", 1, [3])], [value("r", 1, [3])])
    node = helper.make_node("Scan", ["x", "y"], ["z"], body=body, num_scan_inputs=2)
    inputs = {"x": floats(2, 3), "y": floats(4, 3)}
    with pytest.raises(ValueError, match=r"scanned inputs of \[2, 4\] slices"):
        ort.InferenceSession(of_nodes([node], inputs, {}, ["z"])).run(None, inputs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_an_lstm_whose_gates_see_its_cells(direction):
    hidden, given, directions = 5, 3, 2 if direction == "bidirectional" else 1
    constants = {
        "w": floats(directions, 4 * hidden, given), "r": floats(directions, 4 * hidden, hidden), "b": floats(directions, 8 * hidden),
        "p": floats(directions, 3 * hidden),
    }  # fmt: skip
    order = ["x", "w", "r", "b", "", "", "", "p"]
    content = model("LSTM", {"x": floats(1, 2, given)}, constants, 3, order=order, hidden_size=hidden, direction=direction)
    check(content, {"x": floats(6, 2, given)})


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 0]])
def test_places_of_a_pooling_undo_it(pads):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["pooled", "places"], kernel_shape=[2, 2], strides=[2, 2], pads=pads),
        helper.make_node("MaxUnpool", ["pooled", "places"], ["y"], kernel_shape=[2, 2], strides=[2, 2], pads=pads),
    ]
    x = floats(2, 3, 6, 8)
    check(of_nodes(nodes, {"x": x}, {}, ["y"]), {"x": x})
