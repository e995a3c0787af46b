"""ONNX Runtime on the CPU: the models of PP-OCR, and the pipeline of ``rapidocr_onnxruntime``."""

from __future__ import annotations

import os
from functools import partial

import onnxruntime
from rapidocr_onnxruntime import RapidOCR

from libraries import onnx_sessions, shapes

THREADS = int(os.environ["OMP_NUM_THREADS"])


def version() -> str:
    return f"ONNX Runtime {onnxruntime.__version__}"


def works():
    made = {name: partial(onnx_sessions.session, onnxruntime, model) for name, model in shapes.models("onnx").items()}
    return made | {shapes.PIPELINE: _pipeline} | onnx_sessions.works(onnxruntime)


def _pipeline():
    import cv2

    engine, image = RapidOCR(intra_op_num_threads=THREADS), cv2.imread(str(shapes.IMAGE))
    return lambda: engine(image)
