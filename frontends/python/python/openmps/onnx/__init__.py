"""Models of ONNX on the executor of openmps, by the names that ONNX Runtime has for it::

    import openmps.onnx as ort

    session = ort.InferenceSession("model.onnx")
    results = session.run(None, {session.get_inputs()[0].name: image})

What stands here is what programs use that only run models: settings of ONNX Runtime's own engine are taken, and do nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import openmps
from openmps.inference.predictor import as_native, from_native, stored_as
from openmps.onnx.capi import onnxruntime_pybind11_state as errors
from openmps.onnx.settings import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from openmps.onnx.values import IOBinding, OrtValue, onnx_type

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

#: The version of ONNX Runtime whose names stand here: programs look whether it is new enough.
__version__ = "1.31.0"

# What programs ask for is among those that there are.
_PROVIDERS = ["OpenmpsExecutionProvider", "CPUExecutionProvider"]


class NodeArg:
    """An input or output of a model: its name, its type such as ``tensor(float)``, its shape, in which a name, or None, stands where a run decides."""

    def __init__(self, name: str, dims: list[int], dtype: str | None, names: Sequence[str | None] = ()):
        self.name = name
        names = [*names, *[None] * len(dims)]
        self.shape = [own if dim < 0 else dim for dim, own in zip(dims, names, strict=False)]
        self.type = onnx_type(dtype)
        self._dtype, self._stored_as = dtype, stored_as(dtype)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """What a model's author wrote beside it."""

    def __init__(self, origin: Mapping[str, str], custom_metadata_map: dict[str, str]):
        self.producer_name = origin["producer_name"]
        self.graph_name = origin["graph_name"]
        self.domain = origin["domain"]
        self.description = origin["description"]
        self.graph_description = origin["graph_description"]
        self.version = int(origin["version"])
        self.custom_metadata_map = custom_metadata_map


def _by_their_names(error: Exception, of_values: type[ValueError]) -> Exception:
    """An error as that of ONNX Runtime's name, which is Python's, too."""
    if isinstance(error, FileNotFoundError):
        return errors.NoSuchFile(*error.args)
    if isinstance(error, NotImplementedError):
        return errors.NotImplemented(*error.args)
    if isinstance(error, ValueError):
        return of_values(*error.args)
    return errors.Fail(*error.args)


