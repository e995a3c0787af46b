"""Whole models of ONNX: their files, what is around operators, and what is wrong with them."""

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import openmps
import openmps.onnx as ort
from openmps.inference import Config, create_predictor

RANDOM = np.random.default_rng(1)


def _value(name: str, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes, inputs, outputs, tensors=(), opset=17, **settings) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(tensors))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **settings)
    onnx.checker.check_model(model)
    return model


def _network() -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Two layers, whose batch a run decides."""
    weights = [RANDOM.standard_normal(shape).astype(np.float32) for shape in [(12, 40), (40,), (40, 5)]]
    tensors = [numpy_helper.from_array(weight, name) for weight, name in zip(weights, "abc", strict=True)]
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["y"]),
    ]
    return _model(nodes, [_value("x", ["batch", 12])], [_value("y", ["batch", 5])], tensors), weights


def _expected(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    a, b, c = (weight.astype(np.float64) for weight in weights)
    return np.maximum(x @ a + b, 0) @ c


def test_a_model_runs_from_its_file_its_bytes_and_as_a_program(tmp_path):
    model, weights = _network()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    x = RANDOM.standard_normal((7, 12)).astype(np.float32)
    for session in (ort.InferenceSession(str(path)), ort.InferenceSession(path), ort.InferenceSession(model.SerializeToString())):
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, _expected(x, weights), rtol=1e-5, atol=1e-5)
        assert [(given.name, given.shape, given.type) for given in session.get_inputs()] == [("x", ["batch", 12], "tensor(float)")]
        assert [given.name for given in session.get_outputs()] == ["y"]
    (y,) = create_predictor(Config(path)).run([x[:2]])
    np.testing.assert_allclose(y, _expected(x[:2], weights), rtol=1e-5, atol=1e-5)


def test_tensors_may_lie_in_a_file_beside_the_model(tmp_path):
    model, weights = _network()
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="tensors.bin", size_threshold=0)
    x = RANDOM.standard_normal((3, 12)).astype(np.float32)
    (y,) = ort.InferenceSession(tmp_path / "model.onnx").run(["y"], {"x": x})
    np.testing.assert_allclose(y, _expected(x, weights), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"tensors\.bin: open it by its path"):
        ort.InferenceSession((tmp_path / "model.onnx").read_bytes())
    (tmp_path / "tensors.bin").write_bytes(b"\0" * 100)
    with pytest.raises(ValueError, match="bytes are needed, the file ends after 100"):
        ort.InferenceSession(tmp_path / "model.onnx")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname"])
def test_tensors_outside_the_models_folder_are_refused(tmp_path, location):
    model, _ = _network()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="outside the model's folder"):
        ort.InferenceSession(tmp_path / "model.onnx")


def test_tensors_that_are_written_as_lists():
    for dtype, kind in [("float32", 1), ("float64", 11), ("int32", 6), ("int64", 7), ("uint8", 2), ("int8", 3), ("float16", 10), ("bool", 9)]:
        values = np.array([0, 1, 3, 100] * 300).astype(dtype)
        tensor = helper.make_tensor("t", kind, values.shape, values.tolist())
        nodes = [helper.make_node("Identity", ["t"], ["y"])]
        (y,) = ort.InferenceSession(_model(nodes, [], [_value("y", values.shape, kind)], [tensor]).SerializeToString()).run(None, {})
        assert y.dtype == values.dtype
        np.testing.assert_array_equal(y, values)


def test_what_the_author_wrote_beside_the_model():
    model, _ = _network()
    helper.set_model_props(model, {"character": "a\nb"})
    assert ort.InferenceSession(model.SerializeToString()).get_modelmeta().custom_metadata_map == {"character": "a\nb"}


def _branch(name: str, factor: float):
    constant = helper.make_node("Constant", [], [f"{name}_k"], value_float=factor)
    product = helper.make_node("Mul", ["x", f"{name}_k"], [name])  # x is of the graph around it
    return helper.make_graph([constant, product], name, [], [_value(name, ["n"])])


def test_branches_read_what_is_around_them():
    condition = helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)
    zero = helper.make_node("Constant", [], ["zero"], value_float=0.0)
    order = helper.make_node("Greater", ["most", "zero"], ["positive"])
    chosen = helper.make_node("If", ["positive"], ["y"], then_branch=_branch("double", 2.0), else_branch=_branch("minus", -1.0))
    session = ort.InferenceSession(_model([condition, zero, order, chosen], [_value("x", ["n"])], [_value("y", ["n"])]).SerializeToString())
    for x, factor in [([1.0, -5.0], 2), ([-3.0, -1.0, -2.0], -1), ([4.0], 2)]:
        (y,) = session.run(None, {"x": np.array(x, np.float32)})
        np.testing.assert_array_equal(y, np.array(x, np.float32) * factor)


def test_loops_carry_collect_and_end_by_a_condition():
    """1, 2, 4, ... below a limit: the last one, and all of them."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["now", "now"], ["next"]),
            helper.make_node("Less", ["next", "limit"], ["goes_on"]),
            helper.make_node("Identity", ["now"], ["seen"]),
        ],
        "body",
        [_value("round", [], TensorProto.INT64), _value("before", [], TensorProto.BOOL), _value("now", [])],
        [_value("goes_on", [], TensorProto.BOOL), _value("next", []), _value("seen", [])],
    )
    nodes = [
        helper.make_node("Constant", [], ["one"], value_float=1.0),
        helper.make_node("Constant", [], ["rounds"], value_int=20),
        helper.make_node("Loop", ["rounds", "", "one"], ["last", "all"], body=body),
    ]
    session = ort.InferenceSession(_model(nodes, [_value("limit", [])], [_value("last", []), _value("all", ["n"])]).SerializeToString())
    for limit, count in [(100.0, 7), (1e9, 20), (3.0, 2)]:
        last, every = session.run(None, {"limit": np.array(limit, np.float32)})
        np.testing.assert_array_equal(every, 2.0 ** np.arange(count))
        assert last == 2.0**count


