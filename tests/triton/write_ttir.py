"""Writes the texts of kernels that the tests and benches in Rust read: `.venv/bin/python tests/triton/write_ttir.py`.

Types and constants are small, so that what becomes of a kernel can be read.
"""

import pathlib
import re
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "triton"), str(ROOT / "benches")]

import cuda
import kernels
import test_order as order
import test_returns as returns
import test_single_elements as single
import test_small_floats as small
import test_tutorials as tutorials

SINGLE, HALF, BYTE = "*fp32", "*fp16", "*u8"

#: By file: the kernel, the types of its parameters, its constants.
KERNELS = {
    "layer_norm": (cuda.layer_norm_kernel, [SINGLE] * 4 + ["i32", "i32", "fp32"], {"BLOCK": 256}),
    "layer_norm_gradient": (
        tutorials.layer_norm_gradient_kernel,
        [SINGLE] * 7 + ["*i32", "i32"],
        {"GROUPS": 2, "BLOCK": 128},
    ),
    "attention": (
        tutorials.attention_kernel,
        [HALF] * 4 + [SINGLE, "fp32", "i32"],
        {"HEAD": 16, "BLOCK_M": 16, "BLOCK_N": 16, "CAUSAL": True},
    ),
    "attention_gradient": (
        tutorials.attention_gradient_kernel,
        [SINGLE] * 9 + ["fp32", "i32"],
        {"HEAD": 16, "BLOCK": 16},
    ),
    "grouped_matmul": (tutorials.grouped_matmul_kernel, ["*i64", "*i32", "i32"], {"PROGRAMS": 2, "BLOCK": 16}),
    # As large as it is, so that the pointers would not fit into threadgroup memory.
    "gathered_product": (
        tutorials.gathered_product_kernel,
        [SINGLE, HALF, HALF, "*i32"],
        {"N": 64, "DEPTH": 128},
    ),
    "persistent_matmul": (
        tutorials.persistent_matmul_kernel,
        [HALF] * 3 + ["i32"] * 3,
        {"PROGRAMS": 2, "BLOCK": 16, "ACTIVATION": True},
    ),
    "block_scaled_matmul": (
        small.block_scaled_kernel,
        [BYTE] * 4 + [SINGLE] + ["i32"] * 3,
        {
            "A_FORM": "e4m3", "B_FORM": "e2m1", "A_PACK": 1, "B_PACK": 2, "GROUP": 32, "SCALE": "e8m0",
            "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 64,
        },
    ),
    # With the blocks that benches/kernels.py takes: crates/host's bench times it.
    "product": (
        kernels.matmul_kernel,
        [SINGLE] * 3 + ["i32"] * 3,
        {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 256},
    ),
    "libdevice": (tutorials.libdevice_kernel, [SINGLE] * 3 + ["i32"], {"BLOCK": 256}),
    "along": (tutorials.along_kernel, [SINGLE] * 2 + ["*i32"], {"N": 16}),
    "in_place": (order.in_place_kernel, [SINGLE], {"N": 16}),
    "flagged": (order.flagged_kernel, [SINGLE, "*i32", "i32"], {"BLOCK": 256}),
    "single_elements": (single.mapping_kernel, ["*i32"] * 3, {"N": 32}),
    "returns": (returns.tile_kernel, [SINGLE] * 2 + ["fp32"], {"BLOCK": 32}),
    "combine": (order.combine_kernel, [SINGLE] * 2 + ["*i32"], {"M": 4, "N": 8, "AXIS": 0, "REVERSE": True}),
}  # fmt: skip


def text_of(kernel, types, constants) -> str:
    names = kernel.arg_names
    signature = dict(zip(names, types)) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()}, {})
    text = triton.compile(source, target=GPUTarget("mps", "host", 32)).asm["ttirtext"].decode()
    # Of a file only its name: where it lies is nobody's business.
    return re.sub(r'"[^"\n]*/([^/"\n]+\.py)"', r'"\1"', text)


if __name__ == "__main__":
    for name, (kernel, types, constants) in KERNELS.items():
        path = ROOT / "crates" / "tile" / "tests" / "ttir" / f"{name}.ttir"
        path.write_text(text_of(kernel, types, constants))
        print(path.relative_to(ROOT), path.stat().st_size)
