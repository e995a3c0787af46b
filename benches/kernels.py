"""Kernels of Triton on the host device beside NumPy and PyTorch, in one run.

    python benches/kernels.py

Medians of calls in turns of a twentieth of a second; times in milliseconds, the launch in microseconds. A peer that is not installed is
left out, and said so.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import triton
import triton.language as tl

import tutorials
from cuda import add_kernel, softmax_kernel
from openmps.triton import array

try:
    import torch
except ImportError:
    torch = None


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + depth[None, :]
    b = b_ptr + depth[:, None] * N + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        sums = tl.dot(tl.load(a), tl.load(b), sums, input_precision="ieee")
        a += BLOCK_K
        b += BLOCK_K * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def sort_kernel(x_ptr, y_ptr, N: tl.constexpr):
    places = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr + places, tl.sort(tl.load(x_ptr + places)))


@triton.jit
def topk_kernel(x_ptr, y_ptr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    tl.store(y_ptr + row * K + tl.arange(0, K), tl.topk(x, K))


@triton.jit
def flip_kernel(x_ptr, y_ptr, N: tl.constexpr):
    places = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr + places, tl.flip(tl.load(x_ptr + places)))


@triton.jit
def add_rows_kernel(x_ptr, index_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    row = tl.load(index_ptr + tl.program_id(0))
    tl.atomic_add(y_ptr + row * N + at, tl.load(x_ptr + tl.program_id(0) * N + at))


@triton.jit
def add_places_kernel(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + tl.load(index_ptr + at), tl.load(x_ptr + at))


@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + tl.load(index_ptr + at)))


@triton.jit
def running_sum_kernel(x_ptr, y_ptr, N: tl.constexpr):
    places = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr + places, tl.cumsum(tl.load(x_ptr + places), 0))


def medians(works: dict, seconds: float = 3.0, turn: float = 0.05) -> dict:
    """Medians in milliseconds of works that take turns. A turn is many calls: after each call the threads of OpenMP and of OpenBLAS wait
    in a loop for the next one, which the first call of somebody else would have to share the cores with."""
    times = {name: [] for name in works}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, work in works.items():
            work()
            until = time.perf_counter() + turn
            while (begin := time.perf_counter()) < until:
                work()
                times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def show(name: str, times: dict, unit: str = "ms", digits: int = 2) -> None:
    """One line: our time, then each peer's with the ratio."""
    ours = times.pop("openmps")
    peers = "".join(f"   {peer} {value:.{digits}f} ({value / ours:.2f}x)" for peer, value in times.items())
    print(f"{name:32} {ours:8.{digits}f} {unit}{peers}", flush=True)


