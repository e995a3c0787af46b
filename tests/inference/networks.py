"""The networks of these tests, and predictors of them: ours and those of Paddle's CPU."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from openmps import native

# What takes seconds; `cargo xtask architectures` runs all of paddle.vision.models.
VISION = ["mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_25", "googlenet", "resnet18"]
ALL_VISION = [
    "alexnet", "densenet121", "googlenet", "inception_v3", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small",
    "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_swish", "shufflenet_v2_x0_25", "squeezenet1_0", "squeezenet1_1", "vgg11",
    "wide_resnet50_2",
]  # fmt: skip
NETWORKS = ["encoder", "recogniser", "recogniser_gru", "decoder", "detector", "yolo", "yolo_iou", "chooser"]
# Programs of the legacy form with operations that this Paddle no longer saves of a network.
LEGACY = ["formulas", "loop", "lists", "yolo"]

if native.setting("OPENMPS_TEST_ALL_ARCHITECTURES") == "1":
    VISION = ALL_VISION


def save(folder: Path, names: list[str], script: str = "save_models.py", **environment: str) -> None:
    """Saves networks in a process of its own: the form is chosen when Paddle is imported."""
    script = Path(__file__).parent / script
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(folder), *names],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def files(folder: Path, name: str) -> tuple[str, str]:
    """Program and parameters of a network."""
    program = folder / f"{name}.json"
    if not program.exists():
        program = folder / f"{name}.pdmodel"
    return str(program), str(folder / f"{name}.pdiparams")


def feed(name: str, batch: int, height: int, width: int) -> np.ndarray:
    """An input of a network: token numbers with padding at the end, or an image of noise."""
    random = np.random.default_rng(batch * height + width)
    if name == "encoder":
        ids = random.integers(1, 100, (batch, height // 2))
        ids[:, -3:] = 0
        return ids
    if name.startswith("shufflenet"):
        height = width = 64
    return random.standard_normal((batch, 3, height, width)).astype(np.float32)


def results(predictor, data: np.ndarray) -> list[np.ndarray]:
    """What a predictor, ours or Paddle's, makes of an input."""
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    handle.reshape(data.shape)
    handle.copy_from_cpu(data)
    predictor.run()
    return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]


def ours(folder: Path, name: str):
    """A predictor of openmps."""
    from openmps.inference import Config, create_predictor

    return create_predictor(Config(*files(folder, name)))


def on_cpu(folder: Path, name: str):
    """A predictor of Paddle's CPU."""
    import paddle.inference

    config = paddle.inference.Config(*files(folder, name))
    config.disable_gpu()
    config.disable_mkldnn()
    config.disable_glog_info()
    return paddle.inference.create_predictor(config)
