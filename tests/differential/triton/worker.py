"""A process that runs the kernels of files, compiled by openmps or under Triton's interpreter: python -m differential.triton.worker.

Reads a path a line; answers with a pickled (outcome, what) each. A crash ends this process only."""

from __future__ import annotations

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


def launch(module, wrap) -> list[bytes]:
    """Every buffer after the kernel, guards included."""
    buffers, arguments = memory(module), []
    for given in module.ARGUMENTS:
        if isinstance(given, int):
            arguments.append(given)
            continue
        element = BY_NAME[module.BUFFERS[given[0]][0]]
        arguments.append(wrap(buffers[given[0]].ctypes.data + GUARD + given[1] * element.storage.itemsize, element.argument))
    module.kernel[module.GRID](*arguments)
    return [buffer.tobytes() for buffer in buffers]


def main() -> None:
    from .interpreter import Tensor, mend_bfloat16

    # Replies must not mix with what libraries print.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if os.environ.get("TRITON_INTERPRET") == "1":
        mend_bfloat16()
    for line in sys.stdin:
        try:
            answer = ("ran", launch(load(line.strip()), Tensor))
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
