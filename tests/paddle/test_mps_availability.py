"""Is the device there, and does `paddle.mps` answer? The report of the seed, and a test for each line of it.

python tests/paddle/test_mps_availability.py
"""

from __future__ import annotations

import sys

from report import Check, header, parametrize, print_report


def compiled() -> None:
    import paddle

    assert paddle.is_compiled_with_mps() is True


def available() -> None:
    import paddle

    assert paddle.mps.is_available() is True


def device_count() -> None:
    import paddle

    assert paddle.mps.device_count() >= 1


def current_device() -> None:
    import paddle

    paddle.mps.set_device(0)
    assert paddle.mps.current_device() == 0


def properties() -> None:
    import paddle

    assert paddle.mps.get_device_name()
    assert paddle.mps.get_device_properties().total_memory > 0


def creation() -> None:
    """Every way to put a tensor on the device."""
    import paddle

    for tensor in (
        paddle.to_tensor([1.0, 2.0, 3.0], place="mps"),
        paddle.randn([2, 3], dtype="float32", place="mps"),
        paddle.ones([2], dtype="float32").to("mps:0"),
        paddle.zeros([4]),  # the current device
    ):
        assert tensor.place.is_custom_place() and tensor.place.custom_device_type() == "mps"


def round_trip() -> float:
    """CPU to device, device to device and back."""
    import numpy as np
    import paddle

    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    back = paddle.to_tensor(values, place="mps").clone().cpu()
    assert back.place.is_cpu_place()
    return float(np.abs(back.numpy() - values).max())


def memory() -> None:
    import paddle

    before = paddle.mps.memory_allocated()
    tensor = paddle.ones([1 << 20], dtype="float32")
    assert paddle.mps.memory_allocated() >= before + tensor.size * 4
    assert paddle.mps.max_memory_allocated() >= paddle.mps.memory_allocated()
    assert paddle.mps.memory_reserved() >= paddle.mps.memory_allocated()
    del tensor
    paddle.mps.empty_cache()
    assert paddle.mps.memory_allocated() <= before
    paddle.mps.reset_max_memory_allocated()


def synchronize() -> None:
    import paddle

    paddle.mps.synchronize()


SECTIONS = {
    "Device": [
        Check("Compiled with MPS", compiled),
        Check("Available", available),
        Check("Device count", device_count),
        Check("Set and get the current device", current_device),
        Check("Name and properties", properties),
    ],
    "Tensors and memory": [
        Check("Creation", creation),
        Check("Round trip", round_trip),
        Check("Memory statistics and empty_cache", memory),
        Check("Synchronize", synchronize),
    ],
}


@parametrize(SECTIONS)
def test_availability(check: Check) -> None:
    check.run()


def facts() -> None:
    """What the device says about itself."""
    import paddle

    print()
    header("Device Information")
    print(f"MPS compiled: {paddle.is_compiled_with_mps()}")
    print(f"MPS available: {paddle.mps.is_available()}")
    print(f"Device count: {paddle.mps.device_count()}")
    print(f"Current device: {paddle.mps.current_device()}")
    print(f"Device name: {paddle.mps.get_device_name()}")
    print(f"Total memory: {paddle.mps.get_device_properties().total_memory / (1024**3):.2f} GB")


if __name__ == "__main__":
    failed = print_report("MPS Availability Test", SECTIONS)
    facts()
    sys.exit(bool(failed))
