"""Networks trained on two ranks of device `mps` have the losses of one rank, whatever is parallel."""

import os
import subprocess
import sys

import numpy
import pytest

sys.path.insert(0, os.path.dirname(__file__))
from launch import FOLDER, run


def losses(said: str, way: str) -> list[float]:
    lines = [line for line in said.splitlines() if line.startswith(f"{way} losses:")]
    assert lines, said[-4000:]
    return [float(word) for word in lines[0].split()[2:]]


@pytest.fixture(scope="module")
def alone() -> list[float]:
    command = [sys.executable, "-W", "ignore", str(FOLDER / "training.py"), "alone"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    found = losses(done.stdout, "alone")
    assert len(found) == 20 and found[-1] < found[0] / 2, found
    return found


#: One job for each of these: what fleet is told holds for a process.
JOBS = [["data_parallel", "sharding_2", "sharding_3"], ["sharding_1"], ["tensor_parallel"], ["pipeline"]]


@pytest.mark.parametrize("ways", JOBS, ids=lambda ways: "-".join(ways))
def test_losses_are_those_of_one_rank(ways, alone):
    for said in run("training.py", *ways):
        for way in ways:
            numpy.testing.assert_allclose(losses(said, way), alone, rtol=2e-5, err_msg=way)
