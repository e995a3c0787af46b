"""Triton's Python files with openmps's native module in the place of Triton's own library: ``openmps triton install``."""

import ast
import collections
import csv
import difflib
import importlib.metadata
import itertools
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import triton

from openmps.triton import installation, interpreter
from paddle_custom_device import openmps_native

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = openmps_native.libtriton
KERNELS = [f"tests/triton/test_{name}.py" for name in ("kernels", "returns", "single_elements", "small_floats", "tutorials", "written_by_others")]

pytestmark = pytest.mark.skipif(
    triton.__version__ not in installation.VERSIONS or not pathlib.Path(triton.__file__).with_name("_C").joinpath("libtriton.so").exists(),
    reason="compares with a Triton that has its own native library, of a version that openmps installs",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel as PyPI has it, but with the Python files only, which are in this environment."""
    path = tmp_path_factory.mktemp("wheel") / f"triton-{triton.__version__}-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in importlib.metadata.files("triton"):
            if file.suffix in (".py", ".pyi") or file.parts[0].endswith(".dist-info") or file.name == "ptxas":
                archive.write(file.locate(), str(file))
    return path


@pytest.fixture(scope="module")
def folder(wheel, tmp_path_factory):
    """Where the command has installed Triton."""
    target = tmp_path_factory.mktemp("triton")
    done = openmps("triton", "install", "--wheel", str(wheel), "--target", str(target))
    assert done.returncode == 0 and str(target) in done.stdout, done
    return target


def openmps(*arguments):
    return subprocess.run([sys.executable, "-m", "openmps", *arguments], capture_output=True, text=True)


def python(folder, work, *arguments):
    """Python with the Triton of a folder, or with this environment's."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(work / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = str(folder) if folder else ""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=ROOT)


def test_what_is_installed_is_triton_without_its_binaries(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    original = pathlib.Path(triton.__file__).parents[1]
    information = folder / f"triton-{triton.__version__}.dist-info"
    own = {f"triton/_C/{name}" for name in ("libtriton/__init__.py", "libtriton.so", "libproton.py")}
    own |= {f"{information.name}/{name}" for name in ("INSTALLER", "RECORD", "WHEEL")}
    for path in files:
        name = path.relative_to(folder).as_posix()
        if name not in own:
            assert path.read_bytes() == (original / name).read_bytes(), name
    assert (information / "licenses" / "LICENSE").exists()
    assert sum(path.stat().st_size for path in files) < 4 << 20
    listed = {row[0] for row in csv.reader((information / "RECORD").read_text().splitlines())}
    assert listed == {path.relative_to(folder).as_posix() for path in files}, "pip uninstalls what is listed"


def test_the_profiler_says_why_it_is_not_there(folder, tmp_path):
    done = python(folder, tmp_path, "-c", "import triton.profiler")
    assert done.returncode and "ImportError: mps: proton, which profiles" in done.stderr, done.stderr


def test_what_cannot_be_installed_says_why(wheel, tmp_path):
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"no archive")
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("triton-2.0.dist-info/METADATA", "")
    for arguments, expected in [
        (["--wheel", str(broken)], "cannot be read"),
        (["--wheel", str(other)], f"is no wheel of Triton {triton.__version__}"),
        (["--version", "2.0"], "is not tested without its native library"),
        (["--wheel", str(wheel), "--target", str(wheel)], "is no folder"),
    ]:
        target = [] if "--target" in arguments else ["--target", str(tmp_path / "target")]
        done = openmps("triton", "install", *arguments, *target)
        assert done.returncode == 2 and expected in done.stderr, (arguments, done.stderr)
    done = openmps("triton", "install", "--wheel", str(wheel))
    assert done.returncode == 2 and "is installed already" in done.stderr, "a Triton of pip's stays"


def _attributes_of(tree, names):
    """Attributes that a program takes from a variable of one of these names, or from an attribute of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = getattr(node.value, "id", getattr(node.value, "attr", None))
            if owner in names:
                yield owner, node.attr


def test_every_name_that_triton_calls_is_there():
    """What Triton's front end takes from its native library, read from its Python files."""
    theirs, package = triton._C.libtriton, pathlib.Path(triton.__file__).parent
    used = collections.defaultdict(set)
    for file in [*package.glob("language/*.py"), *package.glob("runtime/*.py"), *package.glob("compiler/*.py")]:
        for owner, name in _attributes_of(ast.parse(file.read_text()), ("builder", "ir", "_ir", "_interpreter")):
            used[owner.strip("_")].add(name)
    pairs = {
        "builder": (theirs.ir.builder, OURS.ir.builder),
        "ir": (theirs.ir, OURS.ir),
        "interpreter": (theirs.interpreter, interpreter),
    }
    # What their own library has not either stands in annotations, or Triton sets it itself.
    wanted = {part: {name for name in used[part] if hasattr(library, name)} for part, (library, _) in pairs.items()}
    assert [len(names) > least for names, least in zip(wanted.values(), (160, 20, 5))] == [True] * 3, wanted
    missing = {part: sorted(name for name in names if not hasattr(pairs[part][1], name)) for part, names in wanted.items()}
    missing["ir"] = [name for name in missing["ir"] if name != "parse_mlir_module"]  # refused by openmps.triton.libtriton
    assert not any(missing.values()), missing
    for name in wanted["ir"]:
        members = getattr(getattr(theirs.ir, name), "__members__", {})
        assert set(members) <= set(dir(getattr(OURS.ir, name, None))), name


class Address:
    def __init__(self, address, dtype):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


def test_arguments_are_specialized_alike():
    from triton.backends import backends
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def function(x):
        return x

    backend = backends["mps"].compiler
    Pair = collections.namedtuple("Pair", "first second")
    base = Address(4096, np.dtype("float16"))
    base.shape = base.stride = lambda *_: (8, 8)
    arguments = [0, 1, 16, 17, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, 2**64 - 16, True, False, None, 0.0, 1.0]
    arguments += [
        Address(4096, np.dtype("float32")),
        Address(4097, "torch.bfloat16"),
        (),
        (1, 2.0, 32),
        Pair(16, (None, 1)),
        triton.language.constexpr(3),
    ]
    arguments += [function, TensorDescriptor(base, [8, 8], [8, 1], [4, 8])]
    theirs = triton._C.libtriton.native_specialize_impl
    for argument in arguments:
        for is_const, specialize, align in [(c, s, a) for c in (False, True) for s in (False, True) for a in (False, True)]:
            request = (backend, argument, is_const, specialize, align)
            assert _shown(OURS.native_specialize_impl(*request)) == _shown(theirs(*request)), request[1:]
    for argument, error in [(2**64, OverflowError), ("text", TypeError), (object(), TypeError)]:
        for specialized in (OURS.native_specialize_impl, theirs):
            with pytest.raises(error):
                specialized(backend, argument, False, True, True)


def _shown(specialization):
    return tuple((type(part).__name__, repr(part)) for part in specialization)


def test_the_interpreters_parts_agree():
    theirs = triton._C.libtriton.interpreter
    random = np.random.default_rng(7)
    memory = random.integers(-99, 99, 64).astype(np.int32)
    addresses = (memory.ctypes.data + 4 * random.permutation(64)[:32].reshape(4, 8)).astype(np.uint64)
    mask, other = random.random((4, 8)) < 0.5, np.full((4, 8), 7, np.int32)
    np.testing.assert_array_equal(interpreter.load(addresses, mask, other, np.int32), theirs.load(addresses, mask, other, np.dtype(np.int32)))
    nowhere = np.zeros((4, 8), np.uint64)
    np.testing.assert_array_equal(interpreter.load(nowhere, np.zeros_like(mask), other, np.int32), other)
    value = random.integers(-99, 99, (4, 8)).astype(np.int32)
    twice = np.where(random.random((4, 8)) < 0.3, addresses[0, 0], addresses)
    start, results = memory.copy(), []
    for library in (interpreter, theirs):
        memory[:] = start
        library.store(addresses, value, mask)
        found = [memory.copy()]
        for operation in ("ADD", "AND", "OR", "XOR", "XCHG", "MAX", "MIN"):
            old = library.atomic_rmw(getattr(library.RMW_OP, operation), twice, value, mask, library.MEM_SEMANTIC.RELAXED)
            found += [np.where(mask, old, 0), memory.copy()]
        expected = np.where(mask, memory[0], value)
        found += [library.atomic_cas(addresses, expected, value, library.MEM_SEMANTIC.RELAXED), memory.copy()]
        results.append(found)
    for ours, their in zip(*results):
        np.testing.assert_array_equal(ours, their)
    for name, dtype in (("fma_fp32", np.float32), ("fma_fp64", np.float64)):
        x, y, z = (random.standard_normal((3, 4000)) * 10.0 ** random.integers(-12, 12, (3, 4000))).astype(dtype)
        z[::2] = (-x * y)[::2]
        z[:4], x[2:6] = [np.inf, -np.inf, np.nan, 0], [0, -0.0, np.inf, np.nan]
        np.testing.assert_array_equal(
            getattr(interpreter, name)(x, y, z).view(f"u{x.itemsize}"), getattr(theirs, name)(x, y, z).view(f"u{x.itemsize}")
        )


def plain(text: str) -> str:
    """A module's text without places, with values and blocks named by the order in which they are defined, and numbers written alike."""
    text = re.sub(r"^#(loc|loop).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r' loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)', "", text)
    text = re.sub(r"  // .*", "", text)
    text = re.sub(r"attributes \{llvm\.loop_annotation = .*\}", "attributes {}", text)
    out, scope, numbers = [], {}, itertools.count()

    def renamed(match):
        # A definition makes a new name: blocks beside each other may have used the old one.
        if match["definition"] is not None or match[0] not in scope:
            scope[match[0]] = f"{match[0][0]}{next(numbers)}"
        return scope[match[0]]

    for line in text.split("\n"):
        number = float if "f64" in line else np.float32
        line = re.sub(r"-?\d+\.\d+(?:[eE][-+]?\d+)?", lambda match: repr(number(match[0])), line)
        out.append(re.sub(r"[%^][-\w$.]+(?P<definition>(?=:\d+ = | = |: ))?", renamed, line))
    return "\n".join(out)


def sources(folder, work):
    """Runs the tests of kernels; the texts of all modules as the front end made them."""
    work.mkdir()
    done = python(folder, work, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={work / 'tests'}", *KERNELS)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    return {plain(path.read_text()) for path in work.rglob("*.source")}


def test_kernels_run_and_their_modules_are_those_of_libtriton(folder, tmp_path):
    ours, theirs = (sources(*way) for way in ((folder, tmp_path / "ours"), (None, tmp_path / "theirs")))
    assert len(theirs) > 60
    different = sorted(ours - theirs), sorted(theirs - ours)
    assert ours == theirs, "\n".join(difflib.unified_diff(*(text.splitlines() for text in next(zip(*different))), lineterm="", n=1))


def test_errors_have_the_lines_of_the_kernel(folder, tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(
        "import numpy as np, triton, triton.language as tl\n"
        "from openmps.triton import array\n"
        "@triton.jit\n"
        "def shapes(x_ptr):\n"
        "    tl.store(x_ptr + tl.arange(0, 8), tl.arange(0, 16))\n"
        "@triton.jit\n"
        "def assembly(x_ptr):\n"
        "    x = tl.inline_asm_elementwise('cnot.b32 $0, $1;', '=r,r', [tl.load(x_ptr)], tl.int32, True, 1)\n"
        "    tl.store(x_ptr, x)\n"
        "for kernel in (shapes, assembly):\n"
        "    try: kernel[(1,)](array(np.zeros(16, 'int32')))\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
        "print(triton.__file__)\n"
    )
    done = python(folder, tmp_path, str(program))
    assert done.returncode == 0 and str(folder) in done.stdout, done.stderr
    assert "CompilationError at 2:4" in done.stdout and "tl.store(x_ptr + tl.arange(0, 8)" in done.stdout
    assert re.search(
        r"NotImplementedError mps: .*wrong\.py:8:\d+: .*tt.elementwise_inline_asm: the PTX `cnot.b32 \$0, \$1`: not covered", done.stdout
    )
