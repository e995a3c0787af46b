"""What `cargo xtask differential paddle` covers, and what it lets pass."""

import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def differential(program: str, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT / "tests", capture_output=True, text=True, timeout=timeout)


def first(cases: str, seed: int) -> tuple[int, int]:
    """How many of the first random calls of a seed are wrong, and how many there were."""
    done = differential(f"from differential.paddle import report_of_first, ROWS; report = report_of_first({cases}, {seed}); print(report.findings, sum(report.kinds.values()))")
    assert done.returncode == 0, done.stderr
    print(f"seed {seed}\n{done.stdout}")
    wrong, all_of_them = done.stdout.splitlines()[-1].split()
    return int(wrong), int(all_of_them)


def test_a_random_call_of_every_row_agrees_with_the_cpu_and_none_ends_the_process():
    wrong, all_of_them = first("len(ROWS)", 1)
    assert wrong == 0 and all_of_them > 600


# Of random calls that were never made before one in some thousands still finds something (docs/operators.md lists what is on purpose):
# with one find allowed, a fresh seed that fails has found more than chance does. Its calls are printed.
def test_fresh_random_calls_agree_with_the_cpu():
    wrong, all_of_them = first("350", random.SystemRandom().randrange(2**32))
    assert wrong <= 1 and all_of_them == 350


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
