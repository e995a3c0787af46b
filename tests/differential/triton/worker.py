"""A process that runs the kernels of files, compiled by openmps or under Triton's interpreter: python -m differential.triton.worker.

Reads a path a line; answers with a pickled (outcome, what) each. A crash ends this process only."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pickle
import struct
import sys
import warnings

import numpy as np

from .elements import BY_NAME, fill

#: Bytes before and behind each buffer that nobody may change.
GUARD = 8192
_PATTERN = 0xA5


def load(path: str):
    """The module of a kernel."""
    specification = importlib.util.spec_from_file_location(f"kernel_{abs(hash(path))}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def memory(module) -> list[np.ndarray]:
    """The bytes of each buffer with its guards, the inside at a multiple of 64."""
    whole = []
    for name, count, values, seed, _ in module.BUFFERS:
        inside = fill(BY_NAME[name], count, values, seed).view(np.uint8)
        buffer = np.full(inside.size + 2 * GUARD + 64, _PATTERN, np.uint8)
        buffer = buffer[-buffer.ctypes.data % 64 :][: inside.size + 2 * GUARD]
        buffer[GUARD : GUARD + inside.size] = inside
        whole.append(buffer)
    return whole


def launch(module, wrap, place=lambda buffer: buffer) -> list[bytes]:
    """Every buffer after the kernel, guards included; `place` puts a buffer where the device wants it."""
    buffers, arguments = [place(buffer) for buffer in memory(module)], []
    for given in module.ARGUMENTS:
        if isinstance(given, int):
            arguments.append(given)
            continue
        element = BY_NAME[module.BUFFERS[given[0]][0]]
        arguments.append(wrap(buffers[given[0]].ctypes.data + GUARD + given[1] * element.storage.itemsize, element.argument))
    module.kernel[module.GRID](*arguments)
    if place is unified:
        import paddle

        paddle.mps.synchronize()
    return [buffer.tobytes() for buffer in buffers]


def unified(buffer: np.ndarray) -> np.ndarray:
    """A copy in memory of the device, which the CPU sees as well; Paddle's allocator is the one at hand."""
    import paddle

    paddle.set_device("mps")
    tensor = paddle.zeros([buffer.size + 64], dtype="uint8")
    paddle.mps.synchronize()
    start = -tensor.data_ptr() % 64
    seen = (ctypes.c_uint8 * (buffer.size + start)).from_address(tensor.data_ptr())
    # The array keeps the view, and the view the tensor.
    seen.tensor = tensor
    copy = np.frombuffer(seen, np.uint8)[start:]
    copy[:] = buffer
    return copy


def main() -> None:
    from .interpreter import Tensor, mend_bfloat16, mend_signalling

    # Replies must not mix with what libraries print.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if os.environ.get("TRITON_INTERPRET") == "1":
        mend_signalling()
        mend_bfloat16()
    place = unified if os.environ.get("OPENMPS_DEVICE", "host") != "host" else lambda buffer: buffer
    for line in sys.stdin:
        try:
            answer = ("ran", launch(load(line.strip()), Tensor, place))
        except Exception as error:
            inner = error
            while inner.__cause__ is not None:
                inner = inner.__cause__
            answer = ("refused", f"{type(inner).__name__}: {inner}"[-2000:])
        except BaseException as error:
            answer = ("panicked", f"{type(error).__name__}: {error}"[:2000])
        packed = pickle.dumps(answer)
        replies.write(struct.pack("<Q", len(packed)) + packed)
        replies.flush()


if __name__ == "__main__":
    main()
