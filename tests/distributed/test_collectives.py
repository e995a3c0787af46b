"""`paddle.distributed` on two ranks of device `mps`, started by `paddle.distributed.launch`."""

import os
import re
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from launch import RANKS, Job, run

#: Four ranks always, since groups need as many.
JOBS = [("auto", 2), ("tcp", 2), ("auto", 4), *(("auto", ranks) for ranks in RANKS if ranks > 4)]


@pytest.mark.parametrize(("transport", "ranks"), JOBS)
def test_every_collective(transport, ranks):
    for said in run("collectives.py", ranks=ranks, OPENMPS_TRANSPORT=transport):
        for part in ("reductions", "movements", "messages", "groups"):
            assert f"{part} passed" in said


@pytest.mark.parametrize(
    "transport, reason",
    [("jaccl", "RDMA over Thunderbolt is not built in"), ("nccl", "it is for NVIDIA's GPUs, and device 0 is Host")],
)
def test_a_transport_that_is_not_there_is_refused(transport, reason):
    job = Job("collectives.py", OPENMPS_TRANSPORT=transport)
    assert job.wait() != 0
    assert f"mps: comm_init_rank: transport {transport}: {reason}" in job.log(0), job.log(0)[-4000:]


def test_a_killed_rank_is_reported():
    job = Job("endless.py")
    job.wait_for(0, "step 20")
    job.wait_for(1, "step 20")
    pid = int(re.search(r"process (\d+)", job.log(1)).group(1))
    os.kill(pid, signal.SIGKILL)
    assert job.wait(60) != 0
    assert re.search(r"OSError: .*mps: all_reduce: rank 1 is gone", job.log(0)), job.log(0)[-4000:]


def test_the_bench_has_a_row_for_each_size():
    command = [sys.executable, "-W", "ignore", "-m", "openmps", "collective", "bench", "--seconds", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    for size in ("4,096", "65,536", "1,048,576", "16,777,216", "67,108,864"):
        assert size in done.stdout, done.stdout
    assert "GB/s in copies" in done.stdout


def test_a_plan_names_the_fastest_algorithm_of_each_size():
    command = [sys.executable, "-W", "ignore", "-m", "openmps", "collective", "plan", "--hosts", "64", "--ranks", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0, done.stderr[-4000:]
    rows = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in done.stdout.splitlines() if line.startswith("│")}
    fastest = {size: cells[-2].strip() for size, cells in rows.items()}
    assert fastest["4,096"] == "doubling" and fastest["67,108,864"] in ("direct", "ring"), done.stdout
