"""What ``triton._C.libtriton`` is where ``openmps triton install`` put Triton's Python files: openmps's native module, as far as they use it.

The front end's parts (``ir``, ``passes``, what a launch asks of its arguments) are Rust, ``frontends/python/src/triton/ir``; the interpreter's
are :mod:`openmps.triton.interpreter`. What only compilers for a maker's GPU and Gluon use is there by name, and says so when it is called.
"""

from __future__ import annotations

import sys
from types import ModuleType

from openmps.triton import interpreter

try:
    from paddle_custom_device.openmps_native import libtriton as native
except ImportError as error:
    raise ImportError("openmps's native module, which this Triton was installed for, is missing: pip install --force-reinstall openmps") from error

#: Parts of Triton's native library that nothing here can do.
_ABSENT = ("amd", "gluon_ir", "gsan_testing", "linear_layout", "llvm", "nvidia", "proton")


class _Absent(ModuleType):
    """A part that is not there: Triton's Python files import its names; whoever calls one is told."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": _refuse, "__module__": self.__name__})


def _refuse(self, *_, **__):
    name = f"{type(self).__module__}.{type(self).__name__}".removeprefix("triton._C.libtriton.")
    raise NotImplementedError(f"mps: {name} is in Triton's own native library only, which this installation is without")


def make_tensordesc_args(*_):
    """Arguments of a launch on an NVIDIA GPU."""
    raise NotImplementedError("mps: make_tensordesc_args is in Triton's own native library only")


def parse_mlir_module(path: str, context):
    """A module from its text."""
    raise NotImplementedError("mps: ir.parse_mlir_module, which compiles a file of TTIR, is in Triton's own native library only")


def fill(name: str) -> None:
    """Makes the module of this name, ``triton._C.libtriton``, what Triton's Python files take it for."""
    module = sys.modules[name]
    vars(module).update({key: value for key, value in vars(native).items() if not key.startswith("__")})
    vars(module)["make_tensordesc_args"] = make_tensordesc_args
    native.ir.parse_mlir_module = parse_mlir_module
    parts = {"ir": native.ir, "passes": native.passes, "interpreter": interpreter}
    parts |= {part: _Absent(f"{name}.{part}") for part in _ABSENT}
    for part, value in parts.items():
        setattr(module, part, value)
        sys.modules[f"{name}.{part}"] = value
