"""`paddle.distributed.launch` on two hosts, two ranks each, over a line with delay and loss: network namespaces, where this machine lets us make them."""

import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from hosts import ADDRESSES, Hosts, missing
from launch import FOLDER

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "no reason")


def test_every_collective_between_hosts(tmp_path):
    with Hosts(delay=0.001, loss=0.01) as hosts:
        jobs = []
        for host, address in enumerate(ADDRESSES):
            command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch", "--nnodes", "2", "--rank", str(host)]
            command += ["--master", f"{ADDRESSES[0]}:8200", "--host", address, "--devices", "0,1", "--log_dir", str(tmp_path / str(host))]
            settings = {"OPENMPS_HOST_DEVICES": "2", "OPENMPS_NUM_THREADS": "1", "OPENMPS_COLLECTIVE_TIMEOUT": "60"}
            jobs.append(hosts.start(host, [*command, str(FOLDER / "collectives.py")], env={**os.environ, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        statuses = [job.wait(240) for job in jobs]
        said = [log.read_text(errors="replace") for log in sorted(tmp_path.glob("*/workerlog.*"))]
        assert statuses == [0, 0], "\n".join(text[-3000:] for text in said)
        assert len(said) == 4 and all("groups passed" in text for text in said)
        assert hosts.lost > 0 and hosts.passed > 10_000, (hosts.passed, hosts.lost)
