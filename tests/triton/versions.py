"""The first kernel of docs/triton.md with other versions of Triton: ``python tests/triton/versions.py FOLDER [VERSION ..]``.

Each version is installed into a folder of its own under FOLDER with pip, if it is not there yet, and put in front of this
environment's Triton. Without versions: those that the documents name.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ["3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0"]

#: A descriptor made on the host, whose arguments differ between versions, a barrier, whose name does, and what the documents' kernel has to give.
CHECK = """
import sys
np.testing.assert_array_equal(output, x + y)
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def through(source, target_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(target_ptr + at, source.load([0, 0]) + 1)
    tl.debug_barrier()

source, target = np.arange(64, dtype="float32").reshape(8, 8), np.zeros((8, 8), "float32")
through[(1,)](TensorDescriptor(array(source), [8, 8], [8, 1], [8, 8]), array(target), 8, 8)
np.testing.assert_array_equal(target, source + 1)

@triton.jit
def by_blocks(source_ptr, target_ptr, M, N, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(source_ptr, (M, N), (N, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    target = tl.make_block_ptr(target_ptr, (M, N), (N, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    for _ in range(0, N, BLOCK):
        tl.store(target, tl.load(source, boundary_check=(0, 1), padding_option="zero") + 2, boundary_check=(0, 1))
        source, target = tl.advance(source, (0, BLOCK)), tl.advance(target, (0, BLOCK))

# Later versions refuse pointers of blocks.
if tuple(int(number) for number in triton.__version__.split(".")[:2]) < (3, 9):
    source, target = np.arange(70, dtype="float32").reshape(7, 10), np.zeros((7, 10), "float32")
    by_blocks[(1,)](array(source), array(target), 7, 10, 8)
    np.testing.assert_array_equal(target, source + 2)
assert triton.runtime.driver.MPSDriver().get_current_target().backend == "mps"
print(triton.__version__, "ok")
"""


def needs(is_there: bool, what: str) -> pytest.MarkDecorator:
    """Leaves a test out where the Triton that is installed is too old for it."""
    import triton

    return pytest.mark.skipif(not is_there, reason=f"Triton {triton.__version__} has no {what}")


def program() -> str:
    """The documents' first kernel, and the check."""
    text = (ROOT / "docs" / "triton.md").read_text()
    return re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1) + CHECK


def run(folder: pathlib.Path, work: pathlib.Path) -> str:
    """What the program prints with the Triton in a folder. Triton reads kernels from files, so the program is one."""
    script = work / "kernel.py"
    script.write_text(program())
    paths = f"import sys; sys.path.insert(0, {str(folder)!r}); import runpy; runpy.run_path({str(script)!r})"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(work)}
    done = subprocess.run([sys.executable, "-c", paths], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def main(folder: str, *versions: str) -> None:
    import tempfile

    for version in versions or VERSIONS:
        target = pathlib.Path(folder, version)
        if not target.exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
            subprocess.run([*pip, f"triton=={version}"], check=True)
        with tempfile.TemporaryDirectory() as work:
            print(run(target, pathlib.Path(work)))


if __name__ == "__main__":
    main(*sys.argv[1:])
