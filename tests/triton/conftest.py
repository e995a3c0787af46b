"""What the tests of Triton's backend share."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Kernels compiled by an earlier version must not answer: each test has a cache of its own."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    np.random.seed(7)


@pytest.fixture
def script(program, tmp_path):
    """Runs a program of kernels, which Triton reads from a file, and returns what it printed."""

    def run(text: str, **environment: str) -> str:
        path = tmp_path / "kernels.py"
        path.write_text(text)
        return program(f"import runpy; runpy.run_path({str(path)!r})", **environment)

    return run
