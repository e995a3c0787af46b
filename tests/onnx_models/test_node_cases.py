"""ONNX's own tests of its operators, all of them: right, or refused with the reason."""

import warnings

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as node_cases

import openmps.onnx as ort

# Operators that openmps does not have: of sparse and text data, of training, of tensors of other elements, and rare ones.
NOT_THERE = {
    "Bernoulli", "BitCast", "CausalConvWithState", "ImageDecoder", "LinearAttention", "RandomUniformLike", "TfIdfVectorizer",
}  # fmt: skip

# Element types that are computed with, those that are computed in wider ones, and those that are only moved and converted, in these cases.
TYPES = {1, 2, 3, 5, 6, 7, 9, 10, 11, 16}
WIDENED_TYPES = {4, 12}
MOVED_TYPES = {4, 12, 13}
MOVED = ("test_dequantizelinear_uint16", "test_quantizelinear_uint16", "test_pow_types_float32_uint")

# Cases that are refused for what they ask of an operator that is there.
REFUSED = {
    "the batch's own statistics": ("test_batchnorm_epsilon_training_mode", "test_batchnorm_example_training_mode"),
    "elements that are dropped": ("test_training_dropout",),
    "batches of sequences": ("test_scan_sum",),
    "the largest of points": ("test_roialign_mode_max",),
    "crops": ("test_resize_tf_crop_and_resize",),
    "places by columns": ("test_maxpool_with_argmax_2d_precomputed_strides",),
    "sequences as results": ("test_if_opt", "test_if_seq", "test_split_to_sequence"),
}


def _cases() -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of divisions by zero that cases mean
        return {case.name: case for case in node_cases.collect_testcases(None)}


CASES = _cases()


def _is_refused(case) -> bool:
    graph = case.model.graph
    opsets = {opset.domain: opset.version for opset in case.model.opset_import}
    types = TYPES | (MOVED_TYPES if case.name.startswith(MOVED) else WIDENED_TYPES)
    values = [*graph.input, *graph.output]
    if any(value.type.WhichOneof("value") != "tensor_type" or value.type.tensor_type.elem_type not in types for value in values):
        return True
    if opsets.get("", 7) < 7 or any(node.domain or node.op_type in NOT_THERE for node in graph.node):
        return True
    if case.name.startswith("test_training_dropout_zero_ratio"):
        return False
    return any(case.name.startswith(names) for names in REFUSED.values())


def _array(value) -> np.ndarray:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _same(result: np.ndarray, expected: np.ndarray, case) -> None:
    if expected.dtype.name == "bfloat16":
        result = result.view(expected.dtype)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(result, expected)
        return
    # Half types are rounded after each operator, of which a case's reference has fewer.
    tolerance = {"float16": 1e-3, "bfloat16": 2e-2}.get(expected.dtype.name, 1e-6)
    wide = np.float64
    # Sums of many numbers round as the largest of them does.
    tolerance = max(tolerance, 1e-6 * float(np.abs(expected).max(initial=0))) if "dft" in case.name else tolerance
    np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=max(case.rtol, tolerance), atol=max(case.atol, tolerance))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not _is_refused(case)])
def test_an_operator_gives_what_onnx_says(name):
    case = CASES[name]
    session = ort.InferenceSession(case.model.SerializeToString())
    for inputs, outputs in case.data_sets:
        feed = {given.name: _array(value) for given, value in zip(session.get_inputs(), inputs, strict=True)}
        results = session.run(None, feed)
        assert len(results) == len(outputs)
        for result, expected in zip(results, outputs, strict=True):
            _same(result, _array(expected), case)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if _is_refused(case)])
def test_what_openmps_does_not_have_is_refused_with_the_reason(name):
    case = CASES[name]
    with pytest.raises((NotImplementedError, ValueError, RuntimeError)) as raised:
        session = ort.InferenceSession(case.model.SerializeToString())
        inputs, _ = case.data_sets[0]
        session.run(None, {given.name: _array(value) for given, value in zip(session.get_inputs(), inputs, strict=True)})
    assert str(raised.value)
