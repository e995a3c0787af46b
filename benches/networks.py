"""Saves networks with random weights as Paddle's inference programs and, where ``paddle2onnx`` is installed, as ONNX.

``networks.py FOLDER``; what is there already stays. ``compare.py`` and ``memory.py`` call it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path


def networks() -> dict:
    """Name -> (how it is made, the shape of its input)."""
    from paddle import nn
    from paddle.vision import models

    picture = [None, 3, 224, 224]
    return {
        "resnet50": (models.resnet50, picture),
        "mobilenet_v3_large": (models.mobilenet_v3_large, picture),
        "bert_layer": (lambda: nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu"), [None, None, 768]),
    }


def ensure(folder: Path) -> None:
    """Saves them in a process of its own, in which Paddle is as its users have it."""
    with tempfile.TemporaryDirectory() as without_plugins:
        environment = {**os.environ, "CUSTOM_DEVICE_ROOT": without_plugins}
        done = subprocess.run([sys.executable, "-W", "ignore", __file__, str(folder)], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the networks could not be saved:\n{done.stderr[-2000:]}")


def main() -> None:
    import paddle

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, shape) in networks().items():
        files = [folder / f"{name}{ending}" for ending in (".json", ".pdiparams", ".onnx")]
        if not files[0].exists():
            paddle.seed(0)
            network = make()
            network.eval()
            paddle.jit.save(network, str(folder / name), input_spec=[paddle.static.InputSpec(shape, "float32")])
        if find_spec("paddle2onnx") and not files[2].exists():
            import paddle2onnx

            paddle2onnx.export(*map(str, files), opset_version=17)


if __name__ == "__main__":
    main()