def test_threads_share_a_session():
    model, weights = _network()
    session = ort.InferenceSession(model.SerializeToString())
    wrong = []

    def run(rows: int):
        x = np.random.default_rng(rows).standard_normal((rows, 12)).astype(np.float32)
        for _ in range(20):
            (y,) = session.run(None, {"x": x})
            if not np.allclose(y, _expected(x, weights), rtol=1e-4, atol=1e-4):
                wrong.append(rows)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in range(1, 7)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_errors_name_what_is_wrong(tmp_path):
    model, _ = _network()
    session = ort.InferenceSession(model.SerializeToString())
    x = np.zeros((2, 12), np.float32)
    with pytest.raises(ValueError, match=r"no input \['z'\]"):
        session.run(None, {"x": x, "z": x})
    with pytest.raises(ValueError, match="the input x is missing"):
        session.run(None, {})
    with pytest.raises(ValueError, match=r"the input x is tensor\(float\), the array float64"):
        session.run(None, {"x": x.astype(np.float64)})
    with pytest.raises(ValueError, match=r"\[2, 11\]"):
        session.run(None, {"x": x[:, :11]})
    with pytest.raises(ValueError, match=r"no output \['q'\]"):
        session.run(["q"], {"x": x})
    with pytest.raises(FileNotFoundError, match=r"nothing\.onnx"):
        ort.InferenceSession(tmp_path / "nothing.onnx")
    node = helper.make_node("Special", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph([node], "g", [_value("x", [1])], [_value("y", [1])])
    with pytest.raises(NotImplementedError, match=r"com\.example\.Special"):
        ort.InferenceSession(helper.make_model(graph, opset_imports=[helper.make_opsetid("com.example", 1)]).SerializeToString())


def test_damaged_files_are_refused():
    whole = _network()[0].SerializeToString()
    for length in range(0, len(whole), 7):
        with pytest.raises((ValueError, NotImplementedError)):
            ort.InferenceSession(whole[:length]).run(None, {"x": np.zeros((1, 12), np.float32)})
    random = np.random.default_rng(3)
    for _ in range(300):
        damaged = bytearray(whole)
        for at in random.integers(0, len(whole), 3):
            damaged[at] = random.integers(0, 256)
        try:
            ort.InferenceSession(bytes(damaged)).run(None, {"x": np.zeros((1, 12), np.float32)})
        except (ValueError, NotImplementedError, RuntimeError):
            continue


# What an attribute may be that nobody thought of.
HOSTILE = [-1, 0, 2**62, -(2**63), 1e38, float("nan"), [], [0, -1], [2**62, 2**62], [1] * 11, [-3, 5, 0, 1, 2, 7], [0.5] * 4, "", "ij,jk->ik"]
# The names that an operator's attributes have.
NAMES = (
    "allowzero alpha antialias auto_pad axes axis batch_dims beta block_size blocksize ceil_mode direction dilations epsilon equation group "
    "hidden_size is_causal k kernel_shape keepdims mode num_groups num_heads num_outputs kv_num_heads q_num_heads output_padding output_shape "
    "pads perm rotary_embedding_dim scale scales size softcap split strides to value"
).split()


@pytest.mark.parametrize("name", openmps.native.supported_operations(onnx=True))
def test_no_attribute_and_no_input_crashes_an_operator(name):
    x = np.ones((2, 3, 4, 5), np.float32)
    for content in HOSTILE:
        attributes = dict.fromkeys(NAMES, content) if content != [] else {}
        for count, kind in [(1, TensorProto.FLOAT), (2, TensorProto.FLOAT), (3, TensorProto.INT64), (5, TensorProto.FLOAT), (0, TensorProto.FLOAT)]:
            node = helper.make_node(name, ["x"] * count, ["y", "z"], **attributes)
            graph = helper.make_graph([node], "g", [_value("x", x.shape, kind)], [_value("y", ["n"])])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
            try:
                ort.InferenceSession(model.SerializeToString()).run(None, {"x": x.astype(helper.tensor_dtype_to_np_dtype(kind))})
            except (ValueError, NotImplementedError, RuntimeError):
                continue
