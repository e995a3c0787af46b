"""What Triton finds while it is imported: the backend's two parts, or, where they cannot be had, parts that refuse work.

``import triton`` imports :mod:`openmps.triton.compiler` and :mod:`openmps.triton.driver` and fails with them. So these import what may
fail through :func:`part`, and no version of Triton, and no broken installation of ours, can take somebody's Triton away.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import warnings

_has_warned = False


def before_triton(name: str) -> None:
    """For the first line of a module that Triton's own import imports too: imports Triton before the module, if that has not begun.

    Else Triton would find the module half made. It imports another one under the name meanwhile, which then stays.
    """
    if "triton" in sys.modules:
        return
    half = sys.modules.pop(name)
    try:
        importlib.import_module("triton")
    finally:
        sys.modules.setdefault(name, half)


def part(base: type, module: str, name: str) -> type:
    """The class of a module, a complete subclass of Triton's; one that refuses work where that fails."""
    try:
        found = getattr(importlib.import_module(module), name)
        if inspect.isabstract(found):
            raise TypeError(f"this Triton asks for {', '.join(sorted(found.__abstractmethods__))}, which {name} lacks")
        return found
    except Exception as error:
        _warn(error)
        return _refusing(base, name, error)


def _warn(error: Exception) -> None:
    """Says once why the backend is not there, whichever part it is that fails: without one the other is of no use."""
    global _has_warned
    if _has_warned:
        return
    _has_warned = True
    # Where warnings are errors it is kept to itself: the import comes first.
    with contextlib.suppress(Warning):
        warnings.warn(f"openmps: Triton's backend mps is not available: {error!r}", RuntimeWarning, stacklevel=3)


def _refusing(base: type, name: str, reason: Exception) -> type:
    def refuse(*_, **__):
        raise RuntimeError(f"mps: this backend is not available: {reason!r}") from reason

    members: dict[str, object] = dict.fromkeys([*base.__abstractmethods__, "__init__"], refuse)
    members["is_active"] = members["is_asked_for"] = classmethod(lambda cls: False)
    members["supports_target"] = staticmethod(lambda target: False)
    return type(name, (base,), members)
