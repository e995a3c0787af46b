"""Makes ``paddle.mps`` appear after a bare ``import paddle``, and ``triton.runtime.driver.MPSDriver`` after ``import triton``.

``openmps.pth`` imports this module whenever Python starts. It puts finders at the front of ``sys.meta_path`` and imports
nothing else; a finder answers for one name alone, takes itself out before anything can go wrong, and lets ``install`` of
:mod:`openmps.paddle` or :mod:`openmps.triton` run when the framework's own import has ended. Whatever fails there is a warning,
never an error of that import.
"""

import sys


class _Finder:
    """Finds a framework as Python would, and runs the installation behind its loader."""

    def __init__(self, framework):
        self.framework = framework

    def find_spec(self, name, path=None, target=None):
        if name != self.framework:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _install_behind(spec.loader, name)
        return spec


class _quiet:
    """Paddle logs seven lines about each plug-in that it loads. Unless somebody has asked for logs, only warnings are printed."""

    def __enter__(self):
        import os

        self.environment = os.environ if not any(name.startswith("GLOG_") for name in os.environ) else None
        if self.environment is not None:
            self.environment["GLOG_minloglevel"] = "1"

    def __exit__(self, *_):
        if self.environment is not None:
            self.environment.pop("GLOG_minloglevel", None)


def _install_behind(loader, framework):
    execute = loader.exec_module

    def exec_module(module):
        with _quiet():
            execute(module)
        try:
            from importlib import import_module

            import_module(f"openmps.{framework}").install(module)
        except Exception as error:  # never break the framework's import
            import warnings

            name = {"paddle": "paddle.mps", "triton": "triton.runtime.driver.MPSDriver"}[framework]
            warnings.warn(f"openmps: {name} is not available: {error!r}", RuntimeWarning, stacklevel=2)

    loader.exec_module = exec_module


for _framework in ("paddle", "triton"):
    if _framework not in sys.modules:
        sys.meta_path.insert(0, _Finder(_framework))
