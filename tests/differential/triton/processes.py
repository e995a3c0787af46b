"""The two processes that run a kernel, ours and the interpreter's, with a time limit; one that ended is started anew."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[2]


class Worker:
    """One process of `worker.py`."""

    def __init__(self, folder: Path, **environment: str):
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), os.environ.get("PYTHONPATH")))),
            "TRITON_CACHE_DIR": str(folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        self.messages = (folder / f"messages_{len(environment)}.txt").open("wb+")
        self.process: subprocess.Popen | None = None

    def ask(self, path: Path) -> None:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-W", "ignore", "-m", "differential.triton.worker"]
            self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages)
        self.process.stdin.write(f"{path}\n".encode())
        self.process.stdin.flush()

    def answer(self, seconds: float):
        """(outcome, what): "ran", "refused", "panicked", "crashed" or "hung"."""
        until, packed = time.monotonic() + seconds, b""
        while len(packed) < 8 or len(packed) < 8 + struct.unpack("<Q", packed[:8])[0]:
            if not select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                self.end()
                return "hung", f"no answer within {seconds:.0f} s"
            read = os.read(self.process.stdout.fileno(), 1 << 20)
            if not read:
                status = self.process.wait()
                self.end()
                return "crashed", signal.Signals(-status).name if status < 0 else f"exit status {status}\n{self.said()}"
            packed += read
        return pickle.loads(packed[8:])

    def said(self) -> str:
        """The end of what it wrote to stderr."""
        self.messages.seek(0)
        return self.messages.read()[-2000:].decode(errors="replace")

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None
