"""The command `openmps`, as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

IMAGES = Path(__file__).resolve().parents[2] / "examples" / "images"
POSTER = IMAGES / "bookshop.png"


def run(*arguments: str, folder: Path | None = None, program: str = "import sys; from openmps.cli import main; sys.exit(main())", **environment: str):
    """The command in a process and a terminal of 120 columns of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "utf8", "-c", program, *arguments],
        env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
    )


def test_info() -> None:
    done = run("info")
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("openmps", "paddlepaddle", "3.3.1", "mps:0", "kernels of PaddlePaddle"):
        assert word in done.stdout


def test_info_says_why_there_is_no_device(tmp_path: Path) -> None:
    done = run(
        "info",
        program=f"import os; os.environ['CUSTOM_DEVICE_ROOT'] = {str(tmp_path)!r}\nfrom openmps.cli import main; raise SystemExit(main())",
    )
    assert done.returncode == 1
    assert "PaddlePaddle has no device mps" in done.stdout and "CUSTOM_DEVICE_ROOT" in done.stdout


def test_demo_reads_the_poster(tmp_path: Path) -> None:
    done = run("demo", str(POSTER), "--runs", "1", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("海边书店", "New in November", "Song of the Compiler", "PaddlePaddle's CPU", "times faster", "MiB at the peak"):
        assert word in done.stdout, done.stdout
    assert "read the same text" in done.stdout
    with Image.open(tmp_path / "bookshop.openmps.png") as annotated, Image.open(POSTER) as poster:
        assert annotated.size == (2 * poster.width, poster.height)


def test_demo_without_paddle(tmp_path: Path) -> None:
    """The same text where Paddle is not installed, without the columns of its CPU."""
    program = """
        import importlib.util, sys
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "paddle" else found(name, *rest)
        class Nowhere:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "paddle":
                    raise ModuleNotFoundError("No module named 'paddle'", name="paddle")
        sys.meta_path.insert(0, Nowhere())
        from openmps.cli import main
        raise SystemExit(main())
    """
    done = run("demo", str(POSTER), "--runs", "1", folder=tmp_path, program=textwrap.dedent(program))
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("海边书店", "New in November", "Song of the Compiler", "MiB at the peak"):
        assert word in done.stdout, done.stdout
    assert "PaddlePaddle's CPU" not in done.stdout
    done = run("demo", str(POSTER), "--device", "cpu", folder=tmp_path, program=textwrap.dedent(program))
    assert done.returncode == 1 and "PaddlePaddle's, which is not installed" in done.stderr


def test_demo_of_an_empty_page(tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    Image.new("RGB", (320, 200), "white").save(page)
    done = run("demo", str(page), "--runs", "1", "--output", str(tmp_path / "out.png"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lines of text in page.png" in " ".join(done.stdout.split()) and (tmp_path / "out.png").exists()


def test_demo_without_its_packages() -> None:
    """Nothing but the demo needs rapidocr_paddle, and the demo says what to install."""
    done = run(
        "demo", str(POSTER), program="import sys; sys.modules['rapidocr_paddle'] = None\nfrom openmps.cli import main; sys.exit(main())"
    )
    assert done.returncode == 1
    assert "pip install 'openmps[ocr]'" in done.stderr and "Traceback" not in done.stderr


def test_a_device_that_does_not_exist() -> None:
    done = run("demo", str(POSTER), "--device", "mps:7")
    assert done.returncode == 2 and "device mps:7 does not exist" in done.stderr.splitlines()[-1]


def test_a_wrong_setting_is_in_the_info() -> None:
    unknown = "OPENMPS_" + "NUM_THREAD"  # in one word the test of the table would miss it there
    done = run("info", OPENMPS_DEVICE="gpu", **{unknown: "2"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert 'OPENMPS_DEVICE="gpu" is not allowed: host, cuda, metal, metal-emulated' in done.stdout
    assert f"{unknown} is no setting and changes nothing; the nearest is OPENMPS_NUM_THREADS" in done.stdout
    assert "device mps is not available: no device: OPENMPS_DEVICE" in done.stdout
    listed = run("info", "--settings", OPENMPS_HOST_DEVICES="2")
    assert listed.returncode == 0 and "OPENMPS_MEMORY_LIMIT" in listed.stdout and "OPENMPS_HOST_DEVICES" in listed.stdout


def test_bench_has_a_kernel_for_each_operator() -> None:
    done = run("bench", "--seconds", "0.01")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "matmul 1024x1024" in done.stdout and "no kernel" not in done.stdout, done.stdout


def saved_program(folder: Path) -> Path:
    """A small program with its parameters."""
    text = """
        import sys, paddle
        model = paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), paddle.nn.ReLU())
        model.eval()
        paddle.jit.save(model, sys.argv[1], input_spec=[paddle.static.InputSpec([None, 3, None, None], "float32", "x")])
    """
    done = run(str(folder / "net"), program=textwrap.dedent(text))
    assert done.returncode == 0, done.stderr
    return folder / "net.json"


def test_inspect_run_and_profile(tmp_path: Path) -> None:
    model = saved_program(tmp_path)
    done = run("inspect", str(model))
    assert done.returncode == 0, done.stderr
    for word in ("conv2d", "relu", "? x 3 x ? x ?", "float32"):
        assert word in done.stdout, done.stdout

    done = run("inspect", str(model), "--shape", "1x3x16x16")
    assert done.returncode == 0, done.stderr
    for word in ("operations became 1 steps", "bias, relu", "memory in MiB"):
        assert word in done.stdout, done.stdout

    np.save(tmp_path / "x.npy", np.ones((2, 3, 8, 9), np.float32))
    done = run("run", str(model), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz"))
    assert done.returncode == 0 and "2 x 4 x 6 x 7" in done.stdout, done.stdout + done.stderr
    (result,) = np.load(tmp_path / "y.npz").values()
    assert result.shape == (2, 4, 6, 7) and (result >= 0).all()

    done = run("profile", str(model), "--shape", "1x3x16x16", "--runs", "2", "--trace", str(tmp_path / "trace.json"))
    assert done.returncode == 0, done.stderr
    for word in ("convolution + bias + relu", "GB/s (copy)", "GFLOP/s (multiply-add", "first run"):
        assert word in done.stdout, done.stdout
    assert (tmp_path / "trace.json").stat().st_size > 0


@pytest.mark.skipif(sys.platform != "linux", reason="GPUs are emulated on Linux only")
def test_profile_adds_up_what_kernels_do(tmp_path: Path) -> None:
    model, counts = saved_program(tmp_path), tmp_path / "counts.md"
    arguments = ("profile", str(model), "--shape", "1x3x16x16", "--runs", "2", "--counters", str(counts))
    done = run(*arguments, OPENMPS_DEVICE="metal-emulated")
    assert done.returncode == 0, done.stderr
    lines = counts.read_text().splitlines()
    assert lines[0].startswith("| kernel | threadgroups | device MB") and len(lines) > 2
    kernel = lines[2].split("|")[1].strip()
    assert "counted by the emulator" in done.stdout and kernel[:12] in done.stdout, done.stdout
    assert "nothing ran on Apple hardware" in done.stdout.replace("\n", " ")
    done = run(*arguments)
    assert done.returncode == 0 and "Nothing was counted" in done.stdout, done.stdout + done.stderr


def test_programs_that_are_wrong_are_one_line(tmp_path: Path) -> None:
    model = saved_program(tmp_path)
    np.save(tmp_path / "x.npy", np.ones((2, 4, 8, 8), np.float32))
    (tmp_path / "text.json").write_text("{}")
    wrong = [
        (("inspect", str(tmp_path / "nothing.json")), "does not exist"),
        (("inspect", str(tmp_path / "text.json")), "base_code.magic"),
        (("run", str(model)), "1 inputs"),
        (("run", str(model), "--input", str(tmp_path / "x.npy")), "its shape is"),
        (("run", str(model), "--input", str(tmp_path / "net.json")), "holds no array"),
        (("profile", str(model)), "one --shape each: x ?x3x?x?"),
        (("profile", str(model), "--shape", "1xa"), "is no shape"),
    ]
    for arguments, expected in wrong:
        done = run(*arguments)
        assert done.returncode == 2 and expected in done.stderr and len(done.stderr.splitlines()) == 1, (arguments, done.stderr)


def test_the_device_is_there_whichever_is_imported_first():
    told = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", "from openmps.paddle import mps; import paddle; assert paddle.mps is mps"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr


def test_info_without_paddle() -> None:
    done = run("info", program="import sys; sys.modules['paddle'] = None\nfrom openmps.cli import main; raise SystemExit(main())")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mps:0" in done.stdout and "PaddlePaddle cannot be imported" in done.stdout


def test_a_network_without_weights(tmp_path: Path) -> None:
    program = """
        import sys, paddle
        paddle.jit.save(paddle.nn.ReLU(), sys.argv[1], input_spec=[paddle.static.InputSpec([None, 2])])
    """
    run(str(tmp_path / "relu"), program=textwrap.dedent(program))
    for model in (tmp_path / "relu.json", tmp_path):
        done = run("inspect", str(model), "--shape", "3x2")
        assert done.returncode == 0 and "relu" in done.stdout, done.stdout + done.stderr
    done = run("inspect", str(tmp_path / "relu.json"), "--shape", "99999999x99999999")
    assert done.returncode == 2 and "inputs of 99999999x99999999 cannot be made" in done.stderr
