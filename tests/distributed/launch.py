"""Starts a program of this folder on several ranks, as users do."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).parent

#: How many ranks the longer jobs have, one after the other: two, or what `OPENMPS_TEST_RANKS="2 4 8"` says.
RANKS = [int(ranks) for ranks in os.environ.get("OPENMPS_TEST_RANKS", "2").split()]


class Job:
    """A program on several ranks, each of which writes a log of its own."""

    def __init__(self, program: str, *arguments: str, ranks: int = 2, **environment: str):
        self.logs = tempfile.TemporaryDirectory()
        numbers = ",".join(str(rank) for rank in range(ranks))
        command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch", "--devices", numbers]
        command += ["--log_dir", self.logs.name, str(FOLDER / program), *arguments]
        settings = {"OPENMPS_HOST_DEVICES": str(ranks), "OPENMPS_NUM_THREADS": "1", "OPENMPS_COLLECTIVE_TIMEOUT": "60"}
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **settings, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def log(self, rank: int) -> str:
        """What a rank has said so far."""
        path = pathlib.Path(self.logs.name) / f"workerlog.{rank}"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, timeout: float = 240) -> int:
        """The exit status; a job that hangs is ended, and fails."""
        try:
            self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
            raise
        return self.process.returncode

    def wait_for(self, rank: int, text: str, timeout: float = 120):
        """Returns when a rank has said something."""
        end = time.monotonic() + timeout
        while text not in self.log(rank):
            assert time.monotonic() < end and self.process.poll() is None, self.log(rank)[-4000:]
            time.sleep(0.1)


def run(program: str, *arguments: str, ranks: int = 2, **environment: str) -> list[str]:
    """Runs a job that must succeed, and returns what each rank has said."""
    job = Job(program, *arguments, ranks=ranks, **environment)
    status = job.wait()
    said = [job.log(rank) for rank in range(ranks)]
    assert status == 0, f"exit status {status}\n" + "\n".join(text[-4000:] for text in said)
    return said
