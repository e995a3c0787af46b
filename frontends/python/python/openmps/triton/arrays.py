"""NumPy arrays as arguments of kernels."""

from __future__ import annotations

import numpy as np


class Array:
    """A NumPy array with what Triton asks of a tensor: ``data_ptr()``, ``dtype``, ``shape`` and ``stride()``."""

    __slots__ = ("_address", "dtype", "read_only", "values")

    def __init__(self, values: np.ndarray):
        # Types of ml_dtypes, such as bfloat16, have the kind of anything else.
        if values.dtype.kind not in "biufV" or not values.dtype.isnative or values.dtype.itemsize > 8:
            raise TypeError(f"an array of {values.dtype} is no argument of kernels: their elements are bool, integers and floats of up to 64 bits")
        # Kept, since each launch asks several times: NumPy moves no memory that somebody else refers to.
        self.values, self.dtype = values, values.dtype
        self._address = values.ctypes.data
        #: Whether kernels may not store into it.
        self.read_only = not values.flags.writeable

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._address

    def stride(self, axis: int) -> int:
        """Elements from one index of the axis to the next."""
        return self.values.strides[axis] // self.values.itemsize

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self.values, dtype=dtype)


def array(values) -> Array:
    """The array itself where it is one of NumPy (kernels write into it), else a new one."""
    return Array(np.asarray(values))
