"""Memory: what is counted, limited and given back."""

import gc

import numpy as np
import paddle
import pytest

MIB = 1 << 20


@pytest.fixture(autouse=True)
def quiet():
    gc.collect()
    paddle.mps.empty_cache()
    yield
    gc.collect()
    paddle.mps.empty_cache()


def test_allocated_follows_the_tensors():
    before = paddle.mps.memory_allocated()
    x = paddle.empty([MIB], dtype="float32")
    assert paddle.mps.memory_allocated() - before >= 4 * MIB
    del x
    assert paddle.mps.memory_allocated() == before


def test_reserved_covers_allocated():
    x = paddle.empty([MIB], dtype="float32")
    assert paddle.mps.memory_reserved() >= paddle.mps.memory_allocated() > 0
    del x
    held = paddle.mps.memory_reserved()
    paddle.mps.empty_cache()
    assert paddle.mps.memory_reserved() <= held


def test_peaks_stay_until_they_are_reset():
    paddle.mps.reset_max_memory_allocated()
    paddle.mps.reset_max_memory_reserved()
    x = paddle.empty([2 * MIB], dtype="float32")
    during = paddle.mps.memory_allocated()
    del x
    assert paddle.mps.max_memory_allocated() >= during > paddle.mps.memory_allocated()
    assert paddle.mps.max_memory_reserved() >= during
    paddle.mps.reset_max_memory_allocated()
    assert paddle.mps.max_memory_allocated() < during


def test_statistics_name_everything():
    stats = paddle.mps.memory_stats()
    for key in ("allocated", "reserved", "cached", "peak_allocated", "allocation_count", "cache_hits", "limit", "paddle.allocated"):
        assert stats[key] >= 0, key


def test_a_fraction_limits_the_memory():
    recommended = paddle.mps.recommended_max_memory()
    assert recommended > 0
    try:
        used = paddle.mps.memory_reserved()
        paddle.mps.set_per_process_memory_fraction((used + 64 * MIB) / recommended)
        small = paddle.full([MIB], 1.0)
        with pytest.raises(MemoryError, match="(?i)out of memory"):
            paddle.full([256 * MIB], 1.0)
        assert (small.numpy() == 1).all(), "an error leaves everything as it was"
    finally:
        paddle.mps.set_per_process_memory_fraction(1.0)
    assert paddle.full([64], 2.0).numpy()[0] == 2


@pytest.mark.parametrize("fraction", [-0.1, 2.5, "1", True, None])
def test_a_fraction_is_a_number(fraction):
    with pytest.raises(ValueError, match="fraction"):
        paddle.mps.set_per_process_memory_fraction(fraction)


def test_sizes_of_every_kind_survive_the_way():
    for size in (0, 1, 3, 63, 64, 65, 4097):
        array = np.random.rand(size).astype("float32")
        assert (paddle.to_tensor(array).numpy() == array).all()
