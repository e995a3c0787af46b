"""Kernels that only programs in the legacy form ask for, by names of their own: on device mps as on Paddle's CPU.

Where one is missing there, Paddle runs it on the CPU whatever the fallback is set to, and keeps a copy of its operand that later operators
read when it is out of date.
"""

from __future__ import annotations

import json

import paddle
from paddle.base import core

PROGRAM = """
import json, sys
import numpy as np, paddle
paddle.enable_static()
place = paddle.CPUPlace() if sys.argv[1] == "cpu" else paddle.CustomPlace("mps", 0)
x, y = np.arange(1, 13, dtype="float32").reshape(3, 4) / 4, np.linspace(-2, 2, 4, dtype="float32")
whole = np.array([[7, -7, 3], [2, 0, 5]], "int32")

def written(x, y, n):
    paddle.increment(x[0, 0], 1.0)
    z = paddle.concat([x + 1, x + 2])
    first = paddle.mean(z)
    paddle.assign(z * 3, z)
    return [first, paddle.mean(z), z]

def counted(x, y, n):
    i, end = paddle.zeros([1], "int64"), paddle.full([1], 5, "int64")
    return paddle.static.nn.while_loop(lambda i: i < end, lambda i: [paddle.increment(i)], [i])

def reduced(x, y, n):
    of = [paddle.mean, paddle.max, paddle.min]
    results = [f(x, axis, keepdim=keep) for f in of for axis, keep in ((None, False), (1, True), ([0, 1], False))]
    # Paddle's functions of these names are of programs of the new form alone.
    block = paddle.static.default_main_program().current_block()
    for name in ("sum", "amax", "amin", "all", "any"):
        given = x > 1 if name in ("all", "any") else x
        results.append(block.create_var(dtype=given.dtype, shape=[]))
        attributes = {"reduce_all": True, "keep_dim": False, "dim": [0, 1]}
        block.append_op(type=f"reduce_{name}", inputs={"X": [given]}, outputs={"Out": [results[-1]]}, attrs=attributes)
    for name in ("max", "min"):
        results.append(block.create_var(dtype="float32", shape=[3, 4]))
        block.append_op(type=f"elementwise_{name}", inputs={"X": [x], "Y": [y]}, outputs={"Out": [results[-1]]}, attrs={"axis": -1})
    return results

def compared(x, y, n):
    of = (paddle.equal, paddle.not_equal, paddle.less_than, paddle.less_equal, paddle.greater_equal, paddle.pow)
    return [f(x, y) for f in of] + [n // 2, n % 3]

def moved(x, y, n):
    return [paddle.strided_slice(x, [0, 1], [2, 0], [-4, 4], [-1, 2]), paddle.nn.functional.one_hot(paddle.cast(n < 3, "int32"), 2), *paddle.unique(n, return_counts=True),
            paddle.squeeze(paddle.unsqueeze(x, [0, 2]), [0])]

def frozen(x, y, n):
    return [paddle.static.nn.batch_norm(paddle.reshape(x, [1, 3, 2, 2]), is_test=True, use_global_stats=True)]

results = {}
for case in (written, counted, reduced, compared, moved, frozen):
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        out = case(paddle.static.data("x", [3, 4]), paddle.static.data("y", [4]), paddle.static.data("n", [2, 3], "int32"))
    executor = paddle.static.Executor(place)
    executor.run(start)
    fetched = executor.run(main, feed={"x": x, "y": y, "n": whole}, fetch_list=list(out))
    results[case.__name__] = [(str(value.dtype), value.tolist()) for value in fetched]
print(json.dumps(results))
"""


def test_programs_give_what_they_give_on_the_cpu(program):
    def results(device: str) -> dict:
        return json.loads(program(PROGRAM, device, FLAGS_enable_pir_api="0").splitlines()[-1])

    got, expected = results("mps"), results("cpu")
    for case, wanted in expected.items():
        for (dtype, value), (wanted_dtype, wanted_value) in zip(got[case], wanted, strict=True):
            assert dtype == wanted_dtype, case
            assert paddle.allclose(paddle.to_tensor(value, "float64"), paddle.to_tensor(wanted_value, "float64"), rtol=1e-6), case


def test_no_form_of_legacy_programs_is_missing():
    of_cpu = {name for name, keys in core._get_registered_phi_kernels("function").items() if any("CPU" in key for key in keys)}
    assert {name for name in of_cpu if name.endswith("_raw")} - set(paddle.mps.kernels()) == set()


def test_programs_squeeze_where_they_are():
    assert {"squeeze", "squeeze_grad", "unsqueeze", "unsqueeze_grad"} <= set(paddle.mps.kernels())
