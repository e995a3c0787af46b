"""Compares a result with the one of Paddle's CPU, and with the one of float64."""

from __future__ import annotations

import numpy as np

from .draw import EXTREMES
from .numbers import UNIT, rounded_to
from .result import Result
from .row import Tolerance

# Units of rounding that each element may be off, and how many times the CPU's own error. Of float64 nothing better is known than the CPU's
# own result, which may be as far off as ours.
UNITS = {Tolerance.EXACT: 0.5, Tolerance.CLOSE: 8.0, Tolerance.DIFFERENCE: 8.0, Tolerance.SUM: 8.0}
TIMES_THE_CPU = 4.0
TIMES_DOUBLE = 4.0


def problem(ours: Result, theirs: Result, exact: Result | None, noisy: list[Result], tolerance: Tolerance) -> str | None:
    """What is wrong with our result, in words; none when it is right. `exact` is float64's, `noisy` float64's of inputs off by one rounding."""
    if theirs.raised or ours.raised:
        return raised(ours, theirs)
    if len(ours.values) != len(theirs.values):
        return f"{len(ours.values)} results, wanted {len(theirs.values)}"
    for part in ("values", "gradients"):
        mine, peers = getattr(ours, part), getattr(theirs, part)
        reference = getattr(exact, part) if exact else []
        others = [getattr(other, part) for other in noisy]
        for position, (have, want) in enumerate(zip(mine, peers)):
            truth = reference[position] if len(reference) == len(mine) else None
            spread = [other[position] for other in others if len(other) == len(mine)]
            if found := differs(have, want, truth, spread, tolerance, part == "gradients"):
                return f"{part[:-1]} {position}: {found}"
    return None


def raised(ours: Result, theirs: Result) -> str | None:
    if ours.raised == theirs.raised:
        return None
    mine = f"raises {ours.raised} ({first_line(ours.message)})" if ours.raised else "raises nothing"
    want = f"{theirs.raised} ({first_line(theirs.message)})" if theirs.raised else "no exception"
    return f"{ours.where if ours.raised else theirs.where}: {mine}, wanted {want}"


def first_line(message: str) -> str:
    lines = [line.strip() for line in message.strip().splitlines() if "(" in line or ":" in line]
    return (lines or message.strip().splitlines() or [""])[-1 if "Hint" not in (lines or [""])[-1] else 0][:160]


def differs(have, want, truth, spread, tolerance: Tolerance, gradient: bool) -> str | None:
    if have is None or want is None:
        return None if have is want else f"{'no gradient' if have is None else 'a gradient'}, wanted {'none' if want is None else 'one'}"
    if not isinstance(want, tuple):
        return None if have == want or repr(have) == repr(want) else f"{have!r}, wanted {want!r}"
    (mine, array), (peer, wanted) = have, want
    if mine != peer:
        return f"element type {mine}, wanted {peer}"
    if array.shape != wanted.shape:
        return f"shape {array.shape}, wanted {wanted.shape}"
    if array.size == 0:
        return None
    if mine not in UNIT:
        wrong = ~same_numbers(array, wanted)
    else:
        wrong = ~(close(array, wanted, truth, spread, mine, tolerance, gradient))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    exact = f", float64: {truth[1][at]!r}" if truth is not None and truth[1].shape == array.shape else ""
    return f"{int(wrong.sum())} of {wrong.size} wrong{off_by(array, wanted, wrong)}, at {list(at)}: {array[at]!r}, wanted {wanted[at]!r}{exact}"


def off_by(array: np.ndarray, wanted: np.ndarray, wrong: np.ndarray) -> str:
    """The largest difference as part of the largest number among what is wrong, where all are numbers."""
    with np.errstate(all="ignore"):
        have, want = array[wrong].astype("float64"), wanted[wrong].astype("float64")
        relative = np.abs(have - want).max() / np.fmax.reduce(np.abs(want))
    return f" by {relative:.0e}" if np.isfinite(relative) else ""


def close(array: np.ndarray, wanted: np.ndarray, truth, spread, dtype: str, tolerance: Tolerance, gradient: bool) -> np.ndarray:
    """Where an element is near enough to float64's, or is what the CPU has."""
    with np.errstate(all="ignore"):
        array, wanted = array.astype("float64"), wanted.astype("float64")
    unit, smallest = UNIT[dtype] * (TIMES_DOUBLE if dtype == "float64" else 1), EXTREMES[dtype][1]
    with np.errstate(all="ignore"):
        same = same_numbers(array, wanted)
        if truth is None or truth[1].shape != array.shape:
            scale = np.abs(wanted).max() if tolerance is Tolerance.SUM else np.abs(wanted)
            return same | (np.abs(array - wanted) <= 2 * UNITS[tolerance] * unit * scale + smallest)
        exact = rounded_to(truth[1].astype("float64"), dtype)
        allowed = UNITS[tolerance] * unit * np.abs(exact) + 4 * smallest
        if tolerance is not Tolerance.EXACT:
            finite = np.isfinite(exact) & np.isfinite(wanted)
            own = np.where(finite, np.abs(wanted - exact), 0)
            allowed = np.maximum(allowed, TIMES_THE_CPU * own)
            if tolerance is Tolerance.SUM:
                moved = [np.where(np.isfinite(other[1]) & finite, np.abs(other[1] - truth[1]), 0) for other in spread if other[1].shape == exact.shape]
                scale = max((float(move.max()) for move in moved), default=0.0)
                allowed = allowed + 4 * scale + TIMES_THE_CPU * float(own.max(initial=0.0))
            if dtype in ("float16", "bfloat16"):
                # The far tails of an activation, of which nothing is left after the next addition.
                allowed = allowed + unit * 1e-3
            if tolerance is Tolerance.DIFFERENCE:
                # Half types are computed in float32.
                allowed = allowed + 4 * min(unit, UNIT["float32"])
            if gradient:
                # 1 - y^2, y + 1: of a rounded y that is nearly 1 the difference is as exact as that. The upstream gradient is of size 1.
                allowed = allowed + 4 * unit
            if tolerance is Tolerance.SUM or dtype == "float64":
                allowed = allowed + 2 * unit * max(1.0, float(np.abs(np.where(np.isfinite(exact), exact, 0)).max(initial=0.0)))
            if gradient and dtype in ("float16", "bfloat16"):
                # A gradient is a function of the output, which these types round coarsely: 1 - y^2 at y near 1.
                allowed = allowed + UNITS[tolerance] * unit * float(np.abs(np.where(np.isfinite(exact), exact, 0)).max(initial=0.0))
        near = same_numbers(array, exact) | (np.abs(array - exact) <= allowed)
        if gradient:
            # What is added up overflows, to infinity or to NaN by the order of additions.
            near |= np.isfinite(truth[1]) & np.isinf(exact) & ~np.isfinite(wanted) & ~np.isfinite(array)
        return near | same | (np.abs(array - wanted) <= UNITS[tolerance] * unit * np.abs(wanted))


def same_numbers(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Equal, both NaN counting as equal."""
    return (one == other) | (np.isnan(one) & np.isnan(other))
