"""Reading and writing of Paddle's inference format: ``.pdmodel`` (one protobuf) and ``.pdiparams`` (tensors one after another).

Nothing here runs Paddle, so it does not matter which executor or which intermediate representation the process has switched on.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from paddle.base.proto import framework_pb2 as pb

_DTYPES: dict[int, np.dtype] = {
    pb.VarType.BOOL: np.dtype(np.bool_),
    pb.VarType.INT8: np.dtype(np.int8),
    pb.VarType.UINT8: np.dtype(np.uint8),
    pb.VarType.INT16: np.dtype(np.int16),
    pb.VarType.INT32: np.dtype(np.int32),
    pb.VarType.INT64: np.dtype(np.int64),
    pb.VarType.FP16: np.dtype(np.float16),
    pb.VarType.BF16: np.dtype(np.uint16),
    pb.VarType.FP32: np.dtype(np.float32),
    pb.VarType.FP64: np.dtype(np.float64),
}


class UnsupportedProgram(Exception):
    """The program cannot be rewritten. It can still be run as it is."""


@dataclass
class Program:
    """A program of one block and its parameters by name. A BF16 parameter is held as its bits."""

    desc: pb.ProgramDesc
    parameters: dict[str, np.ndarray]

    @property
    def block(self) -> pb.BlockDesc:
        return self.desc.blocks[0]

    @classmethod
    def parse(cls, model: bytes, parameters: bytes) -> Program:
        """From the contents of the two files."""
        try:
            desc = pb.ProgramDesc.FromString(model)
        except DecodeError as error:
            raise UnsupportedProgram("not a serialised program (a model of Paddle's new representation is JSON)") from error
        if len(desc.blocks) != 1:
            raise UnsupportedProgram("the program has control flow")
        names = parameter_names(desc.blocks[0])
        return cls(desc, dict(zip(names, _read_tensors(parameters, len(names)), strict=True)))

    def serialise(self) -> tuple[bytes, bytes]:
        """The contents of the two files."""
        names = parameter_names(self.block)
        types = {var.name: var.type.dense_tensor.tensor.data_type for var in self.block.vars}
        tensors = b"".join(_write_tensor(self.parameters[name], types[name]) for name in names)
        return self.desc.SerializeToString(), tensors


def parameter_names(block: pb.BlockDesc) -> list[str]:
    """The parameters of a block in the order of the file of parameters, which is the order of their names."""
    return sorted(var.name for var in block.vars if var.persistable and var.type.type == pb.VarType.DENSE_TENSOR)


def _read_tensors(data: bytes, count: int) -> list[np.ndarray]:
    tensors, at = [], 0
    try:
        for _ in range(count):
            tensor, at = _read_tensor(data, at)
            tensors.append(tensor)
    except (struct.error, ValueError, KeyError, DecodeError) as error:
        raise UnsupportedProgram(f"the file of parameters ends or changes its format at byte {at}") from error
    if at != len(data):
        raise UnsupportedProgram(f"the file of parameters has {len(data) - at} bytes more than the program names")
    return tensors


def _read_tensor(data: bytes, at: int) -> tuple[np.ndarray, int]:
    version, levels = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(levels):
        (size,) = struct.unpack_from("<Q", data, at)
        at += 8 + size
    tensor_version, size = struct.unpack_from("<Ii", data, at)
    at += 8
    if version != 0 or tensor_version != 0:
        raise ValueError("a version of the tensor format that is not known")
    desc = pb.VarType.TensorDesc.FromString(data[at : at + size])
    at += size
    dtype = _DTYPES[desc.data_type]
    count = int(np.prod(desc.dims, dtype=np.int64))
    values = np.frombuffer(data, dtype, count, at).reshape(tuple(desc.dims))
    return values, at + count * dtype.itemsize


def _write_tensor(values: np.ndarray, data_type: int) -> bytes:
    desc = pb.VarType.TensorDesc(data_type=data_type, dims=values.shape).SerializeToString()
    return struct.pack("<IQIi", 0, 0, 0, len(desc)) + desc + np.ascontiguousarray(values).tobytes()
