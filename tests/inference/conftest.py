"""The tests of ``openmps.inference``: programs that Paddle saved, on our executor, against Paddle's CPU kernels."""

from pathlib import Path

import pytest
from networks import NETWORKS, VISION, save


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> Path:
    """A folder with all networks in the new representation."""
    folder = tmp_path_factory.mktemp("pir")
    save(folder, [*NETWORKS, *VISION])
    return folder


@pytest.fixture(scope="session")
def legacy_programs(tmp_path_factory) -> Path:
    """A folder with those networks in the legacy form that this Paddle can still save so."""
    folder = tmp_path_factory.mktemp("legacy")
    save(folder, VISION, FLAGS_enable_pir_api="0")
    return folder
