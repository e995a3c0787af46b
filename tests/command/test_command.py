"""The command `openmps`, as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    assert "device mps is not available" in done.stdout and "CUSTOM_DEVICE_ROOT" in done.stdout


def test_demo_reads_the_poster(tmp_path: Path) -> None:
    done = run("demo", str(POSTER), "--runs", "1", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("海边书店", "New in November", "Song of the Compiler", "PaddlePaddle's CPU", "times faster", "MiB at the peak"):
        assert word in done.stdout, done.stdout
    assert "read the same text" in done.stdout
    with Image.open(tmp_path / "bookshop.openmps.png") as annotated, Image.open(POSTER) as poster:
        assert annotated.size == (2 * poster.width, poster.height)


def test_demo_of_an_empty_page(tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    Image.new("RGB", (320, 200), "white").save(page)
    done = run("demo", str(page), "--runs", "1", "--output", str(tmp_path / "out.png"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lines of text" in done.stdout and (tmp_path / "out.png").exists()


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
