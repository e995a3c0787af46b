"""What `cargo xtask differential paddle` covers, and what it lets pass."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def differential(program: str, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT / "tests", capture_output=True, text=True, timeout=timeout)


def test_at_least_300_functions_are_compared():
    done = differential("from differential.paddle.table import functions; print(len(functions()))")
    assert int(done.stdout) >= 300, done.stderr


def test_the_differences_on_purpose_are_those_of_the_document():
    section = (ROOT / "docs" / "operators.md").read_text().split("## Where we differ from Paddle's CPU, and why")[1].split("\n## ")[0]
    titles = [row.split(" | ")[0].strip("| ") for row in re.findall(r"^\|.*\|$", section, re.M)[2:]]
    done = differential("from differential.paddle.known import DIFFERENCES\nfor known in DIFFERENCES: print(known.title)")
    assert done.stdout.splitlines() == titles, done.stderr
