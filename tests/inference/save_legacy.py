"""Saves programs of the legacy form whose operations are written down one by one: ``save_legacy.py FOLDER NAME...``.

This Paddle runs such programs, and no longer makes them of a network with loops and branches. ``FLAGS_enable_pir_api=0`` must be in the
environment before the start.
"""

from __future__ import annotations

import sys
from pathlib import Path

import paddle
from paddle.base.core import VarDesc
from paddle.base.layer_helper import LayerHelper

BOOL, INT32, INT64, FLOAT = VarDesc.VarType.BOOL, VarDesc.VarType.INT32, VarDesc.VarType.INT64, VarDesc.VarType.FP32


def op(kind: str, inputs: dict, dtype=None, outputs: str = "Out", /, **attributes):
    """The first output of an operation; inputs and outputs by the names of its slots."""
    helper = LayerHelper(kind)
    slots = {name: value if isinstance(value, list) else [value] for name, value in inputs.items()}
    dtype = dtype or next(iter(slots.values()))[0].dtype
    made = {name: [helper.create_variable_for_type_inference(dtype)] for name in outputs.split()}
    helper.append_op(type=kind, inputs=slots, outputs=made, attrs=attributes)
    made = [variables[0] for variables in made.values()]
    return made[0] if len(made) == 1 else made


def number(value: float, dtype):
    return paddle.tensor.fill_constant([1], dtype, value)


def less(x, y):
    return op("less_than", {"X": x, "Y": y}, BOOL)


# What Paddle's own functions for branches call, and have in the new representation only.
paddle.logical_not = lambda x: op("logical_not", {"X": x}, BOOL)


def loop(x):
    """Rounds until the sum of the largest elements or the count says stop, with a branch in each and one behind; its variables are
    written again and again."""
    def condition(step, total, y):
        return op("logical_and", {"X": less(step, number(6, "int64")), "Y": less(total, number(4, "float32"))}, BOOL)

    def body(step, total, y):
        y = op("scale", {"X": op("tanh", {"X": y})}, scale=1.5)
        largest = op("reduce_max", {"X": op("abs", {"X": y})}, dim=[0], reduce_all=True, keep_dim=False)
        largest = op("reshape2", {"X": largest}, None, "Out XShape", shape=[1])[0]
        total = op("elementwise_add", {"X": total, "Y": largest})
        is_even = op("equal", {"X": op("elementwise_mod", {"X": step, "Y": number(2, "int64")}), "Y": number(0, "int64")}, BOOL)
        y = paddle.static.nn.cond(is_even, lambda: op("scale", {"X": y}, bias=0.25), lambda: op("scale", {"X": y}, scale=-0.5))
        return op("increment", {"X": step}, step=1.0), total, y

    step, total, y = paddle.static.nn.while_loop(condition, body, [number(0, "int64"), number(0, "float32"), x])
    z = paddle.static.nn.cond(less(total, number(5, "float32")), lambda: op("scale", {"X": y}, scale=2.0), lambda: op("sqrt", {"X": op("abs", {"X": y})}))
    return [z, y, step, total]


def lists(x):
    """A list of tensors that a loop writes, read by number, counted, and made one tensor."""
    block = paddle.static.default_main_program().current_block()
    array = block.create_var(name="array", type=VarDesc.VarType.DENSE_TENSOR_ARRAY, dtype=FLOAT)
    write = lambda value, at: block_now().append_op(type="write_to_array", inputs={"X": value, "I": at}, outputs={"Out": array})
    block_now = lambda: paddle.static.default_main_program().current_block()
    write(x, number(0, "int64"))

    def body(step, y):
        y = op("scale", {"X": y}, scale=0.5)
        write(y, step)
        return op("increment", {"X": step}, step=1.0), y

    rounds = op("cast", {"X": op("reduce_max", {"X": x}, dim=[0], reduce_all=True, keep_dim=False)}, INT64, in_dtype=FLOAT, out_dtype=INT64)
    rounds = op("elementwise_add", {"X": rounds, "Y": number(3, "int64")})
    paddle.static.nn.while_loop(lambda step, y: less(step, rounds), body, [number(1, "int64"), x])
    count = op("lod_array_length", {"X": array}, INT64)
    second = op("read_from_array", {"X": array, "I": number(1, "int64")}, FLOAT)
    whole, _ = op("tensor_array_to_tensor", {"X": array}, FLOAT, "Out OutIndex", axis=1, use_stack=False)
    row = op("slice", {"Input": second}, axes=[1], starts=[2], ends=[3], decrease_axis=[1])
    written = op("set_value", {"Input": whole, "ValueTensor": row, "StartsTensorList": [rounds], "EndsTensorList": [op("increment", {"X": rounds}, step=1.0)]}, axes=[1], steps=[1], decrease_axes=[1], none_axes=[], dtype=5)  # fmt: skip
    written = op("set_value", {"Input": written}, axes=[1, 2], starts=[0, 1], ends=[1, 9], steps=[1, 2], decrease_axes=[], none_axes=[], dtype=5, shape=[1], values=[2.5])  # fmt: skip
    return [second, count, whole, written]


