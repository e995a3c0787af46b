"""Kernels as threads of a GPU execute them, on the emulated Metal device: registers, what several threads hold, what one overwrites that others read."""

import pytest

HEAD = """
import numpy as np
import triton
import triton.language as tl

from openmps.triton import array

"""

KERNELS = {
    "a row that is stored for each row": '''
@triton.jit
def kernel(x, out):
    r = tl.arange(0, 16)
    c = tl.arange(0, 16)
    v = tl.load(x + c) * 2
    tl.store(out + r[:, None] * 16 + c[None, :], v[None, :] + r[:, None])


x, out = np.arange(16, dtype="int32"), np.zeros((16, 16), "int32")
kernel[(1,)](array(x), array(out))
np.testing.assert_array_equal(out, 2 * x[None] + np.arange(16)[:, None])
''',
    "pointers of a row that a loop carries": '''
@triton.jit
def kernel(x, out, n):
    r = tl.arange(0, 16)
    c = tl.arange(0, 16)
    p = x + c
    total = tl.zeros([16, 16], tl.float32)
    for _ in range(n):
        total += tl.load(p[None, :] + r[:, None] * 16)
        p += 256
    tl.store(out + r[:, None] * 16 + c[None, :], total)


x, out = np.arange(768, dtype="float32").reshape(3, 16, 16), np.zeros((16, 16), "float32")
kernel[(1,)](array(x), array(out), 3)
np.testing.assert_array_equal(out, x.sum(0))
''',
    "the one element of a tile that a loop carries": '''
@triton.jit
def kernel(out, n):
    t = tl.full([1], 5, tl.int32)
    s = 0
    for _ in range(n):
        s = t.item()
        t = t + 1
    tl.store(out, s)


out = np.zeros(1, "int32")
kernel[(1,)](array(out), 3)
assert out[0] == 7
''',
    "a number that is stored to where it was loaded": '''
@triton.jit
def kernel(p, q):
    x = tl.load(p)
    tl.store(p, x + 1)
    tl.store(q + tl.arange(0, 256), x)


p, q = np.array([5], "int32"), np.zeros(256, "int32")
kernel[(1,)](array(p), array(q))
np.testing.assert_array_equal(q, [5] * 256)
assert p[0] == 6
''',
    "a number in a loop": '''
@triton.jit
def kernel(p, q, n):
    for i in range(n):
        x = tl.load(p)
        tl.store(q + i * 256 + tl.arange(0, 256), x)
        tl.store(p, x + 1)


p, q = np.array([5], "int32"), np.zeros((4, 256), "int32")
kernel[(1,)](array(p), array(q), 4)
np.testing.assert_array_equal(q, np.repeat([[5], [6], [7], [8]], 256, 1))
assert p[0] == 9
''',
    "a flag that a branch takes back": '''
@triton.jit
def kernel(p, q, x):
    a = 0.0
    if tl.load(p) > 0:
        tl.store(p, 0)
        a = tl.sum(tl.load(x + tl.arange(0, 1024)), 0)
    tl.store(q, a)


p, q = np.array([5], "int32"), np.zeros(1, "float32")
kernel[(1,)](array(p), array(q), array(np.ones(1024, "float32")))
assert q[0] == 1024 and p[0] == 0
''',
    "a tile of fewer elements than threads": '''
@triton.jit
def kernel(p, q):
    i = tl.arange(0, 16)
    x = tl.load(p + i)
    tl.store(p + i, x + 1)
    y = tl.reshape(x, (16, 1)) + tl.reshape(x, (1, 16))
    tl.store(q + i[:, None] * 16 + i[None, :], y)


p, q, i = np.arange(16, dtype="int32"), np.zeros((16, 16), "int32"), np.arange(16)
kernel[(1,)](array(p), array(q))
np.testing.assert_array_equal(q, i[:, None] + i)
np.testing.assert_array_equal(p, i + 1)
''',
    "the negative of a negative number": '''
@triton.jit
def kernel(out):
    x = tl.full([32], -1.5, tl.float32)
    y = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + tl.arange(0, 32), y)


out = np.zeros(32, "float32")
kernel[(1,)](array(out))
np.testing.assert_array_equal(out, [1.5] * 32)
''',
    "largest bytes of 2048 columns with their places": '''
@triton.jit
def kernel(x, v, at):
    i = tl.arange(0, 2048)
    t = tl.load(x + tl.arange(0, 2)[:, None] * 2048 + i[None, :])
    a, b = tl.max(t, 0, return_indices=True)
    tl.store(v + i, a)
    tl.store(at + i, b)


x = np.random.default_rng(0).integers(-100, 100, (2, 2048)).astype("int8")
v, at = np.zeros(2048, "int8"), np.zeros(2048, "int32")
kernel[(1,)](array(x), array(v), array(at))
np.testing.assert_array_equal(v, x.max(0))
np.testing.assert_array_equal(at, x.argmax(0))
''',
}


@pytest.mark.parametrize("name", KERNELS)
def test_as_on_the_host(script, name):
    for device in ("host", "metal-emulated"):
        assert script(HEAD + KERNELS[name] + "print('right')\n", OPENMPS_DEVICE=device).strip() == "right"
