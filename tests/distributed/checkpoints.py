"""Tensors spread over some ranks, written and read by any number of them: `checkpoints.py save|load FOLDER`."""

import sys

import numpy
import paddle
import paddle.distributed as dist
from paddle.distributed.flex_checkpoint.dcp.sharded_weight import ShardedWeight

SHAPE = [8, 12]
#: Along which axis each tensor is spread when it is written, and when it is read; along none, every rank has all of it.
AXES = {"rows": (0, 1), "columns": (1, 0), "whole": (None, 0), "gathered": (1, None), "same": (0, 0)}

what, folder = sys.argv[1:]
dist.init_parallel_env()
rank, ranks = dist.get_rank(), dist.get_world_size()
state, expected = {}, {}
for index, (name, axes) in enumerate(AXES.items()):
    axis = axes[what == "load"]
    own = [slice(None)] * 2
    if axis is not None:
        part = SHAPE[axis] // ranks
        own[axis] = slice(rank * part, (rank + 1) * part)
    for kind in ("float32", "int64", "bfloat16"):
        value = (numpy.arange(8 * 12) * (index + 3) % 251).reshape(SHAPE)[tuple(own)]
        key = f"{name} {kind}"
        expected[key] = value
        tensor = paddle.to_tensor(value.astype("float32") * (what == "save")).astype(kind)
        offset = [part.start or 0 for part in own]
        state[key] = ShardedWeight(key, tensor, tuple(value.shape), tuple(SHAPE), tuple(offset))
if what == "save":
    dist.save_state_dict(state, folder)
else:
    dist.load_state_dict(state, folder)
    for key, part in state.items():
        found = part.local_tensor.astype("float32").numpy()
        assert numpy.array_equal(found, expected[key]), f"{key}: {found}"
print("passed", flush=True)
