"""Which of the kernels that Paddle's CPU has device mps has, and why the others are missing: docs/paddle-kernels.md.

`UPDATE_DOCUMENTS=1 pytest tests/paddle/test_coverage.py` writes the document again.
"""

import os
import re
from pathlib import Path

from paddle.base import core

DOCUMENT = Path(__file__).parents[2] / "docs" / "paddle-kernels.md"

# Kernels of other things than dense tensors, which the C interface has no kernels for, and of communication, which docs/distributed.md is about.
ELSEWHERE = re.compile(
    r"_(coo|csr|sr)(_|$)|^(coo|csr)_to|^dense_to|sparse|_array$|^array_|_array_|^create_array|^tensor_to_array|^strings_|onednn|^(c|p)_|^partial_|"
    r"^(broadcast|reduce_scatter|recv_v2|send_v2|all_reduce|all_gather|all_to_all|reduce|barrier|global_(gather|scatter)|mp_allreduce_sum)$|_raw$|^multi_gru$|selected_rows"
)

# How Paddle's listing names types, where that is not how its users do.
TYPES = {
    "float": "float32", "double": "float64", "complex<float>": "complex64", "complex<double>": "complex128",
    **{f"{kind}{bits}_t": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}, "int": "int32",
}  # fmt: skip

# Why kernels are missing, the first row whose pattern fits.
REASONS = {
    r"^fused|^fusion|_fc_|self_dp_attention|^fc_|^skip_": "made by passes over inference programs, which our own passes take the place of",
    r"quant": "quantisation of oneDNN",
    r"nms|^box|^yolo|prior_box|anchor|roi|proposals|^bipartite|^psroi|^deformable|correlation": "heads and convolutions of older detectors, not written yet",
    r"^warp|^ctc|^crf|viterbi|edit_distance|beam_search|gather_tree|chunk_eval": "sequences by dynamic programming, not written yet",
    r"^unpool|fractional|^lp_pool|^lrn|antialias|spectral": "images, not written yet",
    r"^random|randint|shuffle_batch|sampler": "random numbers of laws that are not written yet",
    r"^graph_|^weighted_sample": "sampling of graphs, which goes by the host's memory",
    r"^(gru|lstm|gru_unit|attention_lstm|cudnn_lstm|sequence|im2sequence|lod|row_conv|match_matrix|rank_attention|cvm|pyramid_hash|tdm|nce|hierarchical|hash|batch_fc|lookup_table|"
    r"add_position|crop_tensor|expand|flatten2|matmul|top_k|bilinear_interp|nearest_interp|cross_entropy|shuffle_channel|auc|accuracy_check|dgc|dpsgd|ftrl|"
    r"distributed_fused|pow2_decay|range_tensor|trans|coalesce|seed|soft_relu|std|var)": "an older form of a kernel that is there, or a program's operation of older versions",
    r"^(data|depend|fetch|feed|load|save|share_data|shadow|nop|npu_identity|set|assert|print|read_file|decode_jpeg|faster_tokenizer|check_|get_tensor|prod_infer|shape_broadcast|transfer)": "Paddle's own work on the host",
    r"(double|triple|_grad)_grad|_triple|_double|grad_grad|_grad2|_infer": "gradients of gradients, not written yet",
    r"": "not written yet",
}


def element_types(place: str) -> dict[str, set[str]]:
    """Kernel -> the element types that it is registered for on a device."""
    listed = core._get_all_register_op_kernels("phi")
    of_place = re.compile(rf"data_type\[(?:::)?(?:\w+::)*([\w<>]+)\].*Place\({place}")
    found = {name: {match[1] for kernel in kernels if (match := of_place.search(kernel))} for name, kernels in listed.items()}
    return {name: types for name, types in found.items() if types}


def missing_types(cpu: dict[str, set[str]], mps: dict[str, set[str]]) -> list[str]:
    """Rows of element types for which the CPU has kernels and mps, which has them for others, has not; types that lack the same ones are one row."""
    lacking: dict[str, list[str]] = {}
    for name in sorted(cpu.keys() & mps.keys()):
        if not ELSEWHERE.search(name):
            for missing in cpu[name] - mps[name]:
                lacking.setdefault(missing, []).append(f"`{name}`")
    rows: dict[tuple[str, ...], list[str]] = {}
    for missing in sorted(lacking):
        rows.setdefault(tuple(lacking[missing]), []).append(TYPES.get(missing, missing))
    return [f"| {', '.join(types)} | {len(names)} | {', '.join(names)} |" for names, types in sorted(rows.items(), key=lambda row: -len(row[0]))]


def text() -> str:
    cpu, mps = element_types("cpu"), element_types("mps")
    dense = {name for name in cpu if not ELSEWHERE.search(name)}
    missing = sorted(dense - mps.keys())
    more = sorted(f"`{name}`" for name in mps.keys() - cpu.keys() if not ELSEWHERE.search(name))
    reasons: dict[str, list[str]] = {}
    for name in missing:
        reason = next(reason for pattern, reason in REASONS.items() if re.search(pattern, name))
        reasons.setdefault(reason, []).append(f"`{name}`")
    rows = [f"| {reason} | {len(reasons[reason])} | {', '.join(reasons[reason])} |" for reason in REASONS.values() if reason in reasons]
    return "\n".join([
        "# Paddle's kernels",
        "",
        f"Of the {len(dense)} kernels of dense tensors that Paddle's CPU has, forward and backward, device `mps` has {len(dense) - len(missing)}. The others are",
        "computed by Paddle's fallback on the CPU, where `FLAGS_enable_api_kernel_fallback` is on; `paddle.mps.fallback_report()` tells which a program",
        "needed ([training.md](training.md#what-fell-back)).",
        "",
        "This table is made from what is registered with Paddle: `UPDATE_DOCUMENTS=1 pytest tests/paddle/test_coverage.py`.",
        "",
        "| why it is missing | kernels | which |",
        "|---|---|---|",
        *rows,
        "",
        "## Element types",
        "",
        "Kernels that are there, but not for an element type for which the CPU has them, fall back for that type:",
        "",
        "| element type | kernels | which |",
        "|---|---|---|",
        *missing_types(cpu, mps),
        "",
        "## More than the CPU",
        "",
        f"Device `mps` has {len(more)} kernels that Paddle's CPU has not, most of them of language models: {', '.join(more)}.",
        "",
    ])  # fmt: skip


def test_the_document_tells_what_is_missing():
    expected = text()
    if os.environ.get("UPDATE_DOCUMENTS"):
        DOCUMENT.write_text(expected)
    assert DOCUMENT.read_text() == expected, "UPDATE_DOCUMENTS=1 pytest tests/paddle/test_coverage.py writes the document again"
