"""``x.item()``, ``x[i]``, ``x[:i]`` and ``x[i] = value`` where ``i`` is a tensor of one number, which is read from device mps.

Paddle reads it by a copy for which it begins a thread and ends it again, which takes ten times as long as all the rest. ``x.numpy()`` copies
without one.
"""

from __future__ import annotations

import functools
from pathlib import Path

from openmps.paddle.devices import _is_mps

# NumPy's letters for int32 and int64, which Paddle takes as an index.
_INTEGERS = "ilq"
# What stands for bfloat16, which NumPy has not.
_WITHOUT_TYPE = "H"


def install(paddle) -> None:
    """Wraps the methods."""
    _wrap_item(paddle.Tensor)
    _wrap_indexing(paddle)
    _leave_out_of_traces()


def _wrap_item(tensor) -> None:
    original = tensor.item

    @functools.wraps(original)
    def item(self, *args):
        # Of more elements than one Paddle's error is its own.
        shape = self.shape
        if args or shape.count(1) != len(shape) or self.is_dist() or not _is_mps(self.place):
            return original(self, *args)
        number = self.numpy()
        return original(self) if number.dtype.char == _WITHOUT_TYPE else number.item()

    tensor.item = item


def _wrap_indexing(paddle) -> None:
    tensor = paddle.Tensor
    get, put = tensor.__getitem__, tensor.__setitem__

    def bound(index):
        """Of a slice, which takes a tensor of any number of dimensions and one element."""
        if not isinstance(index, tensor) or not _is_mps(index.place):
            return index
        shape = index.shape
        return _integer(index) if shape.count(1) == len(shape) else index

    def part(index):
        if isinstance(index, tensor):
            return _integer(index) if index.ndim == 0 and _is_mps(index.place) else index
        if isinstance(index, slice):
            return slice(bound(index.start), bound(index.stop), bound(index.step))
        return index

    def known(index):
        return tuple(map(part, index)) if isinstance(index, tuple) else part(index)

    @functools.wraps(get)
    def get_item(self, index):
        return get(self, known(index))

    @functools.wraps(put)
    def set_item(self, index, value):
        return put(self, known(index), value)

    tensor.__getitem__, tensor.__setitem__ = get_item, set_item


def _integer(index):
    """The tensor's number; the tensor where Paddle takes no such number as an index."""
    number = index.numpy()
    return number.item() if number.dtype.char in _INTEGERS else index


def _leave_out_of_traces() -> None:
    """Where ``to_static`` ends a graph at ``item``, it would take the function here for the program's own and go on with it."""
    from paddle.jit.sot.opcode_translator import skip_files

    skip_files.skip_file_names.add(f"{Path(__file__).resolve().parent}/")
    skip_files.setup_skip_files()
