"""ONNX Runtime on the CPU: the PP-OCRv4 models, and the pipeline of ``rapidocr_onnxruntime``."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
from rapidocr_onnxruntime import RapidOCR

from libraries import shapes

THREADS = int(os.environ["OMP_NUM_THREADS"])


def version() -> str:
    return f"ONNX Runtime {onnxruntime.__version__}"


def works():
    made = {name: (lambda name=name, shape=shape: _model(name.split()[0], shape)) for name, (_, shape) in shapes.MODELS.items()}
    made[shapes.PIPELINE] = _pipeline
    return made


def _model(part: str, shape):
    folder = Path(find_spec("rapidocr_onnxruntime").origin).parent / "models"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    path = next(folder.glob(f"*_{part}_infer.onnx"))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}
    return lambda: session.run(None, feed)


def _pipeline():
    import cv2

    engine, image = RapidOCR(intra_op_num_threads=THREADS), cv2.imread(str(shapes.IMAGE))
    return lambda: engine(image)
