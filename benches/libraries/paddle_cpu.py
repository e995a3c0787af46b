"""PaddlePaddle, on the device that the environment names: its own CPU kernels, or device mps."""

from __future__ import annotations

import os

import numpy as np
import paddle
from paddle import inference
from paddle.nn import functional as F

from libraries import shapes, training

DEVICE = os.environ.get("OPENMPS_BENCH_DEVICE", "cpu")
THREADS = int(os.environ["OMP_NUM_THREADS"])


def version() -> str:
    return f"PaddlePaddle {paddle.__version__}"


def synchronize() -> None:
    if DEVICE != "cpu":
        paddle.mps.synchronize(DEVICE)


def works():
    paddle.set_device(DEVICE)
    paddle.set_flags({"FLAGS_enable_api_kernel_fallback": DEVICE == "cpu"})  # no kernel of the CPU may stand for one of ours
    paddle.base.core.set_num_threads(THREADS)
    paddle.set_grad_enabled(False)
    made = {f"matmul {n}": (lambda n=n: _matmul(n)) for n in shapes.MATMUL}
    made[f"softmax {shapes.ROWS[0]}x{shapes.ROWS[1]}"] = _softmax
    made[f"layer_norm {shapes.ROWS[0]}x{shapes.ROWS[1]}"] = _layer_norm
    for label, count in shapes.ELEMENTS.items():
        for name, function in (("add", paddle.add), ("multiply", paddle.multiply)):
            made[f"{name} {label}"] = lambda function=function, count=count: _binary(function, count)
        for name, function in (("exp", paddle.exp), ("sigmoid", F.sigmoid)):
            made[f"{name} {label}"] = lambda function=function, count=count: _unary(function, count)
        made[f"sum {label}"] = lambda count=count: _unary(paddle.sum, count)
    made[f"x + y, {shapes.TINY} elements"] = lambda: _plus(shapes.TINY)
    for name, case in shapes.CONVOLUTIONS.items():
        made[name] = lambda case=case: _convolution(*case)
    for name, model in shapes.models("program").items():
        made[name] = lambda model=model: _model(model)
    made |= training.works()
    made[shapes.PIPELINE] = _pipeline
    return made


def _tensor(*shape: int):
    return paddle.to_tensor(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))


def _matmul(n: int):
    x, y = _tensor(n, n), _tensor(n, n)
    return lambda: paddle.matmul(x, y)


def _softmax():
    x = _tensor(*shapes.ROWS)
    return lambda: F.softmax(x)


def _layer_norm():
    x = _tensor(*shapes.ROWS)
    return lambda: F.layer_norm(x, [shapes.ROWS[1]])


def _unary(function, count: int):
    x = _tensor(count)
    return lambda: function(x)


def _binary(function, count: int):
    x, y = _tensor(count), _tensor(count)
    return lambda: function(x, y)


def _plus(count: int):
    x, y = _tensor(count), _tensor(count)
    return lambda: x + y


def _convolution(shape, weight, stride: int, groups: int):
    x, w, padding = _tensor(*shape), _tensor(*weight), weight[2] // 2
    return lambda: F.conv2d(x, w, stride=stride, padding=padding, groups=groups)


def _model(model: shapes.Model):
    config = inference.Config(str(model.program), str(model.program.with_suffix(".pdiparams")))
    config.disable_gpu()
    # Paddle 3.3.1 runs no program of its new form with its memory plan, and not those of PP-OCRv5 on oneDNN.
    if "PP-OCRv5" in str(model.program):
        config.disable_mkldnn()
    if model.program.suffix == ".pdmodel":
        config.enable_memory_optim()
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(THREADS)
    if DEVICE != "cpu":
        config.enable_custom_device(DEVICE, 0)
    predictor = inference.create_predictor(config)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    result = predictor.get_output_handle(predictor.get_output_names()[0])
    data = np.random.default_rng(0).standard_normal(model.shape, dtype=np.float32)

    def run() -> np.ndarray:
        source.copy_from_cpu(data)
        predictor.run()
        return result.copy_to_cpu()

    return run


def _pipeline():
    import cv2

    from openmps.ocr import reader

    engine, image = reader(DEVICE, THREADS), cv2.imread(str(shapes.IMAGE))
    return lambda: engine(image)
