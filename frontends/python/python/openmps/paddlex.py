"""PaddleX, and with it PaddleOCR, with ``device="mps"``.

PaddleX 3.7 names the devices that it knows in three places: the parser of ``device``, the options of its runner, and the runner
itself. :func:`install` is called with each of the modules when it was imported, and adds the name; the runner of a model on ``mps`` is
a predictor of :mod:`openmps.inference`. A PaddleX in which these places look different is left as it is.
"""

from __future__ import annotations

DEVICE, OPTIONS, RUNNER = (
    "paddlex.utils.device",
    "paddlex.inference.models.runners.paddle_static.config.pp_option",
    "paddlex.inference.models.runners.paddle_static.runner",
)


def install(module) -> None:
    """Adds the device to one of the three modules."""
    {DEVICE: _parse, OPTIONS: _allow, RUNNER: _run}[module.__name__](module)


def _parse(module) -> None:
    kinds = getattr(module, "SUPPORTED_DEVICE_TYPE", None)
    if isinstance(kinds, list) and "mps" not in kinds:
        kinds.append("mps")


def _allow(module) -> None:
    option = getattr(module, "PaddlePredictorOption", None)
    kinds = getattr(option, "SUPPORT_DEVICE", None)
    if option is not None and isinstance(kinds, tuple) and "mps" not in kinds:
        option.SUPPORT_DEVICE = (*kinds, "mps")


def _run(module) -> None:
    runner, paths = getattr(module, "PaddleStaticRunner", None), getattr(module, "get_model_paths", None)
    create = getattr(runner, "_create", None)
    if runner is None or create is None or paths is None:
        return

    def _create(self):
        if self._config.get("device_type") != "mps":
            return create(self)
        from openmps.inference import Config, create_predictor

        files = paths(self.model_dir, self.model_file_prefix)
        if "paddle" not in files:
            raise RuntimeError(f"{self.model_dir} holds no model of PaddlePaddle")
        config = Config(*files["paddle"])
        config.enable_custom_device("mps", self._config.get("device_id") or 0)
        return create_predictor(config)

    runner._create = _create
