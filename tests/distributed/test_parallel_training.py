"""Networks trained on several ranks of device `mps` have the losses of one rank, whatever is parallel."""

import os
import re
import subprocess
import sys

import numpy
import pytest

sys.path.insert(0, os.path.dirname(__file__))
from launch import FOLDER, RANKS, Job, run


def losses(said: str, told: str) -> list[float]:
    lines = [line for line in said.splitlines() if line.startswith(f"{told} losses:")]
    assert lines, said[-4000:]
    return [float(word) for word in lines[0].split()[2:]]


@pytest.fixture(scope="module")
def alone() -> dict[str, list[float]]:
    """The losses of one rank that sees each batch in so many parts."""
    ways = [f"{network}:alone:{parts}" for network in ("transformer", "resnet") for parts in {1, *RANKS}]
    command = [sys.executable, "-W", "ignore", str(FOLDER / "training.py"), *ways]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    found = {told: losses(done.stdout, told) for told in ways}
    for told, values in found.items():
        assert len(values) == 20 and values[-1] < values[0] / 2, (told, values)
    return found


#: One job for each of these: what fleet is told holds for a process.
JOBS = [
    ["transformer:data_parallel", "transformer:sharding_2", "transformer:sharding_3", "resnet:data_parallel", "resnet:sharding_2", "resnet:sharding_3"],
    ["transformer:sharding_1", "resnet:sharding_1"],
    ["transformer:tensor_parallel"],
    ["transformer:pipeline"],
    ["resnet:pipeline"],
]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("ways", JOBS, ids=lambda ways: ways[0])
def test_losses_are_those_of_one_rank(ways, ranks, alone):
    for said in run("training.py", *ways, ranks=ranks):
        for told in ways:
            network, way = told.split(":")
            parts = 1 if way == "tensor_parallel" else ranks
            numpy.testing.assert_allclose(losses(said, told), alone[f"{network}:alone:{parts}"], rtol=1e-4, err_msg=told)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("program", ["experts.py", "expert_layers.py"])
def test_experts_on_ranks_have_the_losses_of_one_rank(program, ranks):
    assert all("passed" in said for said in run(program, ranks=ranks))


@pytest.mark.parametrize("ranks", RANKS)
def test_batch_norm_over_all_ranks_is_that_of_one_batch(ranks):
    assert all("passed" in said for said in run("sync_norm.py", ranks=ranks))


def test_a_checkpoint_is_read_by_another_number_of_ranks(tmp_path):
    for what, ranks in [("save", 2), ("load", 4), *(("load", ranks) for ranks in RANKS if ranks not in (2, 4))]:
        run("checkpoints.py", what, str(tmp_path), ranks=ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_job_whose_rank_is_killed_goes_on_from_its_checkpoint(ranks, tmp_path, alone):
    job = Job("resumable.py", str(tmp_path), ranks=ranks)
    assert job.wait() != 0
    for rank in range(ranks - 1):
        assert re.search(rf"OSError: .*mps: all_reduce: rank {ranks - 1} (is gone|failed)", job.log(rank)), job.log(rank)[-4000:]
    run("resumable.py", str(tmp_path), ranks=ranks)
    for rank in range(ranks):
        lines = [line.split() for line in (tmp_path / f"losses.{rank}").read_text().splitlines()]
        assert [int(step) for step, _ in lines] == [*range(8), *range(6, 20)]
        # What is done again is the same, bit for bit, and all of it is what one rank has.
        assert lines[6:8] == lines[8:10]
        found = [float(loss) for _, loss in lines[:6] + lines[8:]]
        numpy.testing.assert_allclose(found, alone[f"transformer:alone:{ranks}"], rtol=1e-4)
