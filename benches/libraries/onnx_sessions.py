"""Models of ONNX by the names of ONNX Runtime, which are those of ``openmps.onnx`` too: the same lines time both."""

from __future__ import annotations

import os
from functools import partial
from types import ModuleType

import numpy as np

from libraries import shapes

THREADS = int(os.environ["OMP_NUM_THREADS"])


def works(runtime: ModuleType) -> dict:
    """Runs of sessions that are open, and sessions that are opened for one run."""
    models = shapes.models("onnx")
    made = {shapes.from_onnx(name): partial(session, runtime, model) for name, model in models.items()}
    return made | {shapes.opened(name): partial(_opened, runtime, model) for name, model in models.items() if name in shapes.OPENED}


def session(runtime: ModuleType, model: shapes.Model):
    """A run, with the numbers that go in and come out."""
    opened = _open(runtime, model)
    feed = {opened.get_inputs()[0].name: np.random.default_rng(0).standard_normal(model.shape, dtype=np.float32)}
    return lambda: opened.run(None, feed)


def _opened(runtime: ModuleType, model: shapes.Model):
    return lambda: session(runtime, model)()


def _open(runtime: ModuleType, model: shapes.Model):
    options = runtime.SessionOptions()
    options.intra_op_num_threads = THREADS
    return runtime.InferenceSession(str(model.onnx), options, providers=runtime.get_available_providers())
