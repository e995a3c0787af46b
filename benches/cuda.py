"""Kernels on an NVIDIA GPU: ours (from Triton's IR, through CUDA C++), Triton's own backend and PyTorch, in one run.

    python benches/cuda.py write FOLDER      where Triton 3.9 and openmps are: writes the kernels' IR
    OPENMPS_DEVICE=cuda python benches/cuda.py run FOLDER      where the GPU, PyTorch and Triton are: checks and times them

The two steps may be on two machines; the second one needs only the native module of openmps, NumPy, PyTorch and Triton.
"""

from __future__ import annotations

import json
import pathlib
import sys

import triton
import triton.language as tl

import tutorials


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    at, row = tl.arange(0, BLOCK), tl.program_id(0)
    x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def layer_norm_kernel(x_ptr, out_ptr, weight_ptr, bias_ptr, stride, columns, eps, BLOCK: tl.constexpr):
    at, row = tl.arange(0, BLOCK), tl.program_id(0)
    mask = at < columns
    x = tl.load(x_ptr + row * stride + at, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    y = centred * scale * tl.load(weight_ptr + at, mask=mask) + tl.load(bias_ptr + at, mask=mask)
    tl.store(out_ptr + row * stride + at, y, mask=mask)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * stride_am + depth[None, :]
    b = b_ptr + depth[:, None] * stride_bk + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        sums = tl.dot(tl.load(a), tl.load(b), sums, input_precision="ieee")
        a += BLOCK_K
        b += BLOCK_K * stride_bk
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :], sums.to(c_ptr.dtype.element_ty))


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    first, head = tl.program_id(0) * BLOCK_M, tl.program_id(1) * length * HEAD
    rows, keys, columns = first + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    q = tl.load(q_ptr + head + rows[:, None] * HEAD + columns[None, :])
    k, v = k_ptr + head + keys[None, :] * HEAD + columns[:, None], v_ptr + head + keys[:, None] * HEAD + columns[None, :]
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total, weighted = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M, HEAD), tl.float32)
    end = length
    if CAUSAL:
        end = first + BLOCK_M
    for at in range(0, end, BLOCK_N):
        scores = tl.dot(q, tl.load(k)) * scale
        if CAUSAL:
            scores = tl.where(at + keys[None, :] <= rows[:, None], scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        weights, shrunk = tl.exp2(scores - larger[:, None]), tl.exp2(largest - larger)
        total = total * shrunk + tl.sum(weights, axis=1)
        weighted = tl.dot(weights.to(v_ptr.dtype.element_ty), tl.load(v), weighted * shrunk[:, None])
        largest = larger
        k += BLOCK_N * HEAD
        v += BLOCK_N * HEAD
    out = weighted / total[:, None]
    tl.store(out_ptr + head + rows[:, None] * HEAD + columns[None, :], out.to(out_ptr.dtype.element_ty))


def attention(head: int, causal: bool):
    """A row of the table below."""
    constants = {"HEAD": head, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": causal}
    return attention_kernel, ["*fp16"] * 4 + ["i32", "fp32"], constants


def key_gradient(head: int, causal: bool):
    """A row of the table below: gradients by keys and values. Keys stay in registers while queries pass, fewer at once where heads are wide."""
    constants = {"HEAD": head, "BLOCK_M": 4096 // head, "BLOCK_N": 128, "CAUSAL": causal}
    return tutorials.attention_gradient_kernel, ["*fp16"] * 4 + ["*fp32"] * 2 + ["*fp16"] * 2 + ["fp32", "i32"], constants


def query_gradient(head: int, causal: bool):
    """A row of the table below."""
    constants = {"HEAD": head, "BLOCK_M": 128, "BLOCK_N": 64, "CAUSAL": causal}
    return tutorials.attention_query_gradient_kernel, ["*fp16"] * 4 + ["*fp32"] * 2 + ["*fp16", "fp32", "i32"], constants


#: Name, kernel, types of its parameters, constants; sizes are powers of two, so that every stride is divisible by 16.
KERNELS = {
    "add": (add_kernel, ["*fp32", "*fp32", "*fp32", "i32"], {"BLOCK": 1024}),
    "softmax": (softmax_kernel, ["*fp32", "*fp32", "i32", "i32"], {"BLOCK": 4096}),
    "layer_norm": (layer_norm_kernel, ["*fp32"] * 4 + ["i32", "i32", "fp32"], {"BLOCK": 4096}),
    "matmul_f32": (matmul_kernel, ["*fp32"] * 3 + ["i32"] * 6, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 16}),
    "matmul_f16": (matmul_kernel, ["*fp16"] * 3 + ["i32"] * 6, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}),
    "attention_64": attention(64, False),
    "attention_64_causal": attention(64, True),
    "attention_128": attention(128, False),
    "attention_128_causal": attention(128, True),
}
for head in (64, 128):
    KERNELS[f"delta_{head}"] = (tutorials.attention_delta_kernel, ["*fp16", "*fp16", "*fp32"], {"HEAD": head, "BLOCK_M": 64})
    for causal in (False, True):
        name = f"{head}_causal" if causal else f"{head}"
        KERNELS[f"key_gradient_{name}"] = key_gradient(head, causal)
        KERNELS[f"query_gradient_{name}"] = query_gradient(head, causal)


def write(folder: pathlib.Path) -> None:
    """The IR of every kernel as files."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_kernel

    folder.mkdir(parents=True, exist_ok=True)
    for name, (kernel, types, constants) in KERNELS.items():
        names = kernel.arg_names
        signature = dict(zip(names, types + ["constexpr"] * len(constants)))
        divisible = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types) if kind != "fp32"}
        source = ASTSource(kernel, signature, {(names.index(key),): value for key, value in constants.items()}, divisible)
        compiled = compile_kernel(source, target=GPUTarget("mps", "host", 32))
        (folder / f"{name}.ttir").write_bytes(compiled.asm["ttirtext"])


def time_ms(torch, work) -> float:
    """Median of 20 runs, by the GPU's own clock."""
    for _ in range(3):
        work()
    times = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[10]


def logarithms(torch, q, k, scale: float, causal: bool):
    """Of each row of scores the logarithm, to base 2, of the sum of its exponentials; head by head."""
    rows = []
    for queries, keys in zip(q[0].detach().float(), k[0].detach().float(), strict=True):
        scores = queries @ keys.T * scale
        if causal:
            scores += torch.full_like(scores, -float("inf")).triu(1)
        rows.append(torch.logsumexp(scores, 1) * 1.4426950408889634)
    return torch.stack(rows).contiguous()


def run(folder: pathlib.Path) -> None:
    """Checks every kernel against PyTorch in float64, and times it beside its peers."""
    import torch

    from paddle_custom_device import openmps_native as native

    stream = torch.cuda.ExternalStream(native.cuda_stream())
    torch.manual_seed(0)
    n, rows, columns, size = 1 << 28, 16384, 4096, 4096
    x, y = (torch.randn(n, device="cuda") for _ in range(2))
    wide = torch.randn(rows, columns, device="cuda")
    weight, bias = torch.randn(columns, device="cuda"), torch.randn(columns, device="cuda")
    results = {}

    def case(name, grid, arguments, out, reference, peer, tolerance, warps):
        compare(name, [(name, grid, arguments)], [out], lambda: [reference()], peer, tolerance, warps)

    def compare(name, launches, outs, references, peer, tolerance, warps):
        """Kernels one after another, each with its grid and arguments."""
        programs = []
        for kernel, grid, arguments in launches:
            values = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in arguments]
            programs.append((native.triton_compile((folder / f"{kernel}.ttir").read_text()), grid, values))

        def ours():
            for program, grid, values in programs:
                program.launch(grid, values)

        def theirs(kernel, grid, arguments, count):
            function, _, constants = KERNELS[kernel]
            return lambda: function[grid](*arguments, **constants, num_warps=count)

        for out in outs:
            out.fill_(float("nan"))
        torch.cuda.synchronize()
        ours()
        native.synchronize(0)
        error = 0.0
        for out, reference in zip(outs, references(), strict=True):
            error = max(error, ((out.double() - reference).abs().max() / reference.abs().max()).item())
        with torch.cuda.stream(stream):
            times = {
                "ours": time_ms(torch, ours),
                "triton": sum(min(time_ms(torch, theirs(*launch, count)) for count in warps) for launch in launches),
                "torch": time_ms(torch, peer),
            }
        results[name] = {**times, "error": error}
        ratio = times["triton"] / times["ours"], times["torch"] / times["ours"]
        verdict = "ok" if error < tolerance else "WRONG"
        print(
            f"{name:20} ours {times['ours']:8.3f} ms  triton {times['triton']:8.3f} ({ratio[0]:.2f}x)"
            f"  torch {times['torch']:8.3f} ({ratio[1]:.2f}x)  error {error:.1e} {verdict}",
            flush=True,
        )

    out = torch.empty_like(x)
    case("add", (n // 1024, 1, 1), (x, y, out, n), out, lambda: x.double() + y, lambda: torch.add(x, y, out=out), 1e-6, (4, 8))
    out = torch.empty_like(wide)
    case(
        "softmax", (rows, 1, 1), (wide, out, columns, columns), out, lambda: torch.softmax(wide.double(), 1),
        lambda: torch.softmax(wide, 1, out=out), 1e-5, (4, 8, 16),
    )  # fmt: skip
    case(
        "layer_norm", (rows, 1, 1), (wide, out, weight, bias, columns, columns, 1e-5), out,
        lambda: torch.nn.functional.layer_norm(wide.double(), (columns,), weight.double(), bias.double(), 1e-5),
        lambda: torch.nn.functional.layer_norm(wide, (columns,), weight, bias, 1e-5), 1e-5, (4, 8, 16),
    )  # fmt: skip
    for name, dtype, tolerance in (("matmul_f32", torch.float32, 1e-5), ("matmul_f16", torch.float16, 2e-3)):
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        case(
            name, (size // 128, size // 128, 1), (a, b, out, size, size, size, size, size, size), out,
            lambda a=a, b=b: a.double() @ b.double(), lambda a=a, b=b, out=out: torch.matmul(a, b, out=out), tolerance, (4, 8),
        )  # fmt: skip
    for head, causal in ((64, False), (64, True), (128, False), (128, True)):
        heads, length = 32, 4096
        q, k, v = (torch.randn(1, heads, length, head, device="cuda", dtype=torch.float16) for _ in range(3))
        out, scale = torch.empty_like(q), head**-0.5

        def reference(q=q, k=k, v=v, causal=causal):
            return torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal).detach()

        def flash(q=q, k=k, v=v, causal=causal):
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        name = f"attention_{head}" + ("_causal" if causal else "")
        # exp2 wants the scale in powers of two.
        case(name, (length // 64, heads, 1), (q, k, v, out, length, scale * 1.4426950408889634), out, reference, flash, 2e-3, (4, 8))

        leaves = [x.requires_grad_() for x in (q, k, v)]
        result, dout = flash(), torch.randn_like(q)
        dq, dk, dv = (torch.empty_like(q) for _ in range(3))
        delta, sums = torch.empty(heads, length, device="cuda"), logarithms(torch, q, k, scale, causal)
        inputs, kind = (q, k, v, dout, sums, delta), name.removeprefix("attention_")

        def exact(leaves=leaves, dout=dout, causal=causal):
            doubles = [x.detach().double().requires_grad_() for x in leaves]
            out = torch.nn.functional.scaled_dot_product_attention(*doubles, is_causal=causal)
            return torch.autograd.grad(out, doubles, dout.double())

        def backward(result=result, leaves=leaves, dout=dout):
            return torch.autograd.grad(result, leaves, dout, retain_graph=True)

        launches = [
            (f"delta_{head}", (heads * length // 64, 1, 1), (result, dout, delta)),
            (f"key_gradient_{kind}", (length // 128, heads, 1), (*inputs, dk, dv, scale, length)),
            (f"query_gradient_{kind}", (length // 128, heads, 1), (*inputs, dq, scale, length)),
        ]
        compare(f"{name}_gradient", launches, [dq, dk, dv], exact, backward, 4e-3, (4, 8))
    (folder / "cuda.json").write_text(json.dumps(results, indent=2))
    if any(row["error"] > 1e-2 for row in results.values()):
        sys.exit("a result is wrong")


if __name__ == "__main__":
    {"write": write, "run": run}[sys.argv[1]](pathlib.Path(sys.argv[2]))
