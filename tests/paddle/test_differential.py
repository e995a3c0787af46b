"""What `cargo xtask differential paddle` covers, and what it lets pass."""

import pathlib
import random
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def differential(program: str, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT / "tests", capture_output=True, text=True, timeout=timeout)


# Of random calls that were never made before one in some thousands still finds something (docs/operators.md lists what is on purpose):
# with one find allowed, a fresh seed that fails has found more than chance does. Its calls are printed.
@pytest.mark.parametrize(("seed", "allowed"), [(1, 0), (random.SystemRandom().randrange(2**32), 1)], ids=["fixed", "fresh"])
def test_random_calls_agree_with_the_cpu_and_none_ends_the_process(seed, allowed):
    program = "from differential.paddle import report_of_first; report = report_of_first(350, {}); print(report.findings, sum(report.kinds.values()))"
    done = differential(program.format(seed))
    assert done.returncode == 0, done.stderr
    print(f"seed {seed}\n{done.stdout}")
    wrong, all_of_them = map(int, done.stdout.splitlines()[-1].split())
    assert all_of_them == 350 and wrong <= allowed


def test_what_was_wrong_once_is_right():
    done = differential("from differential.paddle import repeat_found; raise SystemExit(0 if repeat_found() else 1)")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_at_least_300_functions_are_compared():
    done = differential("from differential.paddle.table import functions; print(len(functions()))")
    assert int(done.stdout) >= 300, done.stderr


def test_the_differences_on_purpose_are_those_of_the_document():
    section = (ROOT / "docs" / "operators.md").read_text().split("## Where we differ from Paddle's CPU, and why")[1].split("\n## ")[0]
    titles = [row.split(" | ")[0].strip("| ") for row in re.findall(r"^\|.*\|$", section, re.M)[2:]]
    done = differential("from differential.paddle.known import DIFFERENCES\nfor known in DIFFERENCES: print(known.title)")
    assert done.stdout.splitlines() == titles, done.stderr
