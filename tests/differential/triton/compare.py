"""What two runs of a kernel left in memory: byte by byte in guards and where everything is exact, else in units in the last place."""

from __future__ import annotations

import numpy as np

from .elements import BF16, BY_NAME, Element, bfloat16_values
from .worker import GUARD


def difference(buffers: list, ours: list[bytes], theirs: list[bytes]) -> str | None:
    """The first few differences, or none."""
    for number, ((name, count, _, _, tolerance), mine, reference) in enumerate(zip(buffers, ours, theirs, strict=True)):
        element = BY_NAME[name]
        end = GUARD + count * element.storage.itemsize
        for side, part in (("before", slice(0, GUARD)), ("behind", slice(end, None))):
            changed = np.flatnonzero(np.frombuffer(mine[part], np.uint8) != np.frombuffer(reference[part], np.uint8))
            if changed.size:
                return f"buffer {number}: {changed.size} bytes {side} it were written, the first at byte {changed[0]} of that guard"
        a, b = (np.frombuffer(whole[GUARD:end], element.storage) for whole in (mine, reference))
        wrong = np.flatnonzero(~_agree(element, a, b, tolerance))
        if wrong.size:
            shown = ", ".join(f"[{at}] {_shown(element, a[at])} instead of {_shown(element, b[at])}" for at in wrong[:4])
            return f"buffer {number} ({name}): {wrong.size} of {count} differ: {shown}"
    return None


def _agree(element: Element, a: np.ndarray, b: np.ndarray, tolerance: int) -> np.ndarray:
    if not element.is_float:
        return a.view(np.uint8).reshape(len(a), -1).__eq__(b.view(np.uint8).reshape(len(b), -1)).all(axis=1)
    values, expected = _values(element, a), _values(element, b)
    same = (a.view(_bits(element)) == b.view(_bits(element))) | (np.isnan(values) & np.isnan(expected))
    if tolerance:
        with np.errstate(invalid="ignore", over="ignore"):
            same |= np.abs(values - expected) <= tolerance * np.spacing(np.maximum(np.abs(expected), np.finfo(values.dtype).tiny))
            # Of sines and logarithms near zero only the absolute error is small.
            same |= np.abs(values - expected) <= tolerance * np.finfo(values.dtype).eps
    return same


def _values(element: Element, stored: np.ndarray) -> np.ndarray:
    return bfloat16_values(stored) if element is BF16 else stored


def _bits(element: Element) -> np.dtype:
    return np.dtype(f"uint{element.bits}")


def _shown(element: Element, stored) -> str:
    return str(_values(element, np.atleast_1d(stored))[0])
