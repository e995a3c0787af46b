"""openmps: deep learning on Metal Performance Shaders, without lock-in.

Importing this package does next to nothing: Python imports it at every start, to be ready for ``import paddle``
(see :mod:`openmps._hook`). Parts are loaded when they are used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmps import paddle
    from paddle_custom_device import openmps_native as native

    __version__: str

__all__ = ["__version__", "native", "paddle"]


def __getattr__(name: str):
    if name == "native":
        from paddle_custom_device import openmps_native

        return openmps_native
    if name == "__version__":
        return __getattr__("native").__version__
    if name == "paddle":
        import importlib

        return importlib.import_module("openmps.paddle")
    raise AttributeError(f"module 'openmps' has no attribute {name!r}")