def yolo(x):
    """The last stages of a detector, on an input that stands for its head's output."""
    head = op("slice", {"Input": x}, axes=[2, 3], starts=[0, 0], ends=[6, 8])
    head = op("concat", {"X": [op("scale", {"X": head}, scale=scale, bias=scale / 4) for scale in (1.0, 2.0, -1.5, 0.7, -0.6, 2.5)]}, axis=1)
    sizes = op("fill_constant_batch_size_like", {"Input": x}, INT32, shape=[-1, 2], dtype=2, value=64.0, input_dim_idx=0, output_dim_idx=0)
    boxes, scores = op("yolo_box", {"X": head, "ImgSize": sizes}, FLOAT, "Boxes Scores", anchors=[10, 13, 16, 30], class_num=4, conf_thresh=0.3, downsample_ratio=8, clip_bbox=True, scale_x_y=1.0)  # fmt: skip
    scores = op("transpose2", {"X": scores}, FLOAT, "Out XShape", axis=[0, 2, 1])[0]
    return op("multiclass_nms3", {"BBoxes": boxes, "Scores": scores}, FLOAT, "Out Index NmsRoisNum", background_label=-1, score_threshold=0.05, nms_top_k=-1, nms_threshold=0.6, nms_eta=0.9, keep_top_k=-1, normalized=True)  # fmt: skip


def formulas(x):
    """Functions of one tensor, with attributes and without, and of two."""
    y = op("scale", {"X": op("sin", {"X": x})}, scale=0.9)
    with_attributes = [
        op(kind, {"X": x}, **attributes)
        for kind, attributes in {
            "selu": {},
            "celu": {"alpha": 0.7},
            "stanh": {"scale_a": 0.6, "scale_b": 1.5},
            "hard_shrink": {"threshold": 0.4},
            "softshrink": {"lambda": 0.3},
            "thresholded_relu": {"threshold": 0.5},
            "brelu": {"t_min": -0.6, "t_max": 0.8},
        }.items()
    ]
    plain = "softsign tan asin acos atan sinh cosh asinh atanh log1p expm1 tanh_shrink trunc erf logsigmoid relu6 square".split()
    positive = op("elementwise_add", {"X": op("square", {"X": x}), "Y": number(0.5, "float32")}, axis=-1)
    of_positive = [op(kind, {"X": positive}) for kind in "log2 log10 rsqrt reciprocal".split()]
    masks = [op(kind, {"X": op("log", {"X": x})}, BOOL) for kind in ("isinf_v2", "isfinite_v2", "isnan_v2")]
    both = op("bitwise_and", {"X": masks[1], "Y": op("greater_equal", {"X": x, "Y": y}, BOOL)}, BOOL)
    return [*with_attributes, *(op(kind, {"X": y}) for kind in plain), *of_positive, *masks, both]


PROGRAMS = {"formulas": formulas, "loop": loop, "lists": lists, "yolo": yolo}


def main(folder: str, *names: str) -> None:
    paddle.enable_static()
    executor = paddle.static.Executor(paddle.CPUPlace())
    for name in names:
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()):
            x = paddle.static.data("x", [None, 3, None, None], "float32")
            outputs = PROGRAMS[name](x)
        paddle.static.save_inference_model(str(Path(folder) / name), [x], outputs, executor, program=program)
        (Path(folder) / f"{name}.pdiparams").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
