"""The names of ONNX Runtime, as programs use them that run models."""

import importlib
import queue
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import openmps.onnx as ort

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def session():
    nodes = [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "sums", [value("x", TensorProto.FLOAT, ["rows", 3])], [value(name, TensorProto.FLOAT, ["rows", 3]) for name in "yz"],
        [numpy_helper.from_array(np.ones(3, np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="a test", model_version=3, doc_string="of sums")
    model.metadata_props.append(onnx.StringStringEntryProto(key="classes", value="two"))
    return ort.InferenceSession(model.SerializeToString(), ort.SessionOptions(), providers=["CPUExecutionProvider"])


def test_what_a_model_says_of_itself(session):
    assert [(given.name, given.shape, given.type) for given in session.get_inputs()] == [("x", ["rows", 3], "tensor(float)")]
    about = session.get_modelmeta()
    assert (about.producer_name, about.graph_name, about.description, about.version) == ("a test", "sums", "of sums", 3)
    assert about.custom_metadata_map == {"classes": "two"}


def test_outputs_by_name_also_twice_and_in_another_order(session):
    z, y, again = session.run(["z", "y", "z"], {"x": X})
    np.testing.assert_array_equal(y, X + 1)
    np.testing.assert_array_equal(z, again)


def test_numbers_of_python_take_the_models_type(session):
    np.testing.assert_array_equal(session.run(["y"], {"x": [[1.5, 2, 3]]})[0], [[2.5, 3, 4]])
    np.testing.assert_array_equal(session.run(["y"], {"x": [[1, 2, 3]]})[0], [[2, 3, 4]])
    with pytest.raises(ValueError, match="complex128"):
        session.run(["y"], {"x": [[1j, 2, 3]]})


def test_bound_inputs_and_outputs(session):
    binding, out = session.io_binding(), np.zeros((2, 3), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, X + 1)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], X)

    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), X + 1)
    assert (value.shape(), value.data_type(), value.device_name()) == ([2, 3], "tensor(float)", "cpu")

    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type([5], np.float32))
    with pytest.raises(ValueError, match=r"output y has the shape \[2, 3\]"):
        session.run_with_iobinding(binding)
    with pytest.raises(ValueError, match="'cuda'"):
        binding.bind_input("x", "cuda", 0, np.float32, X.shape, 0)


def test_values_as_inputs_and_outputs(session):
    given = ort.OrtValue.ortvalue_from_numpy(X.copy())
    (y,) = session.run_with_ort_values(["y"], {"x": given})
    np.testing.assert_array_equal(y.numpy(), X + 1)
    given.update_inplace(X * 2)
    np.testing.assert_array_equal(session.run(["y"], {"x": given})[0], X * 2 + 1)


def test_a_run_on_another_thread(session):
    answers = queue.Queue()
    for feed in ({"x": X}, {}):
        session.run_async(["y"], feed, lambda results, number, error: answers.put((results, number, error)), 7)
        results, number, error = answers.get(timeout=60)
        assert number == 7
        assert (len(results), error) == ((1, "") if feed else (0, "the input x is missing"))


def test_settings_have_their_defaults_and_may_be_set():
    options = ort.SessionOptions()
    assert (options.intra_op_num_threads, options.graph_optimization_level) == (0, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(RuntimeError, match="'none'"):
        options.get_session_config_entry("none")
    ort.RunOptions().add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert "CPUExecutionProvider" in ort.get_available_providers()
    assert tuple(int(part) for part in ort.__version__.split(".")) >= (1, 17, 0)
    ort.set_default_logger_severity(3)
    ort.disable_telemetry_events()


def test_the_module_stands_in_the_place_of_the_other_one(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", ort)
    for name in [name for name in sys.modules if name.startswith("onnxruntime.")]:
        monkeypatch.delitem(sys.modules, name)
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    assert importlib.import_module("onnxruntime.capi._pybind_state").get_available_providers() == ort.get_available_providers()
    failures = [
        (lambda: session.run(None, {"x": X.astype(np.float64)}), "InvalidArgument"),
        (lambda: session.run(["none"], {"x": X}), "InvalidArgument"),
        (lambda: ort.InferenceSession("no/such/model.onnx"), "NoSuchFile"),
        (lambda: ort.InferenceSession(b"no model"), "InvalidGraph"),
    ]
    for fails, name in failures:
        with pytest.raises(Exception, match=r".") as caught:
            fails()
        assert type(caught.value).__name__ == name
        assert name in dir(state)
    for name in [name for name in sys.modules if name.startswith("onnxruntime.")]:
        del sys.modules[name]


ARRAYS = {
    "a number": np.array(2.5, np.float32),
    "no elements": np.zeros((0, 3), np.float32),
    "turned": np.arange(6, dtype=np.float32).reshape(3, 2).T,
    "every other": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::2],
    "half": np.arange(6, dtype=np.float16).reshape(2, 3),
    "booleans": np.array([True, False]),
    "bytes": np.arange(250, 256, dtype=np.uint8),
    "wide": np.array([[1 << 60, -1]], np.int64),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_of_any_kind_go_in_and_come_out(array):
    array.flags.writeable = False
    value = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(array.dtype), None)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (result,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": array})
    assert (result.dtype, result.shape, result.flags.writeable) == (array.dtype, array.shape, True)
    np.testing.assert_array_equal(result, array)
