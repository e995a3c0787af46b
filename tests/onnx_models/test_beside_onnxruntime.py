"""Small models of one or two nodes, beside ONNX Runtime: its own operators, and everyday edges of ONNX's."""

import functools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import openmps
import openmps.onnx as ort

RANDOM = np.random.default_rng(7)
MICROSOFT = "com.microsoft"
onnxruntime.set_default_logger_severity(4)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def bytes_(*shape: int, dtype: str = "uint8") -> np.ndarray:
    return RANDOM.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def weights(*shape: int) -> np.ndarray:
    """Bytes of seven bits: ONNX Runtime's sums of two products of eight saturate on CPUs without instructions for them, where ours are exact."""
    return RANDOM.integers(-64, 63, shape, "int8", endpoint=True)


def model(kind: str, inputs: dict, constants: dict, outputs: int = 1, opset: int = 17, order: list | None = None, **attributes) -> bytes:
    """One node whose inputs are those of a run, then constants, or in the order that is given; '' stands for a missing one."""
    domain, _, name = kind.rpartition(":")
    names = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(name, order or [*inputs, *constants], names, domain=domain, **attributes)
    return of_nodes([node], inputs, constants, names, opset)


def of_nodes(nodes: list, inputs: dict, constants: dict, outputs: list, opset: int = 17) -> bytes:
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim) for name, array in inputs.items()]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", given, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def both(content: bytes, inputs: dict) -> tuple[list, list]:
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    return ort.InferenceSession(content).run(None, inputs), theirs


def check(content: bytes, inputs: dict, tolerance: float = 2e-5) -> None:
    for ours, theirs in zip(*both(content, inputs), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype.kind in "iub":
            # Sums of floats round, where ONNX Runtime's of integers do not.
            assert np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max(initial=0) <= (ours.dtype.itemsize == 1)
        else:
            np.testing.assert_allclose(
                ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)))
            )


X, ROW, SQUARE = floats(2, 3, 8), floats(8), floats(8, 8)
IMAGE = floats(1, 4, 5, 6)
SCALE, ZERO = np.float32(0.05), np.uint8(120)
MS = MICROSOFT + ":"

