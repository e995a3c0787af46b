"""Devices: found, chosen, described; the functions and examples of the seeds."""

import paddle
import pytest


def test_paddle_has_the_device():
    assert paddle.is_compiled_with_mps() and paddle.mps.is_available()
    assert "mps" in paddle.device.get_all_custom_device_type()
    assert paddle.mps.device_count() >= 1
    assert paddle.mps.unavailable_reason() is None


def test_a_device_is_set_and_asked_for():
    paddle.mps.set_device("mps:0")
    assert paddle.mps.current_device() == 0
    assert paddle.device.get_device() == "mps:0"
    assert paddle.zeros([1]).place == paddle.MPSPlace(0)
    paddle.device.set_device("cpu")
    assert paddle.mps.current_device() == 0


@pytest.mark.parametrize("device", [0, "mps", "mps:0", None])
def test_every_spelling_of_a_device_is_taken(device):
    assert paddle.mps.get_device_properties(device).total_memory > 0


def test_a_place_is_taken():
    assert paddle.mps.get_device_name(paddle.MPSPlace(0)) == paddle.mps.get_device_name()


@pytest.mark.parametrize("device", [99, -1, "gpu:0", "mps:x", "mps:99", True, 1.5])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(ValueError, match="mps"):
        paddle.mps.set_device(device)


def test_properties_describe_the_machine():
    properties = paddle.mps.get_device_properties()
    assert properties.name == paddle.mps.get_device_name() != ""
    assert properties.backend in ("host", "metal", "cuda")
    assert properties.cores >= 1 and properties.threads >= 1
    assert properties.total_memory > 64 << 20
    assert properties.unified_memory in (True, False)


@pytest.mark.parametrize("place", ["mps", "mps:0", "custom"])
def test_creation_functions_take_a_place(place):
    place = paddle.CustomPlace("mps", 0) if place == "custom" else place
    paddle.device.set_device("cpu")
    makers = {
        "ones": lambda: paddle.ones([2, 3], dtype="float32", place=place),
        "zeros": lambda: paddle.zeros([2, 3], place=place),
        "full": lambda: paddle.full([2, 3], 4.0, place=place),
        "empty": lambda: paddle.empty([2, 3], place=place),
        "to_tensor": lambda: paddle.to_tensor([1.0, 2.0, 3.0], place=place),
        "ones_like": lambda: paddle.ones_like(paddle.zeros([2]), place=place),
    }
    for name, make in makers.items():
        tensor = make()
        assert tensor.place.is_custom_place() and tensor.place.custom_device_type() == "mps", name
    assert paddle.device.get_device() == "cpu", "a place is for one call only"
    assert paddle.ones([2]).place.is_cpu_place()


def test_place_and_device_exclude_each_other():
    with pytest.raises(TypeError, match="place"):
        paddle.ones([2], place="mps", device="cpu")


def test_tensors_move_between_devices():
    x = paddle.to_tensor([[1.0, -2.0], [3.5, 4.0]], place="cpu")
    there = x.to("mps")
    assert there.place.is_custom_place()
    assert there.cpu().place.is_cpu_place()
    assert (there.numpy() == x.numpy()).all()


def test_the_kernels_are_listed():
    kernels = paddle.mps.kernels()
    assert "float32" in kernels["full"] and "complex128" in kernels["contiguous"]
