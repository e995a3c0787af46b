"""Several devices: tensors on each, copies between them, statistics of each."""


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
