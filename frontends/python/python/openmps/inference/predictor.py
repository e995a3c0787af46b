"""Predictors: a model that is loaded, with handles to what goes in and out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import overload

import numpy as np

import openmps
from openmps.inference.config import Config, DataType

__all__ = ["Predictor", "PredictorPool", "Tensor", "create_predictor", "get_num_bytes_of_data_type", "get_version"]

# NumPy has no bfloat16: its bits.
_STORED_AS = {"bfloat16": "uint16"}


class Tensor:
    """A handle to an input or an output of a predictor. ``types`` is the enumeration that its element type is named in."""

    def __init__(self, name: str, dims: list[int], dtype: str | None, types: type = DataType):
        self._name, self._dims, self._dtype, self._types = name, dims, dtype, types
        self._array: np.ndarray | None = None
        self._lod: list[list[int]] = []

    def name(self) -> str:
        """The name that the program gives it."""
        return self._name

    def shape(self) -> list[int]:
        """The shape of what it holds; the program's, with -1 where a run decides, while it holds nothing."""
        return list(self._dims if self._array is None else self._array.shape)

    def type(self) -> DataType | None:
        """The element type."""
        return getattr(self._types, self._dtype.upper(), None) if self._dtype else None

    def reshape(self, shape: Sequence[int]) -> None:
        """The shape of what comes next. An array brings its own, so that this only checks it."""
        if len(shape) != len(self._dims) or any(dim not in (-1, size) for dim, size in zip(self._dims, shape, strict=True)):
            raise ValueError(f"the input {self._name} has shape {self._dims}, not {list(shape)}")

    def copy_from_cpu(self, data: np.ndarray | list) -> None:
        """Takes a copy of an array."""
        array = np.asarray(data)
        if isinstance(data, list) and array.dtype == np.float64 and self._dtype in ("float32", "float16"):
            array = array.astype(self._dtype)  # Python's floats say nothing of a type
        self._array = np.array(array, dtype=self._stored_as(array), order="C")

    def share_external_data(self, data) -> None:
        """Takes an array, or a tensor of Paddle, without a copy where its memory is in order: it must not change until the run ended."""
        array = np.asarray(data.numpy() if hasattr(data, "numpy") else data)
        self._array = np.asarray(array, dtype=self._stored_as(array), order="C")

    def copy_to_cpu(self) -> np.ndarray:
        """A copy of what it holds."""
        if self._array is None:
            raise RuntimeError(f"{self._name} holds nothing yet: run the predictor first")
        return self._array.copy()

    def lod(self) -> list[list[int]]:
        """The levels of detail of an input with sequences, as they were set."""
        return self._lod

    def set_lod(self, lod: list[list[int]]) -> None:
        """Levels of detail; programs that openmps runs do not use them."""
        self._lod = lod

    def _stored_as(self, array: np.ndarray) -> np.dtype:
        """The element type in memory. Integers of other sizes, which a list or NumPy's default brings, are converted."""
        expected = stored_as(self._dtype) or array.dtype
        if array.dtype != expected and not (array.dtype.kind in "iub" and expected.kind == "i"):
            raise ValueError(f"the input {self._name} is {self._dtype}, the array {array.dtype}")
        return expected


