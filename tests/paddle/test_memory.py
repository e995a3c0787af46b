"""Memory: what is counted, limited and given back."""

import gc
import os
import subprocess
import sys
import threading

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


def test_no_fraction_is_no_limit():
    try:
        paddle.mps.set_per_process_memory_fraction(0)
        assert paddle.full([MIB], 1.0).numpy()[-1] == 1
    finally:
        paddle.mps.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("fraction", [-0.1, 2.5, "1", True, None])
def test_a_fraction_is_a_number(fraction):
    with pytest.raises(ValueError, match="fraction"):
        paddle.mps.set_per_process_memory_fraction(fraction)


def test_sizes_of_every_kind_survive_the_way():
    for size in (0, 1, 3, 63, 64, 65, 4097):
        array = np.random.rand(size).astype("float32")
        assert (paddle.to_tensor(array).numpy() == array).all()


def test_operators_work_after_memory_was_out():
    recommended = paddle.mps.recommended_max_memory()
    x = paddle.ones([512, 512])
    kept = []
    try:
        paddle.mps.set_per_process_memory_fraction((paddle.mps.memory_reserved() + 64 * MIB) / recommended)
        with pytest.raises(MemoryError):
            while True:
                kept.append(paddle.ones([MIB]))
        kept.clear()
        # Paddle keeps what the tensors had; scratch memory of operators comes from the same limit.
        operators = {
            "sum": lambda: x.sum(),
            "softmax": lambda: paddle.nn.functional.softmax(x),
            "sort": lambda: paddle.sort(x.reshape([-1])),
            "matmul": lambda: x @ x,
            "argmax": lambda: x.argmax(),
            "cumsum": lambda: x.cumsum(),
            "all": lambda: (x > 0).all(),
            "layer_norm": lambda: paddle.nn.functional.layer_norm(x, 512),
            "topk": lambda: paddle.topk(x.reshape([-1]), 3),
            "standard deviation": lambda: x.std(),
        }
        failed = {}
        for name, operator in operators.items():
            try:
                operator()
            except (MemoryError, RuntimeError) as error:
                failed[name] = str(error).strip().splitlines()[-1]
        assert not failed
    finally:
        kept.clear()
        paddle.mps.set_per_process_memory_fraction(1.0)


def test_what_ended_threads_allocated_stays_counted():
    made = []
    before = paddle.mps.memory_allocated()

    def make():
        paddle.set_device("mps")
        made.extend(paddle.full([1000], 1.0) for _ in range(50))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    made.clear()
    gc.collect()
    after = paddle.mps.memory_allocated()
    assert 0 <= after <= before
    x = paddle.empty([MIB], dtype="float32")
    assert paddle.mps.memory_allocated() - after >= 4 * MIB
    del x


FORKS = """
import os, sys, threading, time
import paddle
paddle.set_device("mps")
stop = False

def work():
    paddle.set_device("mps")
    while not stop:
        a = paddle.ones([200, 200])
        (a @ a + 1).sum()

threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]
x = paddle.ones([300, 300])
hung = wrong = 0
end = time.time() + 40
for i in range(60):
    if time.time() > end:
        break
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all((x @ x).sum().item() == 300.0**3 for _ in range(3)) else 1)
    limit = time.time() + 15
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.time() > limit:
            hung += 1
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            break
        time.sleep(0.002)
    else:
        wrong += ended[1] != 0
stop = True
[thread.join() for thread in threads]
print(f"{i} forks, {hung} hung, {wrong} wrong")
os._exit(1 if hung or wrong else 0)
"""


@pytest.mark.skipif(os.environ.get("OPENMPS_DEVICE", "host") != "host", reason="a GPU's threads do not follow into a child")
def test_children_compute_while_other_threads_of_the_parent_do():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