OPERATORS = {
    "Gelu": (MS + "Gelu", {"x": X}, {}, {}),
    "BiasGelu": (MS + "BiasGelu", {"x": X}, {"b": ROW}, {}),
    "FastGelu": (MS + "FastGelu", {"x": X}, {}, {}),
    "FastGelu of a sum": (MS + "FastGelu", {"x": X}, {"b": ROW}, {}),
    "QuickGelu": (MS + "QuickGelu", {"x": X}, {}, {"alpha": 1.5}),
    "FusedMatMul": (MS + "FusedMatMul", {"x": X, "y": floats(2, 5, 8)}, {}, {"alpha": 0.5, "transB": 1}),
    "FusedGemm": (MS + "FusedGemm", {"x": floats(3, 8)}, {"w": SQUARE, "b": ROW}, {"activation": "LeakyRelu", "activation_alpha": 0.3}),
    "FusedConv": (MS + "FusedConv", {"x": IMAGE}, {"w": floats(4, 4, 3, 3), "b": floats(4)}, {"activation": "Relu", "pads": [1] * 4}),
    "FusedConv and a sum": (
        MS + "FusedConv", {"x": IMAGE, "w": floats(4, 4, 1, 1), "b": floats(4), "z": IMAGE}, {}, {"activation": "Tanh"},
    ),
    "SkipLayerNormalization": (MS + "SkipLayerNormalization", {"x": X, "y": X * 2}, {"s": ROW, "b": ROW, "a": ROW}, {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": (MS + "SkipSimplifiedLayerNormalization", {"x": X, "y": X * 2}, {"s": ROW}, {"epsilon": 1e-5}),
    "SimplifiedLayerNormalization": ("SimplifiedLayerNormalization", {"x": X}, {"s": ROW}, {"axis": -1, "epsilon": 1e-6}),
    "EmbedLayerNormalization": (
        MS + "EmbedLayerNormalization",
        {"w": np.array([[1, 2, 0], [3, 1, 1]], np.int32), "s": np.array([[0, 1, 1], [0, 0, 1]], np.int32)},
        {"tw": floats(4, 8), "tp": floats(5, 8), "ts": floats(2, 8), "g": ROW, "b": ROW, "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32)},
        {"epsilon": 1e-5, "outputs": 2},
    ),
    "DynamicQuantizeMatMul": (MS + "DynamicQuantizeMatMul", {"x": X}, {"w": bytes_(8, 5), "s": SCALE, "z": ZERO, "b": floats(5)}, {}),
    "MatMulIntegerToFloat": (
        MS + "MatMulIntegerToFloat", {"x": bytes_(3, 8)},
        {"w": weights(8, 5), "sx": SCALE, "sw": np.abs(floats(5)), "zx": ZERO, "zw": bytes_(5, dtype="int8"), "b": floats(5)}, {},
    ),
    "MatMulNBits of 4": (
        MS + "MatMulNBits", {"x": floats(3, 64)}, {"w": bytes_(5, 2, 16), "s": floats(10)}, {"K": 64, "N": 5, "bits": 4, "block_size": 32},
    ),
    "MatMulNBits with zero points": (
        MS + "MatMulNBits", {"x": floats(3, 96)}, {"w": bytes_(5, 3, 16), "s": floats(15), "z": bytes_(10)},
        {"K": 96, "N": 5, "bits": 4, "block_size": 32},
    ),
    "QLinearAdd": (MS + "QLinearAdd", {"x": bytes_(3, 8)}, {"a": SCALE, "b": ZERO, "y": bytes_(8), "c": SCALE, "d": ZERO, "e": SCALE, "f": ZERO}, {}),
    "QLinearMul": (MS + "QLinearMul", {"x": bytes_(3, 8)}, {"a": SCALE, "b": ZERO, "y": bytes_(8), "c": SCALE, "d": ZERO, "e": SCALE, "f": ZERO}, {}),
    "QLinearSigmoid": (MS + "QLinearSigmoid", {"x": bytes_(3, 8)}, {"a": SCALE, "b": ZERO, "c": np.float32(1 / 256), "d": np.uint8(0)}, {}),
    "QLinearLeakyRelu": (MS + "QLinearLeakyRelu", {"x": bytes_(3, 8)}, {"a": SCALE, "b": ZERO, "c": SCALE, "d": ZERO}, {"alpha": 0.2}),
    "QLinearAveragePool": (
        MS + "QLinearAveragePool", {"x": bytes_(1, 4, 5, 6)}, {"a": SCALE, "b": ZERO, "c": SCALE, "d": ZERO}, {"kernel_shape": [2, 2]},
    ),
    "QLinearGlobalAveragePool": (MS + "QLinearGlobalAveragePool", {"x": bytes_(1, 4, 5, 6)}, {"a": SCALE, "b": ZERO, "c": SCALE, "d": ZERO}, {}),
    "QLinearConcat": (
        MS + "QLinearConcat", {}, {"e": SCALE, "f": ZERO, "x": bytes_(3, 8), "a": SCALE, "b": ZERO, "y": bytes_(3, 2), "c": SCALE * 2, "d": ZERO},
        {"axis": 1},
    ),
    "QGemm": (
        MS + "QGemm", {"x": bytes_(3, 8)},
        {"a": SCALE, "b": ZERO, "w": weights(5, 8), "c": SCALE, "d": np.int8(3), "h": np.arange(5, dtype=np.int32)},
        {"transB": 1},
    ),
    "DFT of real numbers": ("DFT", {"x": floats(2, 10, 1)}, {}, {"axis": 1, "onesided": 1}),
    "DFT of complex numbers, shorter, back": ("DFT", {"x": floats(2, 10, 2)}, {"n": np.int64(6)}, {"axis": 1, "inverse": 1}),
    "STFT": ("STFT", {"x": floats(2, 50, 1)}, {"s": np.int64(7), "w": np.hanning(16).astype("float32")}, {}),
    "HannWindow": ("HannWindow", {}, {"n": np.int64(12)}, {}),
    "HammingWindow": ("HammingWindow", {}, {"n": np.int64(12)}, {"periodic": 0}),
    "BlackmanWindow": ("BlackmanWindow", {}, {"n": np.int64(12)}, {}),
    "MelWeightMatrix": (
        "MelWeightMatrix", {},
        {"c": np.int64(20), "n": np.int64(512), "r": np.int64(16000), "l": np.float32(20), "h": np.float32(8000)}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator(name):
    kind, inputs, constants, attributes = OPERATORS[name]
    check(model(kind, inputs, constants, **attributes), inputs)


@pytest.mark.parametrize("name", ["MatMulIntegerToFloat", "QGemm"])
def test_products_of_whole_bytes_are_exact(name):
    """With weights of eight bits, where ONNX Runtime's sums depend on the CPU: beside float64."""
    kind, inputs, constants, attributes = OPERATORS[name]
    random = np.random.default_rng(11)
    constants = constants | {"w": random.integers(-128, 127, constants["w"].shape, "int8", endpoint=True)}
    found = ort.InferenceSession(model(kind, inputs, constants, **attributes)).run(None, inputs)[0]
    x, w = inputs["x"].astype(np.float64), constants["w"].astype(np.float64)
    if name == "QGemm":
        expected = ((x - ZERO) @ (w - constants["d"]).T + constants["h"]) * np.float64(SCALE) ** 2
    else:
        expected = (x - ZERO) @ (w - constants["zw"]) * SCALE * constants["sw"].astype(np.float64) + constants["b"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_the_sum_beside_a_norm():
    inputs = {"x": X, "y": X * 2}
    node = helper.make_node("SkipLayerNormalization", ["x", "y", "s"], ["n", "", "", "sum"], domain=MICROSOFT, epsilon=1e-5)
    check(of_nodes([node], inputs, {"s": ROW}, ["n", "sum"]), inputs)


MASKS = {
    "none": None,
    "lengths": np.array([2, 3], np.int32),
    "of keys": np.array([[1, 1, 0], [0, 1, 1]], np.int32),
    "of rows and keys": np.array([[[1, 0, 0], [1, 1, 0], [1, 1, 1]]] * 2, np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_with_its_projections(mask, unidirectional):
    inputs, constants = {"x": X}, {"w": floats(8, 24) / 3, "b": floats(24)}
    if MASKS[mask] is not None:
        constants["m"] = MASKS[mask]
    check(model(MS + "Attention", inputs, constants, num_heads=2, unidirectional=unidirectional), inputs)


def test_attention_after_a_past():
    inputs = {"x": X, "past": floats(2, 2, 2, 4, 4)}
    constants = {"w": floats(8, 24) / 3, "b": floats(24)}
    content = model(MS + "Attention", inputs, constants, 2, order=["x", "w", "b", "", "past"], num_heads=2, unidirectional=1)
    check(content, inputs)


@pytest.mark.parametrize("past", [False, True])
def test_attention_of_heads(past):
    inputs = {"q": X, "k": floats(2, 5, 8), "v": floats(2, 5, 8), "added": floats(1, 2, 3, 9 if past else 5)}
    order = ["q", "k", "v", "b", "", "added"]
    if past:
        inputs |= {"pk": floats(2, 2, 4, 4), "pv": floats(2, 2, 4, 4)}
        order += ["pk", "pv"]
    check(model(MS + "MultiHeadAttention", inputs, {"b": floats(24)}, 3 if past else 1, order=order, num_heads=2), inputs)


@pytest.mark.parametrize("per_gate", [False, True])
def test_an_lstm_with_weights_of_bytes(per_gate):
    hidden, given = 6, 5
    inputs = {"x": floats(4, 2, given)}
    shape = (2, 4 * hidden) if per_gate else (2,)
    parts = {"w": bytes_(2, given, 4 * hidden), "r": bytes_(2, hidden, 4 * hidden), "b": floats(2, 8 * hidden)}
    scales = {"ws": np.full(shape, 0.004, np.float32), "wz": np.full(shape, 128, np.uint8), "rs": np.full(shape, 0.004, np.float32)}
    constants = parts | scales | {"rz": np.full(shape, 128, np.uint8)}
    order = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    content = model(MS + "DynamicQuantizeLSTM", inputs, constants, 3, order=order, hidden_size=hidden, direction="bidirectional")
    # It makes bytes of inputs and states; here they stay floats.
    check(content, inputs, 2e-2)


def pads(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


EDGES = {
    "the logarithm of sums of infinities": (
        "ReduceLogSumExp", {"x": np.array([[-np.inf, -np.inf], [np.inf, 1], [1, 2]], "f")}, {}, {"axes": [1]},
    ),
    "backwards from before the start": ("Slice", {"x": floats(1)}, {"s": pads(-3), "e": pads(-(2**63) + 1), "a": pads(0), "p": pads(-1)}, {}),
    "backwards to an open end": ("Slice", {"x": floats(3)}, {"s": pads(-1), "e": pads(2**63 - 1), "a": pads(0), "p": pads(-1)}, {}),
    "less at one edge, more at the other": ("Pad", {"x": floats(5)}, {"p": pads(1, -2)}, {"mode": "edge"}),
    "integers beyond 2^53": ("Add", {"x": pads(1)}, {"c": pads(2**60 + 1)}, {}),
    "the least integer but one": ("Add", {"x": pads(0)}, {"c": pads(-(2**63) + 1)}, {}),
    "bounds beyond 2^53": ("Clip", {"x": pads(0)}, {"c": np.int64(2**60 + 1)}, {}),
    "what is left of the least integer": ("Mod", {"x": np.array([-128, -7, 7, 6], "i1")}, {"c": np.array([3, 3, -3, 3], "i1")}, {"fmod": 1}),
    "magnitudes of unsigned numbers": ("Abs", {"x": np.array([3, 255], "u1")}, {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_an_edge(name):
    kind, inputs, constants, attributes = EDGES[name]
    check(model(kind, inputs, constants, **attributes), inputs)


REFUSED = {
    "an index of a shape": ([("Shape", ["x"], ["s"]), ("Gather", ["s", "i"], ["y"])], {"i": pads(-7)}, "index -7"),
    "an inner index": ([("ScatterND", ["x", "i", "u"], ["y"])], {"i": pads([0, 7]), "u": floats(1)}, "index"),
    "updates of another shape": ([("ScatterND", ["x", "i", "u"], ["y"])], {"i": pads([0], [1]), "u": floats(6)}, r"updates of shape \[6\]"),
    "a window that no memory holds": ([("HannWindow", ["n"], ["y"])], {"n": np.int64(2**40)}, "a table of 1099511627776 numbers"),
    "attention of a matrix": (
        [("Flatten", ["x"], ["m"]), ("Attention", ["m", "m", "m"], ["y"], {"q_num_heads": 1, "kv_num_heads": 1})],
        {},
        "rows of shape",
    ),
    "more parts than outputs": ([("Split", ["x"], ["y"], {"num_outputs": 2**40, "axis": 0})], {}, "1099511627776 parts with 1 output"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused(name):
    nodes, constants, says = REFUSED[name]
    made = [helper.make_node(kind, given, outputs, **(attributes[0] if attributes else {})) for kind, given, outputs, *attributes in nodes]
    content = of_nodes(made, {"x": floats(2, 3)}, constants, ["y"], opset=23)
    with pytest.raises((ValueError, RuntimeError), match=says):
        ort.InferenceSession(content).run(None, {"x": floats(2, 3)})
    # The error ends with the run: nobody who waits for the device meets it again.
    openmps.native.synchronize(0)


def test_a_loop_of_no_rounds_collects_nothing():
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    nodes = [helper.make_node("Identity", ["c"], ["go"]), helper.make_node("Add", ["a", "a"], ["twice"])]
    given = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        value("a", shape=[2]),
    ]
    back = [helper.make_tensor_value_info("go", TensorProto.BOOL, []), value("twice", shape=[2]), value("twice", shape=[2])]
    body = helper.make_graph(nodes, "body", given, back)
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=body)
    for rounds in (0, 3):
        inputs = {"n": np.array(rounds), "x": floats(2)}
        check(of_nodes([node], inputs, {}, ["y", "all"]), inputs)


def test_functions_of_a_model():
    """A function that calls another one, with an attribute of its own and one by default; an input that is missing."""
    inner = helper.make_function(
        "own", "leaky", ["x"], ["y"], [helper.make_node("LeakyRelu", ["x"], ["y"])], [helper.make_opsetid("", 17)], ["alpha"],
    )  # fmt: skip
    inner.node[0].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    inner.attribute[:] = []
    inner.attribute_proto.append(helper.make_attribute("slope", 0.5))
    nodes = [
        helper.make_node("leaky", ["a"], ["t"], domain="own", slope=0.25),
        helper.make_node("leaky", ["t"], ["u"], domain="own"),
        helper.make_node("Clip", ["u", "", "most"], ["y"]),
    ]
    outer = helper.make_function("own", "both", ["a", "most"], ["y"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])
    graph = helper.make_graph(
        [helper.make_node("both", ["x", ""], ["p"], domain="own"), helper.make_node("both", ["p", "one"], ["y"], domain="own")],
        "g", [helper.make_tensor_value_info("x", 1, ["N", 8])], [helper.make_tensor_value_info("y", 1, ["N", 8])],
        [numpy_helper.from_array(np.float32(1), "one")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    content = helper.make_model(graph, opset_imports=opsets, functions=[inner, outer], ir_version=8).SerializeToString()
    check(content, {"x": floats(3, 8)})


def test_a_function_that_calls_itself_is_refused():
    function = helper.make_function(
        "own", "again", ["x"], ["y"], [helper.make_node("again", ["x"], ["y"], domain="own")], [helper.make_opsetid("own", 1)]
    )
    graph = helper.make_graph(
        [helper.make_node("again", ["x"], ["y"], domain="own")],
        "g", [helper.make_tensor_value_info("x", 1, [2])], [helper.make_tensor_value_info("y", 1, [2])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    content = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8).SerializeToString()
    with pytest.raises(ValueError, match="the function again calls itself"):
        ort.InferenceSession(content)


def test_functions_that_would_become_too_much_are_refused():
    """Each calls the next one twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for at in range(40):
        kind, domain = (f"f{at + 1}", "own") if at < 39 else ("Relu", "")
        nodes = [helper.make_node(kind, ["x"], ["t"], domain=domain), helper.make_node(kind, ["t"], ["y"], domain=domain)]
        functions.append(helper.make_function("own", f"f{at}", ["x"], ["y"], nodes, opsets))
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="own")], "g", [value("x", 1, [2])], [value("y", 1, [2])])
    content = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8).SerializeToString()
    with pytest.raises(ValueError, match="its functions make more than"):
        ort.InferenceSession(content)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lengths", [None, [5, 3, 1]])
def test_recurrent_layers_of_several_lengths(kind, lengths):
    hidden, given, gates = 7, 4, {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    constants = {"w": floats(2, gates * hidden, given), "r": floats(2, gates * hidden, hidden), "b": floats(2, 2 * gates * hidden)}
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    if lengths:
        constants["lengths"] = np.array(lengths, np.int32)
    content = model(
        kind, {"x": floats(1, 3, given)}, constants, 3 if kind == "LSTM" else 2, hidden_size=hidden, direction="bidirectional", **attributes
    )
    ours = ort.InferenceSession(content)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for steps in (5, 9, 6):
        x = floats(steps, 3, given)
        for own, other in zip(ours.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
    # ONNX Runtime does not survive this one.
    assert ours.run(None, {"x": floats(0, 3, given)})[0].shape == (0, 2, 3, hidden)


INTEGERS = {
    "products of many terms": ("MatMulInteger", (3, 7, 700), (700, 40), {}),
    "products of one term too many": ("MatMulInteger", (5, 259), (259, 9), {}),
    "a vector's products": ("MatMulInteger", (600,), (600, 33), {}),
    "windows over many channels": ("ConvInteger", (1, 24, 40, 40), (24, 24, 3, 3), {"pads": [1, 1, 1, 1]}),
    "pixels of many channels": ("ConvInteger", (1, 300, 9, 9), (20, 300, 1, 1), {}),
    "pixels of few channels": ("ConvInteger", (2, 30, 9, 9), (20, 30, 1, 1), {}),
}


@pytest.mark.parametrize(("kind", "x", "weight", "attributes"), INTEGERS.values(), ids=INTEGERS)
def test_sums_of_bytes_are_exact(kind, x, weight, attributes):
    inputs, constants = {"x": bytes_(*x)}, {"weight": bytes_(*weight), "zero": np.uint8(7), "zero_of_weight": np.uint8(100)}
    (ours,), (theirs,) = both(model(kind, inputs, constants, **attributes), inputs)
    assert ours.dtype == np.int32
    np.testing.assert_array_equal(ours, theirs)
