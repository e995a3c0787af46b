"""Launches that must be refused or ended: arguments, grids, signals, caches."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array


@triton.jit
def add_one_kernel(x_ptr, y_ptr):
    at = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(y_ptr + at, tl.load(x_ptr + at) + 1)


@triton.jit
def count_kernel(count_ptr):
    tl.atomic_add(count_ptr, 1)


class Tensor:
    """What a tensor of PyTorch says of itself, and what a kernel asks of it."""

    dtype, is_cuda = "float32", False

    def __init__(self, address, shape=(16,), is_cpu=True, device="cpu"):
        self.address, self.shape, self.on_cpu, self.device = address, shape, is_cpu, device

    @property
    def is_cpu(self):
        return self.on_cpu

    def data_ptr(self):
        return self.address


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (Tensor(0, is_cpu=False, device="meta"), "parameter y_ptr: the tensor is on device meta"),
        (Tensor(4096, is_cpu=False, device="xpu:1"), "parameter y_ptr: the tensor is on device xpu:1"),
        (Tensor(0), r"parameter y_ptr: the tensor of shape \[16\] has no memory"),
    ],
)
def test_tensors_that_cannot_be_reached(tensor, says):
    with pytest.raises(ValueError, match=says):
        add_one_kernel[(1,)](array(np.zeros(16, "float32")), tensor)


def test_read_only_arrays_are_read_and_not_written(tmp_path):
    out = np.zeros(16, "float32")
    memory = np.frombuffer(bytes(64), "float32")
    mapped = np.memmap(tmp_path / "x", "float32", "w+", shape=16)
    mapped.flush()
    for values in (memory, np.memmap(tmp_path / "x", "float32", "r")):
        add_one_kernel[(1,)](array(values), array(out))
        assert (out == 1).all()
        with pytest.raises(ValueError, match="parameter y_ptr: the array is read-only"):
            add_one_kernel[(1,)](array(out), array(values))
        assert (np.asarray(values) == 0).all()


def test_grids():
    count = np.zeros(1, "int32")
    for grid, programs in {(3, 2, 2): 12, (0,): 0, (-1,): 0, (-1, -1): 0, (2, 0, 2**31 - 1): 0}.items():
        count[:] = 0
        count_kernel[grid](array(count))
        assert count == programs, grid
    for grid in ((2**32, 2**32, 1), (2**31,), (1, 1, 2**40)):
        with pytest.raises(OverflowError, match="at most 2147483647 programs"):
            count_kernel[grid](array(count))
    with pytest.raises(RuntimeError, match="more than 2.64 programs"):
        count_kernel[(2**31 - 1, 2**31 - 1, 2**31 - 1)](array(count))


ENDLESS = """
import numpy as np, signal, sys, threading, time, os, triton, triton.language as tl
from openmps.triton import array

@triton.jit
def waiting(x):
    while tl.load(x, volatile=True) == 0:
        pass

@triton.jit
def counting(x, n):
    total = 0.0
    for i in range(n):
        total += tl.load(x + i % 2)
    tl.store(x, total)

@triton.jit
def program_by_program(x):
    tl.store(x + tl.arange(0, 2), tl.zeros((2,), tl.float32))

x = np.zeros(2, "float32")
counting[(1,)](array(x), 1)
program_by_program[(1,)](array(x))
many = (2**31 - 1, 2**20)
for launch in (
    lambda: waiting[(4,)](array(x)),
    lambda: counting[(4,)](array(x), 2**62),
    lambda: program_by_program[many](array(x)),
):
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begin = time.perf_counter()
    try:
        launch()
    except KeyboardInterrupt:
        took = time.perf_counter() - begin
        assert took < 20, took
    else:
        sys.exit("it ended by itself")
program_by_program[(5,)](array(x))
"""


def test_ctrl_c_ends_a_kernel(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    # A shell's background jobs have it ignored.
    done = subprocess.run(
        [sys.executable, script],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env={**os.environ, "OPENMPS_NUM_THREADS": "2"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == 0, done.stderr


def test_a_cut_cache_is_written_again(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(
        "import numpy as np, triton, triton.language as tl\nfrom openmps.triton import array\n"
        "@triton.jit\ndef cached(x): tl.store(x, 3.0)\n"
        "def run():\n    x = np.zeros(1, 'float32')\n    cached.device_caches.clear()\n    cached[(1,)](array(x))\n    assert x == 3\n"
    )
    cache = tmp_path / "cache"
    code = (
        f"import os, sys, pathlib\nos.environ['TRITON_CACHE_DIR'] = {str(cache)!r}\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "import kernel\nkernel.run()\n"
        f"files = [path for path in pathlib.Path({str(cache)!r}).rglob('*cached*') if path.is_file()]\n"
        "assert len(files) >= 4, files\n"
        "for path in files:\n"
        "    whole = path.read_bytes()\n"
        "    for size in (0, len(whole) // 2):\n"
        "        path.write_bytes(whole[:size])\n"
        "        try: kernel.run()\n"
        "        except Exception as error: sys.exit(f'{path.name} of {size} bytes: {error!r}')\n"
        "        if path.suffix == '.ttirtext': assert path.read_bytes() == whole\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
