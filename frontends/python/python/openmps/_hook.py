"""Makes ``paddle.mps`` appear after a bare ``import paddle``, ``triton.runtime.driver.MPSDriver`` after ``import triton``, and the
device ``mps`` in PaddleX.

``openmps.pth`` imports this module whenever Python starts. It puts one finder at the front of ``sys.meta_path`` and imports nothing
else. The finder answers for a few names, each time they are looked for (``importlib.util.find_spec``, a first import that fails, a
reload), and lets ``install`` of :mod:`openmps.paddle` or :mod:`openmps.triton` run when the framework's own import has ended. Whatever
fails there is a warning, never an error of that import. Modules of these names that are other people's are found as if it were not there.
"""

import sys
from _thread import get_ident

# A file of the framework by which it is told from other modules of its name (none: its own name is enough), the module of openmps
# whose `install` it is given to, and what that adds.
_PADDLEX = (None, "paddlex", "device='mps' of PaddleX")
_FRAMEWORKS = {
    "paddle": ("base/core.py", "paddle", "paddle.mps"),
    "triton": ("runtime/driver.py", "triton", "triton.runtime.driver.MPSDriver"),
    "paddlex.utils.device": _PADDLEX,
    "paddlex.inference.models.runners.paddle_static.config.pp_option": _PADDLEX,
    "paddlex.inference.models.runners.paddle_static.runner": _PADDLEX,
}


class _Finder:
    """Finds a framework as Python would without it, and puts the installation behind its loader."""

    def __init__(self):
        self.asking = set()  # threads that ask the other finders, which may ask everybody again

    def find_spec(self, name, path=None, target=None):
        if name not in _FRAMEWORKS or get_ident() in self.asking:
            return None
        self.asking.add(get_ident())
        try:
            spec = _found_by_others(self, name, path, target)
        finally:
            self.asking.discard(get_ident())
        if spec is None or spec.loader is None or not _is_framework(name, spec.submodule_search_locations):
            return None
        spec.loader = _Loader(name, spec.loader)
        return spec


def _found_by_others(own, name, path, target):
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is not own and find is not None:
            spec = find(name, path, target)
            if spec is not None:
                return spec
    return None


def _is_framework(name, folders):
    from os.path import isfile

    file = _FRAMEWORKS[name][0]
    return file is None or any(isfile(f"{folder}/{file}") for folder in folders or ())


class _Loader:
    """A framework's own loader, which the module gets back before it is executed, and the installation after it."""

    def __init__(self, framework, loader):
        self.framework, self.loader = framework, loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        with _quiet():
            self.loader.exec_module(module)
        _install(self.framework, module)


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


def _install(framework, module):
    _, part, what = _FRAMEWORKS[framework]
    try:
        from importlib import import_module

        import_module(f"openmps.{part}").install(module)
    except Exception as error:  # never break the framework's import
        import warnings

        warnings.warn(f"openmps: {what} is not available: {error!r}", RuntimeWarning, stacklevel=2)


sys.meta_path.insert(0, _Finder())
