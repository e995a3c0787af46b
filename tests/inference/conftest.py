"""The tests of ``openmps.inference``: programs that Paddle saved, on our executor, against Paddle's CPU kernels."""

from pathlib import Path

import pytest

from networks import LEGACY, NETWORKS, VISION, save


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> Path:
    """A folder with all networks in the new representation."""
    folder = tmp_path_factory.mktemp("pir")
    save(folder, [*NETWORKS, *VISION])
    return folder


@pytest.fixture(scope="session")
def legacy_programs(tmp_path_factory) -> Path:
    """A folder with programs in the legacy form: the networks that this Paddle can still save so, and programs written down for it."""
    folder = tmp_path_factory.mktemp("legacy")
    save(folder, VISION, FLAGS_enable_pir_api="0")
    save(folder, LEGACY, "save_legacy.py", FLAGS_enable_pir_api="0")
    return folder
