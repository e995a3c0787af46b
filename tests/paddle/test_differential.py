"""Random calls on mps and on Paddle's CPU: a bounded part of `cargo xtask differential paddle`."""

import pathlib
import random
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def differential(program: str, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT / "tests", capture_output=True, text=True, timeout=timeout)


# Two seeds that are always the same, and one that is not: what fails is printed with its seed.
@pytest.mark.parametrize("seed", [1, 2, random.SystemRandom().randrange(2**32)])
def test_random_calls_agree_with_the_cpu(seed):
    done = differential(f"from differential.paddle import run; raise SystemExit(0 if run(8, {seed}) else 1)")
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}\n{done.stderr}"


def test_at_least_300_functions_are_compared():
    done = differential("from differential.paddle.table import functions; print(len(functions()))")
    assert int(done.stdout) >= 300, done.stderr


def test_the_differences_on_purpose_are_those_of_the_document():
    section = (ROOT / "docs" / "operators.md").read_text().split("## Where we differ from Paddle's CPU, and why")[1].split("\n## ")[0]
    titles = [row.split(" | ")[0].strip("| ") for row in re.findall(r"^\|.*\|$", section, re.M)[2:]]
    done = differential("from differential.paddle.known import DIFFERENCES\nfor known in DIFFERENCES: print(known.title)")
    assert done.stdout.splitlines() == titles, done.stderr
