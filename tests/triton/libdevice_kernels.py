"""Kernels of single functions of ``libdevice``, written to a file, as Triton reads its functions' text."""

import contextlib

import numpy as np
import pytest

from openmps.triton import array

N = 1024


@contextlib.contextmanager
def written(folder, calls: dict):
    """A module with a kernel for each name, which stores a call of up to three numbers a, b and c."""
    lines = ["import triton", "import triton.language as tl", "from triton.language.extra import libdevice"]
    for name, call in calls.items():
        lines += [
            "@triton.jit",
            f"def {name}(a_ptr, b_ptr, c_ptr, out_ptr, N: tl.constexpr):",
            "    at = tl.arange(0, N)",
            "    a, b, c = tl.load(a_ptr + at), tl.load(b_ptr + at), tl.load(c_ptr + at)",
            f"    tl.store(out_ptr + at, {call})",
        ]
    with imported(folder, lines) as module:
        yield module


@contextlib.contextmanager
def imported(folder, lines: list):
    """The module of some lines."""
    path = folder / f"kernels_in_{folder.name}.py"
    path.write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield __import__(path.stem)


def given(kernels, name, dtype, *operands):
    """What a kernel stores; up to N numbers of each operand."""
    length = max(np.size(operand) for operand in operands)
    filled = [np.resize(operand, N) for operand in (*operands, *operands[:1] * 2)[:3]]
    out = np.zeros(N, dtype)
    getattr(kernels, name)[(1,)](*map(array, filled), array(out), N)
    return out[:length]
