"""Programs of a few operations with edges of their attributes: values, shapes and types of Paddle's CPU, in both forms of a program."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import static

from openmps.inference import Config, create_predictor

ROWS = np.arange(1, 11, dtype="float32").reshape(2, 5)
FEW = np.array([3, 2], "int32")


def slopes():
    return paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(0.25))


def subtract_along(axis):
    def program(x, y):
        block = static.default_main_program().current_block()
        out = block.create_var(name="difference", dtype="float32")
        block.append_op(type="elementwise_sub", inputs={"X": [x], "Y": [y]}, outputs={"Out": [out]}, attrs={"axis": axis})
        return out

    return program


def states(kind):
    def program(x):
        out, state = getattr(paddle.nn, kind)(3, 4, 2)(x)
        return [out, *(state if isinstance(state, tuple) else (state,))]

    return program


def image(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


VOLUME = image(2, 2, 6, 7, 5)


def volume_filter():
    return paddle.create_parameter([2, 3, 3, 2, 3], "float32")


def volumes(layer, **attributes):
    """A layer over volumes of two channels."""
    return lambda x: getattr(paddle.nn, layer)(2, 4, 3, **attributes)(x)


#: A program, its inputs, whose first dimension stays open, and the forms in which it can be saved.
PROGRAMS = {
    "inputs in order": (lambda a, b: a - 2 * b, [ROWS, ROWS[::-1].copy()], "new legacy"),
    "an index that a run knows": (lambda i, x: x[:, i], [np.array(-1), ROWS], "new"),
    "every second row of the last column": (lambda x: x[::2, -1], [ROWS], "new legacy"),
    "int32 that wraps": (lambda x: x + paddle.full([1], 123456789, "int32") * 1103515245, [FEW], "new"),
    "a size less 5 as a byte": (lambda x: (paddle.shape(x)[0] - 5).astype("uint8"), [ROWS], "new"),
    "three steps of 0.1": (lambda e, x: paddle.arange(0, e, 0.1, dtype="float32") + x, [np.float32(0.3), image(1)], "new"),
    "prelu of infinity": (lambda x: F.prelu(x, slopes()), [np.array([np.inf, -2, 0], "float32")], "new"),
    "a product of int32": (lambda x: paddle.stack([paddle.prod(x), x[0]]), [FEW], "new"),
    "a sum of bytes": (lambda x: paddle.sum(x), [np.array([200, 100], "uint8")], "new"),
    "a sum of int32": (lambda x: paddle.sum(x), [FEW], "new"),
    "scale behind the bias": (lambda x: paddle.scale(x, 2.0, 1.5, bias_after_scale=False), [FEW], "new"),
    "what scale cancels": (lambda x: paddle.scale(x, 100.0, -1000.0, bias_after_scale=False), [np.array([1000.01, 999.99], "float32")], "new"),
    "roll without an axis": (lambda x: paddle.roll(x, 1), [ROWS], "new"),
    "reshape of nothing": (lambda x: paddle.reshape(x, [0, -1]), [image(0, 2, 2)], "new"),
    "reshape of something": (lambda x: paddle.reshape(x, [0, -1]), [image(3, 2, 2)], "new"),
    "fewer dimensions first": (subtract_along(1), [image(3), image(2, 3, 4)], "legacy"),
    "states of an LSTM": (states("LSTM"), [image(2, 5, 3)], "new legacy"),
    "the state of a GRU": (states("GRU"), [image(2, 5, 3)], "new legacy"),
    "volumes convolved": (volumes("Conv3D", stride=(2, 1, 2), padding=(1, 0, 2), dilation=(1, 2, 1)), [VOLUME], "new legacy"),
    "volumes convolved in groups": (volumes("Conv3D", groups=2, padding=[0, 1, 1, 0, 2, 1]), [VOLUME], "new legacy"),
    "volumes padded alike": (volumes("Conv3D", stride=2, padding="SAME"), [VOLUME], "new legacy"),
    "volumes, channels last": (volumes("Conv3D", padding="VALID", data_format="NDHWC"), [image(2, 6, 7, 5, 2)], "new legacy"),
    "volumes spread": (volumes("Conv3DTranspose", stride=(2, 1, 3), padding=1, output_padding=(1, 0, 2)), [VOLUME], "new legacy"),
    "volumes spread to a size": (lambda x: F.conv3d_transpose(x, volume_filter(), stride=2, output_size=[13, 15, 11]), [VOLUME], "new legacy"),
    "largest of volumes": (lambda x: F.max_pool3d(x, (2, 3, 2), stride=(2, 2, 1), padding=(1, 1, 0), ceil_mode=True), [VOLUME], "new legacy"),
    "means of volumes": (lambda x: F.avg_pool3d(x, 3, stride=2, padding=1, exclusive=False), [VOLUME], "new legacy"),
    "means inside of volumes": (lambda x: F.avg_pool3d(x, (2, 3, 1), padding="SAME"), [VOLUME], "new legacy"),
    "volumes to a size": (lambda x: F.adaptive_avg_pool3d(x, (4, 3, 1)), [VOLUME], "new legacy"),
    "a number that is set": (lambda x: static.setitem(x * 1.0, 0, 2.5), [ROWS], "new"),
}


def save(folder: Path, program, inputs, form: str) -> tuple[str, list[np.ndarray]]:
    """The program's file, and what Paddle's CPU makes of the inputs, which are named x0, x1, ..."""
    path = str(folder / form)
    old = paddle.pir_utils.OldIrGuard() if form == "legacy" else contextlib.nullcontext()
    paddle.enable_static()
    try:
        with old, static.scope_guard(static.Scope()):
            main, startup = static.Program(), static.Program()
            with static.program_guard(main, startup):
                names = [static.data(f"x{i}", [-1, *array.shape[1:]][: array.ndim], str(array.dtype)) for i, array in enumerate(inputs)]
                outputs = program(*names)
                outputs = list(outputs) if isinstance(outputs, list) else [outputs]
                executor = static.Executor(paddle.CPUPlace())
                executor.run(startup)
                static.save_inference_model(path, names, outputs, executor, program=main)
            loaded, feeds, fetches = static.load_inference_model(path, executor)
            values = {f"x{i}": array for i, array in enumerate(inputs)}
            expected = executor.run(loaded, feed={name: values[name] for name in feeds}, fetch_list=fetches)
    finally:
        paddle.disable_static()
    return path, [np.asarray(value) for value in expected]


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, row in PROGRAMS.items() for form in row[2].split()])
def test_edges_of_attributes(name: str, form: str, tmp_path: Path) -> None:
    program, inputs, _ = PROGRAMS[name]
    path, expected = save(tmp_path, program, [np.asarray(x) for x in inputs], form)
    parameters = Path(path + ".pdiparams")
    predictor = create_predictor(Config(path + (".json" if form == "new" else ".pdmodel"), str(parameters) if parameters.exists() else ""))
    assert predictor.get_input_names() == [f"x{i}" for i in range(len(inputs))]
    found = predictor.run([np.asarray(x) for x in inputs])
    for value, right in zip(found, expected, strict=True):
        assert (value.dtype, value.shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(value, right, rtol=1e-5, atol=1e-6)