# Those that have such a name.
_NAMED = (FileNotFoundError, ValueError, RuntimeError)


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
        self._options = sess_options or SessionOptions()
        try:
            self._model = openmps.native.InferenceModel.onnx(model, device)
        except _NAMED as error:
            raise _by_their_names(error, errors.InvalidGraph) from error
        names = self._model.dimension_names()
        ports = zip((self._model.inputs(), self._model.outputs()), names, strict=True)
        overridable = [NodeArg(*tensor) for tensor in self._model.overridable()]
        self._overridable = {tensor.name: tensor for tensor in overridable}
        # By the names of tensors that a run is given instead of the model's own: the model for them.
        self._models: dict[tuple[str, ...], openmps.native.InferenceModel] = {}
        self._inputs, self._outputs = [[NodeArg(*port, own) for port, own in zip(all_, own, strict=True)] for all_, own in ports]
        self._names = {given.name for given in self._inputs}

    def get_inputs(self) -> list[NodeArg]:
        """What a run is given, in the model's order."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """What a run gives back, in the model's order."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Tensors of the model that a run may be given instead. Each set of them that is given is compiled on its own."""
        return list(self._overridable.values())

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's author wrote beside it."""
        return ModelMetadata(self._model.origin(), self._model.metadata())

    def get_session_options(self) -> SessionOptions:
        """The settings of this session."""
        return self._options

    def get_providers(self) -> list[str]:
        """Who runs the model: openmps."""
        return _PROVIDERS[:1]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Settings of who runs the model: none."""
        return {name: {} for name in self.get_providers()}

    def set_providers(self, providers: Sequence | None = None, provider_options: Sequence[Mapping] | None = None) -> None:
        """Does nothing: openmps runs the model."""

    def disable_fallback(self) -> None:
        """Does nothing: there is none."""

    def enable_fallback(self) -> None:
        """Does nothing: there is none."""

    def end_profiling(self) -> str:
        """No file: ``openmps profile MODEL`` shows what takes how long."""
        return ""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, np.ndarray | OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[np.ndarray]:
        """The outputs of these names, or all, for arrays by the inputs' names; bfloat16 goes in and comes out as its bits, uint16."""
        # What is common is asked first, and costs a run least.
        instead = set() if self._names.issuperset(input_feed) else input_feed.keys() - self._names
        unknown = instead - self._overridable.keys()
        if unknown:
            raise errors.InvalidArgument(f"the model has no input {sorted(unknown)}: {[given.name for given in self._inputs]}")
        try:
            model, inputs = self._with(instead) if instead else (self._model, self._inputs)
            results = model.run([_given(given, input_feed) for given in inputs])
        except _NAMED as error:
            raise _by_their_names(error, errors.InvalidArgument) from error
        arrays = [from_native(result) for result in results]
        if not output_names:
            return arrays
        names = [output.name for output in self._outputs]
        missing = [name for name in output_names if name not in names]
        if missing:
            raise errors.InvalidArgument(f"the model has no output {missing}: {names}")
        return [arrays[names.index(name)] for name in output_names]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: RunOptions | None = None
    ) -> list[OrtValue]:
        """The same with tensors."""
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, np.ndarray],
        callback: Callable[[list[np.ndarray], object, str], object],
        user_data: object,
        run_options: RunOptions | None = None,
    ) -> None:
        """The same on another thread, which calls ``callback(results, user_data, error)``; the error is empty where there was none."""

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:  # the callback is who learns of it
                results, error = [], str(failure)
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that are named one by one."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """A run with these."""
        iobinding.run()

    def _with(self, instead: set[str]) -> tuple[openmps.native.InferenceModel, list[NodeArg]]:
        """The model that is given these tensors, too, and its inputs: these last, in the model's order."""
        tensors = [tensor for name, tensor in self._overridable.items() if name in instead]
        names = tuple(tensor.name for tensor in tensors)
        if names not in self._models:
            self._models[names] = self._model.given(list(names))
        return self._models[names], [*self._inputs, *tensors]


def _given(given: NodeArg, feed: Mapping[str, np.ndarray | OrtValue]) -> tuple[str, tuple[int, ...], np.ndarray]:
    if given.name not in feed:
        raise ValueError(f"the input {given.name} is missing")
    value, expected = feed[given.name], given._stored_as
    array = np.asarray(value.numpy() if isinstance(value, OrtValue) else value, order="C")
    if array.dtype == expected:
        return as_native(given._dtype, array)
    if array.dtype.name == "bfloat16":  # of the package ml_dtypes
        array = array.view(np.uint16)
    if isinstance(value, (list, tuple, int, float)) and expected is not None and np.can_cast(array.dtype, expected, "same_kind"):
        array = array.astype(expected)  # Python's numbers say nothing of a type
    if expected is not None and array.dtype != expected:
        raise ValueError(f"the input {given.name} is {given.type}, the array {array.dtype}")
    return as_native(given._dtype, array)


def get_available_providers() -> list[str]:
    """Who can run models: openmps, also by the name that programs ask for."""
    return list(_PROVIDERS)


def get_all_providers() -> list[str]:
    """Who there is to run models."""
    return list(_PROVIDERS)


def get_device() -> str:
    """ONNX Runtime's word for where a model runs."""
    return "CPU" if openmps.native.device_properties(0)["backend"] == "host" else "GPU"


def get_version_string() -> str:
    """The version of ONNX Runtime whose names stand here."""
    return __version__


def set_default_logger_severity(severity: int) -> None:
    """Does nothing: ``OPENMPS_LOG`` says what openmps tells."""


def set_default_logger_verbosity(level: int) -> None:
    """Does nothing: ``OPENMPS_LOG`` says what openmps tells."""


def set_seed(seed: int) -> None:
    """Does nothing: models that draw numbers have seeds of their own."""


def disable_telemetry_events() -> None:
    """Does nothing: openmps reports nothing to anybody."""


def enable_telemetry_events() -> None:
    """Does nothing: openmps reports nothing to anybody."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Does nothing: openmps loads what it needs."""
