"""Values and bindings by ONNX Runtime's names: arrays in this process's memory, wherever the session computes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from openmps.onnx import InferenceSession

# ONNX's names of element types that are not NumPy's.
ONNX_NAMES = {"float32": "float", "float64": "double"}
# What `onnx.TensorProto` numbers them.
_NUMBERED = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
    12: "uint32", 13: "uint64", 16: "uint16",
}  # fmt: skip


def onnx_type(dtype: str | None) -> str:
    """``tensor(float)`` for ``float32``."""
    return f"tensor({ONNX_NAMES.get(dtype, dtype)})" if dtype else ""


def _dtype(element_type: object) -> np.dtype:
    return np.dtype(_NUMBERED[element_type]) if isinstance(element_type, int) else np.dtype(element_type)  # type: ignore[arg-type]


def _in_memory(device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise ValueError(f"openmps.onnx binds memory of this process, the device type 'cpu', not {device_type!r}")


class OrtValue:
    """A tensor."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """The array itself, without a copy."""
        _in_memory(device_type)
        return OrtValue(np.asarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: object = None, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A tensor of zeros, of float32 where no type is given."""
        _in_memory(device_type)
        return OrtValue(np.zeros(shape, _dtype(element_type or "float32")))

    def numpy(self) -> np.ndarray:
        """The tensor as an array."""
        return self._array

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Overwrites its elements."""
        np.copyto(self._array, np_arr)

    def shape(self) -> list[int]:
        """Its dimensions."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Its type, such as ``tensor(float)``."""
        return onnx_type(self._array.dtype.name)

    def data_ptr(self) -> int:
        """Where its first element lies."""
        return self._array.ctypes.data

    def device_name(self) -> str:
        """Where it lies: ``cpu``."""
        return "cpu"

    def is_tensor(self) -> bool:
        """Always."""
        return True

    def has_value(self) -> bool:
        """Always."""
        return True


class IOBinding:
    """The inputs of a run, and memory for its outputs where the caller has some."""

    def __init__(self, session: InferenceSession):
        self._session = session
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: dict[str, OrtValue | None] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """An array is the input."""
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """A tensor is the input."""
        self._inputs[name] = ortvalue.numpy()

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: object, shape: Sequence[int], buffer_ptr: int) -> None:
        """Memory at an address is the input; it must hold these elements until the run has ended."""
        _in_memory(device_type)
        self._inputs[name] = _at(buffer_ptr, shape, element_type)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """The output is wanted; in memory at an address, where one is given."""
        _in_memory(device_type)
        bound = None if buffer_ptr is None or shape is None else OrtValue(_at(buffer_ptr, shape, element_type or "float32"))
        self._outputs[name] = bound

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """The output is written into a tensor."""
        self._outputs[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._outputs.clear()

    def synchronize_inputs(self) -> None:
        """Does nothing: a run reads its inputs before it returns."""

    def synchronize_outputs(self) -> None:
        """Does nothing: a run has ended when it returns."""

    def run(self) -> None:
        """Runs the session; the outputs are in the bound memory, or new."""
        results = self._session.run(list(self._outputs), self._inputs) if self._outputs else []
        for (name, bound), result in zip(self._outputs.items(), results, strict=True):
            if bound is None:
                self._outputs[name] = OrtValue(result)
                continue
            if bound.shape() != list(result.shape):
                raise ValueError(f"the output {name} has the shape {list(result.shape)}, what it is bound to {bound.shape()}")
            bound.update_inplace(result)

    def get_outputs(self) -> list[OrtValue]:
        """The outputs, in the order in which they were bound."""
        missing = [name for name, value in self._outputs.items() if value is None]
        if missing:
            raise RuntimeError(f"the outputs {missing} are not there yet: run the session with this binding first")
        return [value for value in self._outputs.values() if value is not None]

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """The outputs as arrays."""
        return [value.numpy() for value in self.get_outputs()]


def _at(address: int, shape: Sequence[int], element_type: object) -> np.ndarray:
    """The array at an address, whose owner is the caller."""
    dtype = _dtype(element_type)
    memory = (ctypes.c_uint8 * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)
