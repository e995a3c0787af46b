"""Operations of older programs, which have no function in Python any more: values and gradients are those of Paddle's CPU.

Programs are written operation by operation, in the form that such programs are saved in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import paddle
import pytest
from paddle.base import core
from paddle.base.backward import gradients

Array = np.ndarray | list[np.ndarray]


@dataclass(frozen=True)
class Operation:
    """An operation by its name, arrays by their slots, results' types by theirs, and the slots that are differentiated."""

    name: str
    inputs: dict[str, Array]
    outputs: dict[str, str]
    attributes: dict[str, object] = field(default_factory=dict)
    differentiated: tuple[str, ...] = ()
    gradient: str = ""

    def kernels(self) -> list[str]:
        return [self.name, *([self.gradient or f"{self.name}_grad"] if self.differentiated else [])]


def drawn(*shape: int, low: float = -2.0, high: float = 2.0, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).uniform(low, high, shape).astype(dtype)


def shares(*shape: int) -> np.ndarray:
    """Rows of probabilities."""
    numbers = drawn(*shape, low=0.1, high=1)
    return numbers / numbers.sum(-1, keepdims=True)


def whole(most: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    return np.random.default_rng(shape).integers(0, most, shape).astype(dtype)


def boxes(*shape: int) -> np.ndarray:
    corners = drawn(*shape, 2, low=0, high=20)
    return np.concatenate([corners, corners + drawn(*shape, 2, low=2, high=20, seed=1)], -1)


ONE = np.ones(1, "float32")
FLOAT = {"Out": "float32"}


def quantized(name: str, axis: int, kind: int = 0, is_test: bool = True, only_observer: bool = False, dtype: str = "float32") -> Operation:
    x = drawn(4, 6, low=-0.7, high=0.7) if dtype == "float32" else whole(256, 4, 6).astype(dtype)
    x[0, :3] = [1.5, -1.5, 0.5]
    scale = drawn(4 if axis == 0 else 6, low=0.3, high=1.2) if axis >= 0 else ONE * 0.8
    inputs: dict[str, Array] = {"X": x, "Scale": scale, "ZeroPoint": np.zeros(scale.shape, "float32")}
    outputs = {"Y": "float32"}
    if not is_test:
        inputs |= {"InAccum": ONE * 0.7, "InState": ONE * 1.5}
        outputs |= {"OutScale": "float32"} if axis >= 0 else {"OutState": "float32", "OutAccum": "float32", "OutScale": "float32"}
    attributes = {
        "quant_axis": axis,
        "bit_length": 8,
        "qmin": -128,
        "qmax": 127,
        "round_type": kind,
        "is_test": is_test,
        "only_observer": only_observer,
    }
    return Operation(name, inputs, outputs, attributes)


def product(left: tuple[int, ...], right: tuple[int, ...], transposed: tuple[bool, bool] = (False, False), factor: float = 1.0) -> Operation:
    attributes = {"transpose_X": transposed[0], "transpose_Y": transposed[1], "alpha": factor}
    return Operation("matmul", {"X": drawn(*left), "Y": drawn(*right, seed=1)}, FLOAT, attributes, ("X", "Y"))


def resized(name: str, rows: int = -1, columns: int = -1, scale: float = 0.0, align: bool = True, mode: int = 1) -> Operation:
    method = "bilinear" if "bi" in name else "nearest"
    attributes = {"data_layout": "NCHW", "out_d": -1, "out_h": rows, "out_w": columns, "scale": scale, "interp_method": method}
    return Operation(name, {"X": drawn(2, 3, 5, 4)}, FLOAT, attributes | {"align_corners": align, "align_mode": mode}, ("X",))


def entropy(soft: bool, ignored: int = -100, shape: tuple[int, ...] = (3, 4, 5)) -> Operation:
    label = shares(*shape) if soft else whole(shape[-1], *shape[:-1], 1)
    attributes = {"soft_label": soft, "ignore_index": ignored}
    return Operation("cross_entropy", {"X": shares(*shape), "Label": label}, {"Y": "float32"}, attributes, ("X",))


def channels(format: str, count: int = 5) -> Operation:
    attributes = {"n": count, "k": 1.5, "alpha": 0.2, "beta": 0.75, "data_format": format}
    return Operation("lrn", {"X": drawn(2, 6, 3, 4)}, FLOAT | {"MidOut": "float32"}, attributes, ("X",))


def proposals(before: int, after: int, threshold: float = 0.5) -> Operation:
    inputs = {"Scores": drawn(2, 3, 4, 5), "BboxDeltas": drawn(2, 12, 4, 5), "ImInfo": np.asarray([[40, 50, 1.2], [32, 64, 0.8]], "float32")}
    inputs |= {"Anchors": boxes(4, 5, 3), "Variances": drawn(4, 5, 3, 4, low=0.1, high=1)}
    attributes = {"pre_nms_topN": before, "post_nms_topN": after, "nms_thresh": threshold, "min_size": 2.0, "eta": 0.9}
    return Operation("generate_proposals", inputs, {"RpnRois": "float32", "RpnRoiProbs": "float32", "RpnRoisNum": "int32"}, attributes)


def detections(above: float) -> Operation:
    attributes = {
        "score_threshold": above,
        "nms_top_k": 12,
        "keep_top_k": 9,
        "nms_threshold": 0.3,
        "nms_eta": 1.0,
        "normalized": True,
        "background_label": 0,
    }
    return Operation("multiclass_nms", {"BBoxes": boxes(2, 20), "Scores": drawn(2, 3, 20, low=0, high=1)}, FLOAT, attributes)


def leader(exponent: float) -> Operation:
    names = ["Param", "SquaredAccumulator", "LinearAccumulator", "Grad"]
    inputs: dict[str, Array] = {name: drawn(4, 5, low=0.1 if "Squared" in name else -1, high=1, seed=at) for at, name in enumerate(names)}
    outputs = {"ParamOut": "float32", "SquaredAccumOut": "float32", "LinearAccumOut": "float32"}
    return Operation("ftrl", inputs | {"LearningRate": ONE * 0.1}, outputs, {"l1": 0.4, "l2": 0.2, "lr_power": exponent})


def unit(activation: int = 2, gate: int = 1, origin: bool = False, biased: bool = True) -> Operation:
    inputs: dict[str, Array] = {"Input": drawn(3, 12), "HiddenPrev": drawn(3, 4), "Weight": drawn(4, 12)}
    if biased:
        inputs |= {"Bias": drawn(1, 12)}
    attributes = {"activation": activation, "gate_activation": gate, "origin_mode": origin}
    # The hidden state is what goes on.
    outputs = {"Hidden": "float32", "Gate": "float32", "ResetHiddenPrev": "float32"}
    return Operation("gru_unit", inputs, outputs, attributes, tuple(inputs))


def pair(first: str, second: str, axis: int = -1, shape: tuple[int, ...] = (4,), name: str = "fused_elemwise_activation", saved: bool = False) -> Operation:
    attributes = {"functor_list": [first, second], "axis": axis, "scale": 0.7, "save_intermediate_out": saved}
    inputs: dict[str, Array] = {"X": drawn(2, 3, 4), "Y": drawn(*shape, seed=1)}
    return Operation(name, inputs, FLOAT | {"IntermediateOut": "float32"}, attributes, ("X", "Y"))


def area(curve_steps: int, weight: float | None = None) -> Operation:
    """The area under the curve of 30 scores, after some that were counted before."""
    bins = 11
    size = (1 + curve_steps) * bins + (curve_steps > 0)
    before = [whole(5, size) + at for at in (0, 1)]
    if curve_steps:
        for counts in before:
            counts[curve_steps * bins : -1] = counts[: curve_steps * bins].reshape(curve_steps, bins).sum(0)
            counts[-1] = 4
    inputs: dict[str, Array] = {"Predict": shares(30, 2), "Label": whole(2, 30, 1), "StatPos": before[0][None], "StatNeg": before[1][None]}
    if weight is not None:
        inputs |= {"InsTagWeight": ONE * weight}
    attributes = {"curve": "ROC", "num_thresholds": bins - 1, "slide_steps": curve_steps}
    return Operation("auc", inputs, {"AUC": "float64", "StatPosOut": "int64", "StatNegOut": "int64"}, attributes)


def family() -> Operation:
    """Children of a tree of 7 nodes: an item, a layer, a parent, and two children."""
    rows = [[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 6], [0, 2, 1, 0, 0], [3, 2, 1, 0, 0], [4, 2, 2, 0, 0], [5, 2, 2, 0, 0]]
    inputs: dict[str, Array] = {"X": np.asarray([[1, 2], [0, 3], [5, 1]]), "TreeInfo": np.asarray([[*row] for row in rows])}
    return Operation("tdm_child", inputs, {"Child": "int64", "LeafMask": "int64"}, {"child_nums": 2, "dtype": 3})


def contrast(biased: bool = True, weighted: bool = True, sampler: int = 0, negatives: tuple[int, ...] = (1, 5, 5)) -> Operation:
    """Noise contrastive estimation with two true classes a row and these others."""
    inputs: dict[str, Array] = {"Input": drawn(4, 6), "Label": whole(7, 4, 2), "Weight": drawn(7, 6, seed=1)}
    inputs |= {"Bias": drawn(7, 1, seed=2)} if biased else {}
    inputs |= {"SampleWeight": drawn(4, 1, low=0.5)} if weighted else {}
    if sampler == 2:
        inputs |= {"CustomDistProbs": shares(7), "CustomDistAlias": whole(7, 7, dtype="int32"), "CustomDistAliasProbs": shares(7)}
    attributes = {"num_total_classes": 7, "num_neg_samples": len(negatives), "custom_neg_classes": list(negatives), "sampler": sampler, "seed": 3}
    differentiated = ("Input", "Weight", "Bias") if biased else ("Input", "Weight")
    outputs = {"Cost": "float32", "SampleLogits": "float32", "SampleLabels": "int64"}
    return Operation("nce", inputs, outputs, attributes | {"is_sparse": False, "remote_prefetch": False, "is_test": False}, differentiated)


def chunks(scheme: str, tags: int, excluded: tuple[int, ...] = ()) -> Operation:
    inputs: dict[str, Array] = {"Inference": whole(3 * tags + 1, 6, 40), "SeqLength": np.asarray([40, 1, 17, 0, 40, 40])}
    # Half of the tags are right.
    inputs["Label"] = np.where(whole(4, 6, 40, dtype="int32") > 0, inputs["Inference"], whole(3 * tags + 1, 40, 6).T)
    attributes = {"num_chunk_types": 3, "chunk_scheme": scheme, "excluded_chunk_types": list(excluded)}
    outputs = {"Precision": "float32", "Recall": "float32", "F1-Score": "float32"}
    outputs |= {"NumInferChunks": "int64", "NumLabelChunks": "int64", "NumCorrectChunks": "int64"}
    return Operation("chunk_eval", inputs, outputs, attributes)


def compressed(step: float, nesterov: bool = False) -> Operation:
    inputs: dict[str, Array] = {"Param": drawn(4, 5), "Grad": drawn(4, 5, seed=1), "Velocity": drawn(4, 5, seed=2), "LearningRate": ONE * 0.1}
    inputs |= {"current_step": ONE * step, "nranks": ONE * 4}
    attributes = {"mu": 0.9, "use_nesterov": nesterov, "regularization_method": "l2_decay", "regularization_coeff": 0.01}
    attributes |= {"multi_precision": False, "rescale_grad": 1.0, "rampup_begin_step": 3.0}
    outputs = {"ParamOut": "float32", "VelocityOut": "float32", "Grad_out": "float32"}
    return Operation("dgc_momentum", inputs, outputs, attributes)


ADD, MULTIPLY = "elementwise_add", "elementwise_mul"

OPERATIONS = {
    "gru_unit": unit(),
    "gru_unit, relu": unit(3, 0),
    "gru_unit, as it was first": unit(origin=True),
    "gru_unit, without a bias": unit(0, 2, biased=False),
    "a sum, scaled": pair("scale", ADD),
    "a sum of what is scaled": pair(ADD, "scale"),
    "a sum through relu": pair("relu", ADD, 1, (3,)),
    "a sum with relu": pair(ADD, "relu", saved=True),
    "a sum through tanh": pair("tanh", ADD, 0, (2, 3)),
    "a sum through gelu": pair("gelu", ADD),
    "a product of what is scaled": pair(MULTIPLY, "scale"),
    # Without what lies between Paddle's CPU takes the argument for the function's value.
    "a product with tanh": pair(MULTIPLY, "tanh", 1, (3, 4), saved=True),
    "a product with a sigmoid": pair(MULTIPLY, "sigmoid", saved=True),
    "a sum and an activation": pair(ADD, "relu", -1, (2, 3, 4), "fused_elemwise_add_activation", True),
    "an activation of a sum": pair("relu", ADD, -1, (2, 3, 4), "fused_elemwise_add_activation", True),
    "quantize_linear": quantized("quantize_linear", -1),
    "quantize_linear, away from zero": quantized("quantize_linear", -1, 1),
    "quantize_linear, rows": quantized("quantize_linear", 0),
    "quantize_linear, columns": quantized("quantize_linear", 1, 1),
    "quantize_linear, training": quantized("quantize_linear", -1, 0, False),
    "quantize_linear, training of channels": quantized("quantize_linear", 1, 0, False),
    "quantize_linear, observer": quantized("quantize_linear", -1, 0, False, True),
    "dequantize_linear": quantized("dequantize_linear", -1),
    "dequantize_linear, levels": quantized("dequantize_linear", -1, dtype="int8"),
    "dequantize_linear, rows": quantized("dequantize_linear", 0, dtype="int8"),
    "dequantize_linear, columns": quantized("dequantize_linear", 1),
    "dequantize_linear, observer": quantized("dequantize_linear", -1, only_observer=True),
    "anchor_generator": Operation(
        "anchor_generator", {"Input": drawn(1, 2, 3, 4)}, {"Anchors": "float32", "Variances": "float32"},
        {"anchor_sizes": [32.0, 48.0], "aspect_ratios": [0.5, 1.0, 2.0], "variances": [0.1, 0.2, 0.3, 0.4], "stride": [16.0, 12.0], "offset": 0.5}),
    "top_k": Operation("top_k", {"X": drawn(3, 7)}, FLOAT | {"Indices": "int64"}, {"k": 3}, ("X",)),
    "matmul": product((3, 4), (4, 5)),
    "matmul, a factor": product((2, 3, 4), (2, 4, 5), factor=0.7),
    "matmul, transposed": product((2, 4, 3), (2, 5, 4), (True, True), -1.5),
    "matmul, a vector": product((4,), (4,)),
    "bilinear_interp": resized("bilinear_interp", 7, 6),
    "bilinear_interp, scale": resized("bilinear_interp", scale=1.7, align=False, mode=0),
    "nearest_interp": resized("nearest_interp", 7, 6),
    "nearest_interp, scale": resized("nearest_interp", scale=0.6, align=False),
    "expand": Operation("expand", {"X": drawn(2, 3, 1)}, FLOAT, {"expand_times": [2, 1, 4]}, ("X",)),
    "crop": Operation("crop", {"X": drawn(4, 6)}, FLOAT, {"offsets": [1, 2], "shape": [2, 3]}, ("X",)),
    "crop, as another": Operation("crop", {"X": drawn(4, 6), "Y": drawn(3, 2)}, FLOAT, {"offsets": [0, 4], "shape": []}, ("X",)),
    "flatten2": Operation("flatten2", {"X": drawn(2, 3, 4, 5)}, FLOAT | {"XShape": "float32"}, {"axis": 2}, ("X",)),
    "cross_entropy": entropy(False),
    "cross_entropy, ignored": entropy(False, 2),
    "cross_entropy, soft": entropy(True),
    "cross_entropy2": Operation(
        "cross_entropy2", {"X": shares(3, 4, 5), "Label": whole(5, 3, 4, 1)}, {"Y": "float32", "XShape": "float32", "MatchX": "float32"},
        {"ignore_index": 2}, ("X",), "cross_entropy_grad2"),
    "lrn": channels("NCHW"),
    "lrn, channels last": channels("NHWC", 3),
    "generate_proposals": proposals(-1, 12),
    "generate_proposals, some": proposals(30, 5, 0.7),
    "multiclass_nms": detections(0.2),
    "multiclass_nms, nothing": detections(2.0),
    "share_data": Operation("share_data", {"X": drawn(3, 4)}, FLOAT),
    "npu_identity": Operation("npu_identity", {"x": drawn(3, 4)}, {"out": "float32"}, {"format": -1}),
    "variance": Operation("variance", {"x": drawn(3, 4, 5)}, {"out": "float32"}, {"axis": [0, 2], "keepdim": True}),
    "add_position_encoding": Operation("add_position_encoding", {"X": drawn(2, 5, 6)}, FLOAT, {"alpha": 0.7, "beta": 1.3}, ("X",)),
    "add_position_encoding, two columns": Operation("add_position_encoding", {"X": drawn(2, 5, 2)}, FLOAT, {"alpha": 1.0, "beta": 1.0}, ("X",)),
    "cvm": Operation("cvm", {"X": drawn(3, 5, low=0, high=4), "CVM": drawn(3, 2)}, {"Y": "float32"}, {"use_cvm": True}, ("X",)),
    "cvm, left out": Operation("cvm", {"X": drawn(3, 5, low=0, high=4), "CVM": drawn(3, 2)}, {"Y": "float32"}, {"use_cvm": False}, ("X",)),
    "ftrl": leader(-0.5),
    "ftrl, another power": leader(-0.7),
    "dpsgd": Operation(
        "dpsgd", {"Param": drawn(4, 5), "Grad": drawn(4, 5, seed=1), "LearningRate": ONE * 0.1}, {"ParamOut": "float32"},
        {"clip": 1.5, "batch_size": 8.0, "sigma": 0.0, "seed": 1}),
    "fusion_squared_mat_sub": Operation(
        "fusion_squared_mat_sub", {"X": drawn(3, 4), "Y": drawn(4, 5)},
        FLOAT | {"SquaredX": "float32", "SquaredY": "float32", "SquaredXY": "float32"}, {"scalar": 0.7}),
    "fusion_repeated_fc_relu": Operation(
        "fusion_repeated_fc_relu", {"X": drawn(3, 4), "W": [drawn(4, 5), drawn(5, 6), drawn(6, 2)], "Bias": [drawn(1, 5), drawn(1, 6), drawn(1, 2)]}, FLOAT),
    "lookup_table": Operation("lookup_table", {"W": drawn(7, 4), "Ids": whole(7, 5, 1)}, FLOAT, {"padding_idx": -1}, ("W",)),
    "lookup_table, padded": Operation("lookup_table", {"W": drawn(7, 4), "Ids": whole(7, 2, 3, 1)}, FLOAT, {"padding_idx": 2}, ("W",)),
    "auc": area(0, 1.0),
    "auc of three steps": area(3, 1.0),
    "auc of three steps, nothing new": area(3, 0.0),
    "tdm_child": family(),
    "lookup_table_dequant": Operation(
        "lookup_table_dequant", {"W": np.concatenate([[[-1.0, 2.0]] * 5, whole(256, 5, 12).astype("uint8").view("float32")], 1).astype("float32"), "Ids": whole(5, 4, 1)},
        FLOAT, {"padding_idx": 1}),
    "row_conv": Operation("row_conv", {"X": drawn(2, 6, 4), "Filter": drawn(3, 4)}, FLOAT, {}, ("X", "Filter")),
    "row_conv, further than there is": Operation("row_conv", {"X": drawn(2, 3, 4), "Filter": drawn(5, 4)}, FLOAT, {}, ("X", "Filter")),
    "dgc_clip_by_norm": Operation(
        "dgc_clip_by_norm", {"X": drawn(3, 4), "current_step": ONE * 5}, FLOAT, {"max_norm": 1.5, "rampup_begin_step": 2.0}),
    "nce": contrast(),
    "nce, one bias less": contrast(False),
    "nce, weights of one": contrast(weighted=False, sampler=1),
    "nce, given probabilities": contrast(sampler=2),
    "chunk_eval, IOB": chunks("IOB", 2),
    "chunk_eval, IOE": chunks("IOE", 2, (1,)),
    "chunk_eval, IOBES": chunks("IOBES", 4),
    "chunk_eval, plain": chunks("plain", 1, (0, 2)),
    "dgc_momentum": compressed(1),
    "dgc_momentum, as it was first": compressed(1, True),
    "dgc_momentum, compressed": compressed(5),
    "range": Operation("range", {"Start": ONE, "End": ONE * 9, "Step": ONE * 1.5}, FLOAT),
    "seed": Operation("seed", {}, {"Out": "int32"}, {"seed": 17}),
}  # fmt: skip


# Results that are their inputs' variables: Paddle's CPU does not allocate them.
IN_PLACE = {"dgc_momentum": {"ParamOut": "Param", "VelocityOut": "Velocity", "Grad_out": "Grad"}}


def evaluated(operation: Operation, device: str) -> list[np.ndarray]:
    """The results, and the gradients of a weighted sum of the first."""
    with paddle.pir_utils.OldIrGuard(), paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        main = paddle.static.default_main_program()
        block = main.global_block()
        feed: dict[str, np.ndarray] = {}

        def variable(name: str, array: np.ndarray, stopped: bool = True):
            feed[name] = array
            return block.create_var(name=name, shape=array.shape, dtype=str(array.dtype), is_data=True, stop_gradient=stopped)

        slots = {
            slot: [
                variable(f"{slot}_{at}", array, slot not in operation.differentiated)
                for at, array in enumerate(arrays if isinstance(arrays, list) else [arrays])
            ]
            for slot, arrays in operation.inputs.items()
        }
        outs = {slot: [block.create_var(name=f"{slot}_out", dtype=dtype)] for slot, dtype in operation.outputs.items()}
        outs |= {slot: slots[given] for slot, given in IN_PLACE.get(operation.name, {}).items()}
        if operation.name == "fusion_repeated_fc_relu":
            outs["ReluOut"] = [block.create_var(name=f"relu_{at}", dtype="float32") for at in range(2)]
        block.append_op(type=operation.name, inputs=slots, outputs=outs, attrs=operation.attributes)
        unwritten = {"XShape"} if operation.attributes.get("save_intermediate_out", True) else {"XShape", "IntermediateOut"}
        fetched = [variables[0] for slot, variables in outs.items() if slot not in unwritten]
        place = paddle.CPUPlace() if device == "cpu" else paddle.CustomPlace("mps", 0)
        executor = paddle.static.Executor(place)

        def run() -> list[np.ndarray]:
            return [np.asarray(result) for result in executor.run(main, feed=feed, fetch_list=fetched, return_numpy=False)]

        results = run()
        if operation.differentiated:
            # What has no shape before it is run is differentiated as it is.
            known = tuple(fetched[0].shape) == results[0].shape
            upstream = [variable("weights", drawn(*results[0].shape, low=0.5, high=1.5))] if known else None
            fetched += gradients([fetched[0]], [slots[slot][0] for slot in operation.differentiated], upstream)
            results = run()
        return results


@pytest.fixture(scope="module")
def registered() -> dict[str, list[str]]:
    return core._get_all_register_op_kernels("phi")


@pytest.mark.parametrize("name", OPERATIONS)
def test_as_on_paddle_s_cpu(name, registered):
    operation = OPERATIONS[name]
    # A program falls back to the CPU without a word.
    for kernel in operation.kernels():
        names = {"range": "range_tensor"}
        assert any("mps" in key for key in registered[names.get(kernel, kernel)]), kernel
    paddle.enable_static()
    expected, found = evaluated(operation, "cpu"), evaluated(operation, "mps")
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_attention_of_queries_keys_and_values_in_one_tensor(registered):
    """Against its definition: Paddle's CPU kernel is of AVX-512 instructions and ends the process on a CPU without them."""
    x, alpha = drawn(2, 5, 3, 4, 8), 0.35
    operation = Operation("self_dp_attention", {"X": x}, FLOAT, {"alpha": alpha, "head_number": 4})
    assert any("mps" in key for key in registered["self_dp_attention"])
    paddle.enable_static()
    [found] = evaluated(operation, "mps")
    queries, keys, values = x.astype("float64").transpose(2, 0, 3, 1, 4)
    weights = np.exp(alpha * queries @ keys.transpose(0, 1, 3, 2))
    expected = (weights / weights.sum(-1, keepdims=True) @ values).transpose(0, 2, 1, 3)
    assert (found.dtype, found.shape) == (np.float32, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_largest_of_some_steps_is_the_scale(registered):
    """Scales of the last three steps stay in one variable: a large number is forgotten when it leaves the window."""
    assert any("mps" in key for key in registered["fake_quantize_range_abs_max"])
    largest = [1.0, 0.5, 3.0, 0.7, 0.6, 0.9, 2.0, 0.1]
    arrays = [drawn(4, 5, low=-1, high=1, seed=number) * size for number, size in enumerate(largest)]
    paddle.enable_static()

    def run(device: str) -> list[np.ndarray]:
        with paddle.pir_utils.OldIrGuard(), paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
            main = paddle.static.default_main_program()
            block = main.global_block()

            def given(name: str, shape, dtype="float32"):
                return block.create_var(name=name, shape=shape, dtype=dtype, is_data=True)

            def made(name: str, shape=None):
                return block.create_var(name=name, dtype="float32", shape=shape)

            scale, scales, fetched, feed = given("scale", [1]), made("scales", [3]), [], {"scale": ONE * 0.001}
            filling = {"shape": [3], "value": 0.0, "dtype": core.VarDesc.VarType.FP32}
            block.append_op(type="fill_constant", outputs={"Out": [scales]}, attrs=filling)
            for number, array in enumerate(arrays):
                x, step = given(f"x{number}", array.shape), given(f"step{number}", [1], "int64")
                feed |= {f"x{number}": array.astype("float32"), f"step{number}": np.asarray([number])}
                out, next_scale = made(f"out{number}"), made(f"scale{number}", [1])
                block.append_op(
                    type="fake_quantize_range_abs_max", inputs={"X": [x], "InScale": [scale], "Iter": [step]},
                    outputs={"Out": [out], "OutScale": [next_scale], "OutScales": [scales]},
                    attrs={"window_size": 3, "bit_length": 8, "is_test": False, "round_type": 1})  # fmt: skip
                scale = next_scale
                fetched += [out, next_scale]
            executor = paddle.static.Executor(paddle.CPUPlace() if device == "cpu" else paddle.CustomPlace("mps", 0))
            return executor.run(main, feed=feed, fetch_list=fetched)

    found, expected = run("mps"), run("cpu")
    # After the third step's number has left, the scale is that of a later one.
    assert float(expected[2 * 4 + 1].item()) > 2 and float(expected[2 * 5 + 1].item()) < 1
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
