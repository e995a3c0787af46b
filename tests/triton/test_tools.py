"""Dumps, the log, and the command `openmps compile`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TTIR = Path(__file__).resolve().parents[2] / "crates" / "tile" / "tests" / "ttir"
COMPILE = "from paddle_custom_device import openmps_native as native; native.triton_compile(open(__import__('sys').argv[1]).read())"


def compile_command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "openmps", "compile", *arguments], capture_output=True, text=True, timeout=300, env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    )


@pytest.mark.parametrize(("language", "says"), [("msl", "kernel void"), ("cuda", "__global__"), ("tile", "tt.load")])
def test_a_kernel_in_each_language(language, says):
    done = compile_command(str(TTIR / "softmax.ttir"), "--to", language)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert "Console" not in done.stdout


def test_threads_of_a_threadgroup():
    texts = [compile_command(str(TTIR / "vector_add.ttir"), "--to", "cuda", "--threads", threads).stdout for threads in ("32", "128")]
    assert "__launch_bounds__(32)" in texts[0] and "__launch_bounds__(128)" in texts[1]


def test_refusals_are_readable(tmp_path):
    missing = compile_command(str(tmp_path / "missing.ttir"))
    assert missing.returncode == 2 and "missing.ttir cannot be read" in missing.stderr
    wrong = tmp_path / "wrong.ttir"
    wrong.write_text((TTIR / "vector_add.ttir").read_text().replace("arith.addf", "arith.addg"))
    done = compile_command(str(wrong))
    assert done.returncode == 2 and "arith.addg: not covered" in done.stderr and ".py:" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
    many = compile_command(str(TTIR / "vector_add.ttir"), "--threads", "4096")
    assert many.returncode == 2 and "4096" in many.stderr and "1024" in many.stderr, many.stderr


def test_a_dump(tmp_path, program):
    folder = tmp_path / "dump"
    program(COMPILE, str(TTIR / "vector_add.ttir"), OPENMPS_DUMP=str(folder))
    assert sorted(path.name for path in folder.iterdir()) == [f"add_kernel.{ending}" for ending in ("cu", "metal", "tile", "ttir")]


def test_stages_in_the_log(tmp_path, failing_program):
    done = failing_program(COMPILE, str(TTIR / "vector_add.ttir"), OPENMPS_LOG="info", OPENMPS_DUMP=str(tmp_path / "dump"))
    assert done.returncode == 0, done.stderr
    stages = [line.split('stage="')[1].split('"')[0] for line in done.stderr.splitlines() if "stage=" in line]
    assert stages == ["read", "verify", "generate", "generate", "generate", "plan"]
    assert 'kernel="add_kernel"' in done.stderr and "microseconds=" in done.stderr
    silent = failing_program(COMPILE, str(TTIR / "vector_add.ttir"))
    assert silent.returncode == 0 and "stage=" not in silent.stderr
    wrong = failing_program(COMPILE, str(TTIR / "vector_add.ttir"), OPENMPS_LOG="a=b=c")
    assert wrong.returncode == 0 and "OPENMPS_LOG" in wrong.stderr
