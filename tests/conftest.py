"""What all Python tests share. Runs before anything imports a framework."""

import os
import subprocess
import sys
import textwrap

import pytest

# A missing kernel must be an error: with Paddle's default it would be computed on the CPU, and a test of ours would pass for nothing.
os.environ["FLAGS_enable_api_kernel_fallback"] = "0"
# Paddle logs how it loads plug-ins.
os.environ.setdefault("GLOG_minloglevel", "1")


def run_program(program: str, *arguments: str, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess:
    """Runs a Python program in a process of its own, with these additions to the environment."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture
def program():
    """Runs a Python program that must succeed, and returns what it printed."""

    def run(text: str, *arguments: str, **environment: str) -> str:
        done = run_program(text, *arguments, **environment)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def failing_program():
    """Runs a Python program that may fail, and returns the finished process."""
    return run_program
