"""ONNX Runtime on the CPU: the models of PP-OCR, and the pipeline of ``rapidocr_onnxruntime``."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
from rapidocr_onnxruntime import RapidOCR

from libraries import shapes

THREADS = int(os.environ["OMP_NUM_THREADS"])


def version() -> str:
    return f"ONNX Runtime {onnxruntime.__version__}"


def works():
    made = {name: (lambda model=model: _model(model)) for name, model in shapes.models("onnx").items()}
    made[shapes.PIPELINE] = _pipeline
    return made


def _model(model: shapes.Model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.onnx, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: np.random.default_rng(0).standard_normal(model.shape, dtype=np.float32)}
    return lambda: session.run(None, feed)


def _pipeline():
    import cv2

    engine, image = RapidOCR(intra_op_num_threads=THREADS), cv2.imread(str(shapes.IMAGE))
    return lambda: engine(image)