class Predictor:
    """Runs one model. One thread may use a predictor at a time; a clone shares the weights and what was compiled."""

    def __init__(self, config: Config, model: openmps.native.InferenceModel | None = None, types: type = DataType):
        self._config, self._types = config, types
        self._model = model or _open(config)
        self._inputs = [Tensor(*port, types) for port in self._model.inputs()]
        self._outputs = [Tensor(*port, types) for port in self._model.outputs()]

    def get_input_names(self) -> list[str]:
        """The inputs' names, in the program's order."""
        return [tensor.name() for tensor in self._inputs]

    def get_output_names(self) -> list[str]:
        """The outputs' names, in the program's order."""
        return [tensor.name() for tensor in self._outputs]

    def get_input_handle(self, name: str) -> Tensor:
        """The input of this name."""
        return _named(self._inputs, name, "input")

    def get_output_handle(self, name: str) -> Tensor:
        """The output of this name."""
        return _named(self._outputs, name, "output")

    get_input_tensor, get_output_tensor = get_input_handle, get_output_handle

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """The shapes that the program declares for its inputs."""
        return {name: dims for name, dims, _ in self._model.inputs()}

    def get_input_types(self) -> dict[str, DataType | None]:
        """The element types that the program declares for its inputs."""
        return {tensor.name(): tensor.type() for tensor in self._inputs}

    @overload
    def run(self, inputs: None = None) -> bool: ...

    @overload
    def run(self, inputs: Sequence) -> list: ...

    def run(self, inputs: Sequence | None = None) -> bool | list:
        """Computes the outputs of what the input handles hold; with a list of arrays, of these, and returns the results: of NumPy's
        arrays such arrays, of Paddle's tensors such tensors.

        The output handles hold the same memory as these arrays.
        """
        if inputs is not None:
            if not isinstance(inputs, (list, tuple)):
                raise TypeError(f"run takes a list with an array for each input, not {type(inputs).__name__}")
            if len(inputs) != len(self._inputs):
                raise ValueError(f"run was given {len(inputs)} arrays, the program has {len(self._inputs)} inputs: {self.get_input_names()}")
            for tensor, array in zip(self._inputs, inputs, strict=True):
                tensor.share_external_data(array)
        results = self._model.run([_given(tensor) for tensor in self._inputs])
        arrays = [from_native(result) for result in results]
        for tensor, (dtype, *_), array in zip(self._outputs, results, arrays, strict=True):
            tensor._dtype, tensor._array = dtype, array
        if inputs is None:
            return True
        return _as_tensors(arrays, inputs[0]) if inputs and hasattr(inputs[0], "place") else arrays

    def clone(self, *_: object) -> Predictor:
        """Another predictor of the same model, for another thread."""
        return Predictor(self._config, self._model, self._types)

    def clear_intermediate_tensor(self) -> None:
        """Does nothing: what lies between inputs and outputs is given back when a run ends."""

    def try_shrink_memory(self) -> int:
        """Gives the device's unused memory back; how many bytes that were."""
        device = self._config.custom_device_id()
        before = openmps.native.memory_statistics(device)["reserved"]
        openmps.native.empty_cache(device)
        return before - openmps.native.memory_statistics(device)["reserved"]


class PredictorPool:
    """A number of predictors of one model, one for each thread."""

    def __init__(self, config: Config, size: int = 1):
        if size < 1:
            raise ValueError(f"a pool of {size} predictors")
        first = create_predictor(config)
        self._predictors = [first, *(first.clone() for _ in range(size - 1))]

    def retrieve(self, index: int) -> Predictor:
        """The predictor of this number."""
        return self._predictors[index]


def create_predictor(config: Config) -> Predictor:
    """Loads the model. ``NotImplementedError`` names every operation that openmps cannot run."""
    return Predictor(config)


def get_num_bytes_of_data_type(dtype: DataType) -> int:
    """Bytes of an element of this type."""
    return np.dtype(_STORED_AS.get(dtype.value, dtype.value)).itemsize


def get_version() -> str:
    """The version of openmps."""
    return f"openmps {openmps.__version__}"


def _open(config: Config) -> openmps.native.InferenceModel:
    if not config.model_from_memory() and config.prog_file().endswith(".onnx"):
        return openmps.native.InferenceModel.onnx(Path(config.prog_file()), config.custom_device_id())
    return openmps.native.InferenceModel(*config.contents(), config.custom_device_id())


def _named(tensors: list[Tensor], name: str, kind: str) -> Tensor:
    for tensor in tensors:
        if tensor.name() == name:
            return tensor
    raise ValueError(f"the program has no {kind} {name!r}: {[tensor.name() for tensor in tensors]}")


def _as_tensors(arrays: list[np.ndarray], like) -> list:
    """Paddle's tensors, where one of the inputs lies. Paddle takes bfloat16 by its bits, as they are stored here."""
    import paddle

    return [paddle.to_tensor(array, place=like.place) for array in arrays]


def _given(tensor: Tensor) -> tuple[str, tuple[int, ...], np.ndarray]:
    array = tensor._array
    if array is None:
        raise RuntimeError(f"the input {tensor.name()} was not given: copy_from_cpu")
    return as_native(tensor._dtype, array)


def as_native(dtype: str | None, array: np.ndarray) -> tuple[str, tuple[int, ...], np.ndarray]:
    """An input as the native module takes it: its element type, where the program does not say, is the array's."""
    # An array without dimensions has no buffer that says its shape.
    return dtype or str(array.dtype), array.shape, array if array.ndim else array.reshape(1)


def from_native(result: tuple[str, list[int], bytearray]) -> np.ndarray:
    """An output as the native module gives it, without a copy."""
    dtype, shape, data = result
    return np.ndarray(shape, stored_as(dtype), data)


@cache
def stored_as(dtype: str | None) -> np.dtype | None:
    """The element type in memory; None where the program does not say one."""
    return np.dtype(_STORED_AS.get(dtype, dtype)) if dtype else None


def noise(dtype: str | None, shape: list[int], random: np.random.Generator) -> np.ndarray:
    """Numbers from 0 to 1 as an input of this type takes them."""
    numbers = random.uniform(0, 1, shape)
    if dtype == "bfloat16":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(_STORED_AS[dtype])
    return numbers.astype(dtype or "float32")
