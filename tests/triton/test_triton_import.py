"""``import triton`` with the backend installed, in the orders and with the versions that there are."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

import versions

#: Changes Triton while a module of ours is executed.
CHANGED = """
import sys
from importlib.machinery import PathFinder
class Changed:
    def find_spec(self, name, path=None, target=None):
        if name != {module!r}: return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module
        def changed(module):
            if 'triton' not in sys.modules: return execute(module)
            from abc import abstractmethod
            import triton.backends.compiler as compiler, triton.backends.driver as driver
            whole = {{part: dict(vars(part)) for part in (compiler, driver)}}
            duties = driver.DriverBase.__abstractmethods__
            {change}
            try: execute(module)
            finally:
                for part, names in whole.items(): vars(part).update(names)
                driver.DriverBase.__abstractmethods__ = duties
        spec.loader.exec_module = changed
        return spec
sys.meta_path.insert(0, Changed())
"""
ACTIVE = "import triton\nassert triton.runtime.driver.active.get_current_target().backend == 'mps'\n"
REFUSES = """
import triton
from triton.backends import backends
assert not backends['mps'].driver.is_active()
try: triton.runtime.driver.MPSDriver()
except RuntimeError as error: assert 'not available' in str(error), error
else: raise AssertionError('a driver')
"""

CASES = {
    "the driver first": "import openmps.triton.driver\n" + ACTIVE,
    "the compiler first": "import openmps.triton.compiler\n" + ACTIVE,
    "what launches first": "import openmps.triton.launch\n" + ACTIVE,
    "a look for it first": "import importlib.util\nimportlib.util.find_spec('triton')\n"
    + ACTIVE
    + "assert triton.runtime.driver.MPSDriver",
    "as in 3.7": CHANGED.format(
        module="openmps.triton.launch", change="del driver._parse_descriptor, driver.decompose_descriptor"
    )
    + ACTIVE,
    "a driver with more duties": CHANGED.format(
        module="openmps.triton.launch",
        change="driver.DriverBase.sing = abstractmethod(lambda self: 0); "
        "driver.DriverBase.__abstractmethods__ = duties | {'sing'}",
    )
    + REFUSES,
    "a compiler without languages": CHANGED.format(module="openmps.triton.backend", change="del compiler.Language")
    + "import triton\nassert not triton.backends.backends['mps'].compiler.supports_target(None)",
    "no native module": "import sys\nsys.modules['paddle_custom_device'] = None\n" + REFUSES,
    "warnings are errors": "import sys, warnings\nwarnings.simplefilter('error')\nsys.modules['paddle_custom_device'] = None\n" + REFUSES,
}


#: A Triton that was installed without its own native library needs ours.
NEED_NO_MODULE_OF_OURS = ("no native module", "warnings are errors")


def test_nothing_of_ours_breaks_the_import(tmp_path):
    ours = (importlib.metadata.distribution("triton").read_text("INSTALLER") or "").strip() == "openmps"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    started = {
        name: subprocess.Popen([sys.executable, "-c", case], stderr=subprocess.PIPE, text=True, env=environment)
        for name, case in CASES.items()
        if not (ours and name in NEED_NO_MODULE_OF_OURS)
    }
    failed = {name: error for name, process in started.items() if (error := process.communicate()[1], process.returncode)[1]}
    assert not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())


def test_the_documents_first_kernel(tmp_path):
    import triton

    folder = pathlib.Path(triton.__file__).parents[1]
    assert versions.run(folder, tmp_path) == f"{triton.__version__} ok"


@pytest.mark.parametrize("version", versions.VERSIONS)
def test_versions_that_are_installed(version, tmp_path):
    """``OPENMPS_TEST_TRITON_VERSIONS`` names the folder that tests/triton/versions.py fills."""
    folder = os.environ.get("OPENMPS_TEST_TRITON_VERSIONS")
    if not folder or not pathlib.Path(folder, version).exists():
        pytest.skip(f"OPENMPS_TEST_TRITON_VERSIONS names no folder that has Triton {version}")
    assert versions.run(pathlib.Path(folder, version), tmp_path) == f"{version} ok"