def add(random: np.random.Generator) -> None:
    """16M elements into a warm output."""
    n = 16 << 20
    x, y, out = random.random(n, dtype=np.float32), random.random(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
    ours = [array(value) for value in (x, y, out)]
    grid = (triton.cdiv(n, 4096),)
    works = {"openmps": lambda: add_kernel[grid](*ours, n, BLOCK=4096), "NumPy": lambda: np.add(x, y, out=out)}
    if torch:
        tensors = [torch.from_numpy(value) for value in (x, y, out)]
        works["PyTorch"] = lambda: torch.add(tensors[0], tensors[1], out=tensors[2])
    show("add, 16M", medians(works))


def softmax(random: np.random.Generator) -> None:
    """4096 rows of 1024."""
    x = random.random((4096, 1024), dtype=np.float32)
    ours = [array(value) for value in (x, np.zeros_like(x))]
    works = {"openmps": lambda: softmax_kernel[(4096,)](*ours, 1024, 1024, BLOCK=1024)}
    if torch:
        tensor, out = torch.from_numpy(x), torch.empty(4096, 1024)
        works["PyTorch"] = lambda: torch.softmax(tensor, 1, out=out)
    show("softmax, 4096 x 1024", medians(works))


def matmul(random: np.random.Generator) -> None:
    """Square of 1024, float32."""
    size = 1024
    x, y = (random.random((size, size), dtype=np.float32) for _ in range(2))
    out = np.zeros_like(x)
    ours = [array(value) for value in (x, y, out)]
    blocks = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 256}
    grid = (size // blocks["BLOCK_M"], size // blocks["BLOCK_N"])
    works = {
        "openmps": lambda: matmul_kernel[grid](*ours, size, size, size, **blocks),
        "NumPy": lambda: np.matmul(x, y, out=out),
    }
    if torch:
        tensors = [torch.from_numpy(value) for value in (x, y, out)]
        works["PyTorch"] = lambda: torch.mm(tensors[0], tensors[1], out=tensors[2])
    show("product, 1024", medians(works))


def tutorial_matmul(torch_types: dict) -> None:
    """The tutorial's product of 1024 x 1024 matrices, in each float type; PyTorch's tensors of the CPU are taken as they are."""
    size = 1024
    blocks = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8}
    grid = (triton.cdiv(size, blocks["BLOCK_M"]) * triton.cdiv(size, blocks["BLOCK_N"]),)
    for name, dtype in torch_types.items():
        a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
        c, out = torch.empty(size, size, dtype=dtype), torch.empty(size, size, dtype=dtype)
        strides = [stride for tensor in (a, b, c) for stride in tensor.stride()]
        works = {
            "openmps": lambda a=a, b=b, c=c, s=strides: tutorials.matmul_kernel[grid](
                a, b, c, size, size, size, *s, **blocks
            ),
            "PyTorch": lambda a=a, b=b, out=out: torch.mm(a, b, out=out),
        }
        times = medians(works)
        check(c, a.float() @ b.float())
        show(f"tutorial's product, {name}", times)


def layer_norm() -> None:
    """The tutorial's layer norm over 4096 rows of 1024."""
    x, weight, bias = torch.randn(4096, 1024), torch.randn(1024), torch.randn(1024)
    y, mean, rstd = torch.empty_like(x), torch.empty(4096), torch.empty(4096)
    arguments = [x, y, weight, bias, mean, rstd, 1024, 1024, 1e-5]
    works = {
        "openmps": lambda: tutorials.layer_norm_kernel[(4096,)](*arguments, BLOCK=1024),
        "PyTorch": lambda: torch.nn.functional.layer_norm(x, (1024,), weight, bias),
    }
    times = medians(works)
    check(y, works["PyTorch"]())
    show("tutorial's layer norm", times)


def attention() -> None:
    """Flash attention of 8 heads of 64 over 1024 positions, whole and causal."""
    heads, length, head = 8, 1024, 64
    q, k, v = (torch.randn(1, heads, length, head) for _ in range(3))
    out, sums = torch.empty_like(q), torch.empty(heads, length)
    blocks = {"HEAD": head, "BLOCK_M": 64, "BLOCK_N": 128}
    for causal in (False, True):
        works = {
            "openmps": lambda causal=causal: tutorials.attention_kernel[(length // 64, heads)](
                q, k, v, out, sums, head**-0.5, length, CAUSAL=causal, **blocks
            ),
            "PyTorch": lambda causal=causal: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal
            ),
        }
        times = medians(works)
        works["openmps"]()
        check(out, works["PyTorch"]())
        show(f"attention, {'causal' if causal else 'whole'}", times)


def rms_norm() -> None:
    """4096 rows of 1024."""
    x, weight, y = torch.randn(4096, 1024), torch.randn(1024), torch.empty(4096, 1024)
    works = {
        "openmps": lambda: tutorials.rms_norm_kernel[(4096,)](x, y, weight, 1024, 1024, 1e-5, BLOCK=1024),
        "PyTorch": lambda: torch.nn.functional.rms_norm(x, (1024,), weight, 1e-5),
    }
    times = medians(works)
    check(y, works["PyTorch"]())
    show("RMS norm, 4096 x 1024", times)


