"""Several devices: tensors on each, copies between them, statistics of each; how a device is named; its random numbers."""

import numpy as np
import paddle
import pytest


def test_what_is_written_for_cuda_goes_to_mps():
    for current in "cpu", "mps":
        paddle.device.set_device(current)
        x = paddle.to_tensor([1.0, 2.0], place="cpu", stop_gradient=False)
        for moved in (x.cuda(), x.cuda(0), x.cuda(0).cuda(0), x.cuda(device_id=0, blocking=True)):
            assert moved.place == paddle.MPSPlace(0) and not moved.stop_gradient and moved.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="device_id"):
        x.cuda("mps")


def test_two_devices_work_side_by_side(program):
    output = program(
        """
        import numpy as np, paddle
        assert paddle.mps.device_count() == 2, paddle.mps.device_count()
        x = np.arange(12, dtype="float32").reshape(3, 4)
        a = paddle.to_tensor(x, place="mps:0")
        paddle.mps.set_device(1)
        assert paddle.mps.current_device() == 1
        before = paddle.mps.memory_allocated(0)
        b = paddle.to_tensor(x)
        assert b.place == paddle.MPSPlace(1), b.place
        assert paddle.mps.memory_allocated(1) > 0 and paddle.mps.memory_allocated(0) == before
        c = a.to("mps:1")
        assert c.place == paddle.MPSPlace(1)
        assert ((b + c).numpy() == 2 * x).all()
        view = a[1:].to("mps:1")
        assert (view.numpy() == x[1:]).all()
        paddle.mps.set_device(0)
        assert ((a + b.to("mps:0")).numpy() == 2 * x).all()
        paddle.mps.synchronize(0); paddle.mps.synchronize(1)
        print("done")
        """,
        OPENMPS_HOST_DEVICES="2",
    )
    assert output.strip().endswith("done")


def test_a_device_has_a_generator_of_its_own(program):
    output = program(
        """
        import paddle
        paddle.mps.manual_seed(7)
        state = paddle.mps.get_rng_state(1)
        paddle.mps.set_rng_state(state, 1)
        assert paddle.mps.seed() >= 0
        print("done")
        """,
        OPENMPS_HOST_DEVICES="2",
    )
    assert output.strip().endswith("done")


def test_a_device_is_named_in_every_way():
    place = paddle.ones([1], dtype="float32").to("mps").place
    for device in (place, paddle.MPSPlace(), paddle.CustomPlace("mps", 0), 0, np.int64(0), "mps", "mps:0", None):
        paddle.mps.synchronize(device)
        assert paddle.mps.memory_allocated(device) >= 0
    for device in (paddle.CPUPlace(), "cpu", "mps:x", 1.0, True, -1, 9):
        with pytest.raises(ValueError, match=r"no device of type mps|does not exist"):
            paddle.mps.synchronize(device)
    with pytest.raises(ValueError, match="mps:9 does not exist"):
        paddle.MPSPlace(9)


def test_a_device_is_an_object():
    paddle.set_device("mps")
    x = paddle.ones([2])
    for device in (paddle.device("mps"), paddle.device("mps", 0), paddle.device(x.place), paddle.get_default_device()):
        assert (str(device), device.type, device.index) == ("mps:0", "mps", 0)
        assert device._to_place() == x.place
    with paddle.device("cpu"):
        assert paddle.ones([2]).place.is_cpu_place()
        with paddle.device("mps:0"):
            assert paddle.ones([2]).place == x.place
    assert str(paddle.device("cpu")) == "cpu" and paddle.get_device() == "mps:0"
    with pytest.raises(ValueError, match="Unsupported device type: abacus"):
        paddle.device("abacus")


def test_the_names_of_torch_mps():
    assert paddle.mps.current_allocated_memory() == paddle.mps.memory_allocated()
    assert paddle.mps.driver_allocated_memory() >= paddle.mps.current_allocated_memory()


def test_seeds_and_states_that_are_none():
    paddle.mps.manual_seed(-1)
    negative = paddle.rand([4]).numpy()
    paddle.mps.manual_seed(2**64 - 1)
    assert (paddle.rand([4]).numpy() == negative).all()
    with pytest.raises(ValueError, match="more than 64 bits"):
        paddle.mps.manual_seed(2**64)
    with pytest.raises(TypeError, match="expected one of get_rng_state"):
        paddle.mps.set_rng_state(5)


@pytest.mark.parametrize(("dtype", "fewest"), [("float16", 4_000), ("bfloat16", 800)])
def test_half_types_have_all_their_uniform_numbers(dtype, fewest):
    numbers = paddle.rand([200_000], dtype=dtype).astype("float32").numpy()
    assert len(np.unique(numbers)) > fewest and abs(numbers.mean() - 0.5) < 0.005 and numbers.max() < 1
