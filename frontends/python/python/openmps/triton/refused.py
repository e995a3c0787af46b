"""Functions of Triton that no driver but NVIDIA's can serve: while openmps's is the active one they are refused by their names."""

from __future__ import annotations

import functools

#: By name, each with what to do instead.
_REFUSED = {"do_bench_cudagraph": "a CUDA graph does not record openmps's launches; triton.testing.do_bench measures them"}


def install(testing) -> None:
    """Puts a question before each of them in ``triton.testing``: whose driver is it?"""
    for name, reason in _REFUSED.items():
        function = getattr(testing, name, None)
        if function is not None and function.__module__ != __name__:
            setattr(testing, name, _asking(function, name, reason))


def _asking(function, name: str, reason: str):
    @functools.wraps(function)
    def ask(*arguments, **options):
        from triton.runtime import driver

        from openmps.triton.launch import MPSDriver

        if isinstance(driver.active, MPSDriver):
            raise NotImplementedError(f"mps: {name}: {reason}")
        return function(*arguments, **options)

    ask.__module__ = __name__
    return ask