def layer_norm_gradient() -> None:
    """The tutorial's gradients of layer norm by input, weight and bias, over 4096 rows of 1024."""
    rows, width, groups = 4096, 1024, 64
    x, dy, weight, bias = (torch.randn(*size) for size in ((rows, width), (rows, width), (width,), (width,)))
    _, mean, rstd = torch.native_layer_norm(x, (width,), weight, bias, 1e-5)
    mean, rstd = mean.flatten(), rstd.flatten()
    dx, dw, db = torch.empty_like(x), torch.empty(width), torch.empty(width)
    parts_of_w, parts_of_b = torch.empty(groups, width), torch.empty(groups, width)
    locks = torch.zeros(2 * groups, dtype=torch.int32)

    def ours():
        locks.zero_()
        tutorials.layer_norm_gradient_kernel[(rows,)](
            dx, dy, parts_of_w, parts_of_b, x, weight, mean, rstd, locks, width, width, GROUP=groups, BLOCK=1024
        )
        tutorials.layer_norm_weight_gradient_kernel[(width // 128,)](
            parts_of_w, parts_of_b, dw, db, groups, width, BLOCK_M=32, BLOCK_N=128
        )

    def theirs():
        return torch.ops.aten.native_layer_norm_backward(
            dy, x, [width], mean.view(rows, 1), rstd.view(rows, 1), weight, bias, [True] * 3
        )

    times = medians({"openmps": ours, "PyTorch": theirs})
    for found, expected in zip((dx, dw, db), theirs(), strict=True):
        check(found, expected)
    show("tutorial's layer norm, gradient", times)


def attention_gradient() -> None:
    """The gradients of flash attention by queries, keys and values: 8 heads of 64 over 1024 positions."""
    heads, length, head = 8, 1024, 64
    q, k, v, dout = (torch.randn(1, heads, length, head) for _ in range(4))
    out, dq, dk, dv = (torch.empty_like(q) for _ in range(4))
    sums, delta = torch.empty(heads, length), torch.empty(heads, length)
    scale = head**-0.5
    blocks = {"HEAD": head, "BLOCK_M": 64, "BLOCK_N": 128, "CAUSAL": False}
    tutorials.attention_kernel[(length // 64, heads)](q, k, v, out, sums, scale, length, **blocks)

    def ours():
        tutorials.attention_delta_kernel[(heads * length // 64,)](out, dout, delta, HEAD=head, BLOCK_M=64)
        inputs = [q, k, v, dout, sums, delta]
        tutorials.attention_gradient_kernel[(length // 128, heads)](*inputs, dk, dv, scale, length, **blocks)
        tutorials.attention_query_gradient_kernel[(length // 64, heads)](*inputs, dq, scale, length, **blocks)

    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    result = torch.nn.functional.scaled_dot_product_attention(*leaves)

    def theirs():
        return torch.autograd.grad(result, leaves, dout, retain_graph=True)

    times = medians({"openmps": ours, "PyTorch": theirs})
    for found, expected in zip((dq, dk, dv), theirs(), strict=True):
        check(found, expected)
    show("attention, gradient", times)


def sorting() -> None:
    """512 rows of 1024: sorted, the 8 largest, reversed. PyTorch's sort gives places too, of which the kernel knows nothing."""
    rows, length, most = 512, 1024, 8
    x = torch.randn(rows, length)
    kernels = {
        "sort": (sort_kernel, [length], lambda: torch.sort(x, 1)[0]),
        "8 largest": (topk_kernel, [length, most], lambda: torch.topk(x, most, 1)[0]),
        "reversed": (flip_kernel, [length], lambda: torch.flip(x, [1])),
    }
    for name, (kernel, sizes, theirs) in kernels.items():
        y = torch.empty(rows, sizes[-1])
        times = medians({"openmps": lambda k=kernel, y=y, s=sizes: k[(rows,)](x, y, *s), "PyTorch": theirs})
        check(y, theirs())
        show(f"{name}, 512 x 1024", times)


def places() -> None:
    """What goes by indices in memory: 4096 rows of 256 added to 512, 1M elements to 64K and from there; and running sums of 1024 rows of 1024."""
    rows, width, block, count = 4096, 256, 1024, 1 << 20
    x, index = torch.randn(rows, width), torch.randint(0, 512, (rows,))
    values, at = torch.randn(count), torch.randint(0, 1 << 16, (count,))
    table, lines = torch.randn(1 << 16), torch.randn(1024, 1024)
    grid = (count // block,)
    of_rows, of_places = torch.zeros(512, width), torch.zeros(1 << 16)
    add_rows_kernel[(rows,)](x, index, of_rows, width)
    check(of_rows, torch.zeros_like(of_rows).index_add_(0, index, x))
    add_places_kernel[grid](values, at, of_places, block)
    check(of_places, torch.zeros_like(of_places).index_add_(0, at, values))
    taken, sums, out = torch.empty(count), torch.empty_like(lines), torch.empty(count)
    works = {
        "rows added, 4096 x 256": (
            lambda: add_rows_kernel[(rows,)](x, index, of_rows, width),
            lambda: of_rows.index_add_(0, index, x),
        ),
        "elements added, 1M": (
            lambda: add_places_kernel[grid](values, at, of_places, block),
            lambda: of_places.index_add_(0, at, values),
        ),
        "elements gathered, 1M": (
            lambda: gather_kernel[grid](table, at, taken, block),
            lambda: torch.gather(table, 0, at, out=out),
        ),
        "running sums, 1024 x 1024": (
            lambda: running_sum_kernel[(1024,)](lines, sums, 1024),
            lambda: torch.cumsum(lines, 1),
        ),
    }
    for name, (ours, theirs) in works.items():
        show(name, medians({"openmps": ours, "PyTorch": theirs}))
    check(taken, table[at])
    check(sums, torch.cumsum(lines, 1))


def check(found, expected) -> None:
    """What is timed must be right, within the type's rounding."""
    tolerance = {torch.float32: 1e-3}.get(found.dtype, 3e-2)
    error = (found.float() - expected).abs().max().item() / expected.abs().max().item()
    if not error < tolerance:
        raise SystemExit(f"a result is off by {error:.2e} of the largest element")


def launch() -> None:
    """A kernel of one element, compiled long before: what a launch costs, through Triton's own Python and without it."""
    x, y, out = (array(np.ones(1, dtype=np.float32)) for _ in range(3))
    calls = 2000

    def many():
        for _ in range(calls):
            add_kernel[(1,)](x, y, out, 1, BLOCK=16)

    times = medians({"openmps": many})
    show("warm launch", {"openmps": times["openmps"] / calls * 1e3}, "us", 1)


def compile_times() -> None:
    """Our part of compiling: from Triton's IR to a program."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_kernel

    from paddle_custom_device import openmps_native as native

    signature = {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    blocks = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 32}
    signature |= dict.fromkeys(blocks, "constexpr")
    names = matmul_kernel.arg_names
    constants = {(names.index(name),): value for name, value in blocks.items()}
    source = ASTSource(matmul_kernel, signature, constants, {})
    text = compile_kernel(source, target=GPUTarget("mps", "host", 32)).asm["ttirtext"].decode()
    show("compile, product", medians({"openmps": lambda: native.triton_compile(text)}, 1.0))


def main() -> int:
    """Everything, on the host."""
    print("NumPy " + np.__version__ + (f", PyTorch {torch.__version__}" if torch else "; PyTorch is not installed"))
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        # A cache of its own, so that a compile is one.
        triton.knobs.cache.dir = str(pathlib.Path(folder))
        add(random)
        softmax(random)
        matmul(random)
        if torch:
            tutorial_matmul({"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16})
            layer_norm()
            layer_norm_gradient()
            rms_norm()
            attention()
            attention_gradient()
            sorting()
            places()
        launch()
        compile_times()
    return 0


if __name__ == "__main__":
    sys.exit(main())
