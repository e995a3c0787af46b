"""``import triton`` with the backend installed, in the orders and with the versions that there are."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

import versions
from openmps import native

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
    "the cache first": "import openmps.triton.cache\n" + ACTIVE,
    "a function of the tests' first": "from triton.testing import do_bench_cudagraph\n"
    + ACTIVE
    + "try: do_bench_cudagraph(print)\nexcept NotImplementedError as error: assert 'do_bench_cudagraph' in str(error)\nelse: raise AssertionError",
    "a look for it first": "import importlib.util\nimportlib.util.find_spec('triton')\n"
    + ACTIVE
    + "assert triton.runtime.driver.MPSDriver",
    "as in 3.7": CHANGED.format(
        module="openmps.triton.launch", change="[vars(driver).pop(name, None) for name in ('_parse_descriptor', 'decompose_descriptor')]"
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


def test_a_backend_that_cannot_be_had_is_warned_of_once(failing_program):
    # Both parts of the backend import it.
    lacking = "import sys, warnings\nwarnings.simplefilter('always')\nsys.modules['openmps.triton.limits'] = None\n"
    done = failing_program(lacking + REFUSES)
    warned = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert done.returncode == 0 and len(warned) == 1, done.stderr
    assert "openmps: Triton's backend mps is not available: " in warned[0] and "openmps.triton.limits" in warned[0]


#: Another backend, whose driver is always active, as CUDA's is where there is a GPU.
OTHER = {
    "other-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: other\nVersion: 1\n",
    "other-1.dist-info/entry_points.txt": "[triton.backends]\nother = other\n",
    "other/__init__.py": "",
    "other/compiler.py": "from triton.backends.compiler import BaseBackend\n"
    "class Other(BaseBackend):\n    supports_target = staticmethod(lambda target: target.backend == 'other')\n"
    "Other.__abstractmethods__ = frozenset()\n",
    "other/driver.py": "from triton.backends.driver import DriverBase\n"
    "class OtherDriver(DriverBase):\n    is_active = staticmethod(lambda: True)\n"
    "OtherDriver.__abstractmethods__ = frozenset()\n",
}


BY_ENVIRONMENT = [
    ({}, "OtherDriver"),
    ({"OPENMPS_TRITON": "0"}, "OtherDriver"),
    ({"OPENMPS_TRITON": "1"}, "MPSDriver"),
    ({"TRITON_DEFAULT_BACKEND": "mps"}, "MPSDriver"),
    ({"TRITON_DEFAULT_BACKEND": "other"}, "OtherDriver"),
]


@pytest.mark.parametrize(("environment", "chosen"), BY_ENVIRONMENT)
def test_the_environment_chooses_among_backends(program, tmp_path, environment, chosen):
    for name, text in OTHER.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert program("import triton\nprint(type(triton.runtime.driver.active).__name__)", PYTHONPATH=str(tmp_path), **environment).strip() == chosen


#: What `torch.compile` does with a kernel for the CPU; PyTorch itself is not among the tests' packages.
COMPILED = """
import sys, types
import numpy as np, triton, triton.language as tl, openmps.triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1)

assert type(triton.runtime.driver.active).__name__ == "MPSDriver"
for name in ("torch", "torch._inductor", "torch._inductor.config"): sys.modules[name] = types.ModuleType(name)
sys.modules["torch._inductor"].config = sys.modules["torch._inductor.config"]
sys.modules["torch"]._inductor = sys.modules["torch._inductor"]
openmps.triton.use_in_torch_compile()
openmps.triton.use_in_torch_compile()
assert sys.modules["torch._inductor.config"].cpu_backend == "triton"
assert not backends["cpu"].driver.is_active()
triton.runtime.driver.set_active(backends["cpu"].driver())
source = ASTSource(kernel, {"x": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 8})
compiled = triton.compile(source, target=GPUTarget("cpu", "", 0))
x = np.zeros(8, "float32")
compiled[(1, 1, 1)](openmps.triton.array(x))
print(x.tolist())
"""


def test_the_backend_that_torch_compile_asks_for(script):
    assert script(COMPILED).strip() == str([1.0] * 8)


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
    folder = native.setting("OPENMPS_TEST_TRITON_VERSIONS")
    if not folder or not pathlib.Path(folder, version).exists():
        pytest.skip(f"OPENMPS_TEST_TRITON_VERSIONS names no folder that has Triton {version}")
    assert versions.run(pathlib.Path(folder, version), tmp_path) == f"{version} ok"
