"""`cargo xtask train`: both tasks learn, device `mps` as Paddle's CPU does; the command says what it did."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.progress import Progress

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import train


@pytest.mark.parametrize("name", train.TASKS)
def test_both_devices_learn_the_same(name):
    mps, cpu = train.compare(train.TASKS[name](), 12, Progress(disable=True))
    # Rounding grows from step to step; twelve of them stay this near.
    np.testing.assert_allclose(mps.losses, cpu.losses, rtol=1e-3)
    assert mps.losses[-1] < 0.8 * mps.losses[0]
    assert abs(mps.score - cpu.score) <= 0.02


def test_the_command(tmp_path):
    picture = tmp_path / "losses.png"
    command = [sys.executable, "-W", "ignore", ROOT / "examples" / "train.py", "--only", "digits", "--steps", "6", "--picture", picture]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert all(word in told for word in ("digits", "mps", "cpu", "ms", "losses.png"))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_number_of_steps_that_is_none(capsys):
    with pytest.raises(SystemExit):
        train.main(["--steps", "0"])
    assert "--steps is 0, expected at least 1" in capsys.readouterr().err
