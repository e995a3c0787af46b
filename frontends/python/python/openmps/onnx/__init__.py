"""Models of ONNX on the executor of openmps, by the names that ONNX Runtime has for it::

    import openmps.onnx as ort

    session = ort.InferenceSession("model.onnx")
    results = session.run(None, {session.get_inputs()[0].name: image})

What stands here is what programs use that only run models: settings of ONNX Runtime's own engine are taken, and do nothing.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import openmps
from openmps.inference.predictor import as_native, from_native, stored_as

__all__ = [
    "GraphOptimizationLevel",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]

_PROVIDER = "OpenmpsExecutionProvider"

# ONNX's names of element types that are not NumPy's.
_ONNX_NAMES = {"float32": "float", "float64": "double"}


class GraphOptimizationLevel(enum.IntEnum):
    """How much a graph is changed before it runs: always as far as openmps can."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


class SessionOptions:
    """Settings of ONNX Runtime's engine: any may be set, and does nothing. ``OPENMPS_NUM_THREADS`` says how many threads compute."""

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Does nothing."""

    def register_custom_ops_library(self, path: str) -> None:
        """There are no operators here but openmps's own."""
        raise NotImplementedError(f"openmps.onnx runs no operators from libraries: {path}")


class NodeArg:
    """An input or output of a model: its name, its shape with None where a run decides, its type such as ``tensor(float)``."""

    def __init__(self, name: str, dims: list[int], dtype: str | None):
        self.name = name
        self.shape = [None if dim < 0 else dim for dim in dims]
        self.type = f"tensor({_ONNX_NAMES.get(dtype, dtype)})" if dtype else ""
        self._dtype = dtype

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """What a model's author wrote beside it."""

    def __init__(self, custom_metadata_map: dict[str, str]):
        self.custom_metadata_map = custom_metadata_map


class InferenceSession:
    """A model that is loaded, from its file or its bytes. Several threads may run it.

    ``device`` is the number of the device; which kind it is, the setting ``OPENMPS_DEVICE`` says. ``providers`` and the settings of ONNX
    Runtime do nothing. ``NotImplementedError`` names every operator that openmps cannot run, ``ValueError`` what is wrong with a model.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence | None = None,
        provider_options: Sequence[Mapping] | None = None,
        *,
        device: int = 0,
        **settings: object,
    ):
        model = bytes(path_or_bytes) if isinstance(path_or_bytes, (bytes, bytearray)) else Path(path_or_bytes)
        self._model = openmps.native.InferenceModel.onnx(model, device)
        self._inputs = [NodeArg(*port) for port in self._model.inputs()]
        self._outputs = [NodeArg(*port) for port in self._model.outputs()]

    def get_inputs(self) -> list[NodeArg]:
        """What a run is given, in the model's order."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """What a run gives back, in the model's order."""
        return self._outputs

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's author wrote beside it."""
        return ModelMetadata(self._model.metadata())

    def get_providers(self) -> list[str]:
        """Who runs the model: openmps."""
        return [_PROVIDER]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, np.ndarray], run_options: object = None) -> list[np.ndarray]:
        """The outputs of these names, or all, for arrays by the inputs' names; bfloat16 goes in and comes out as its bits, uint16."""
        unknown = input_feed.keys() - {given.name for given in self._inputs}
        if unknown:
            raise ValueError(f"the model has no input {sorted(unknown)}: {[given.name for given in self._inputs]}")
        results = self._model.run([self._given(given, input_feed) for given in self._inputs])
        arrays = dict(zip((output.name for output in self._outputs), map(from_native, results), strict=True))
        if not output_names:
            return list(arrays.values())
        missing = [name for name in output_names if name not in arrays]
        if missing:
            raise ValueError(f"the model has no output {missing}: {list(arrays)}")
        return [arrays[name] for name in output_names]

    def _given(self, given: NodeArg, feed: Mapping[str, np.ndarray]) -> tuple[str, list[int], np.ndarray]:
        if given.name not in feed:
            raise ValueError(f"the input {given.name} is missing")
        array = np.asarray(feed[given.name], order="C")
        if array.dtype.name == "bfloat16":  # of the package ml_dtypes
            array = array.view(np.uint16)
        expected = stored_as(given._dtype)
        if expected is not None and array.dtype != expected:
            raise ValueError(f"the input {given.name} is {given.type}, the array {array.dtype}")
        return as_native(given._dtype, array)


def get_available_providers() -> list[str]:
    """Who can run models: openmps."""
    return [_PROVIDER]


def get_device() -> str:
    """ONNX Runtime's word for where a model runs."""
    return "CPU" if openmps.native.device_properties(0)["backend"] == "host" else "GPU"
