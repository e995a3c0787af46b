"""Makes ``paddle.mps`` appear after a bare ``import paddle``.

``openmps.pth`` imports this module whenever Python starts. It puts one finder at the front of ``sys.meta_path`` and imports
nothing else; the finder answers for the name ``paddle`` alone, takes itself out before anything can go wrong, and lets
:func:`openmps.paddle.install` run when Paddle's own import has ended. Whatever fails there is a warning, never an error of
``import paddle``.
"""

import sys


class _PaddleFinder:
    """Finds ``paddle`` as Python would, and runs the installation behind its loader."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "paddle":
            return None
        cls.remove()
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _install_behind(spec.loader)
        return spec

    @classmethod
    def remove(cls):
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not cls]


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


def _install_behind(loader):
    execute = loader.exec_module

    def exec_module(module):
        with _quiet():
            execute(module)
        try:
            from openmps.paddle import install

            install(module)
        except Exception as error:  # never break `import paddle`
            import warnings

            warnings.warn(f"openmps: paddle.mps is not available: {error!r}", RuntimeWarning, stacklevel=2)

    loader.exec_module = exec_module


if "paddle" not in sys.modules:
    sys.meta_path.insert(0, _PaddleFinder)
