"""Trains the transformer on several ranks, each step of which is kept in a folder: `resumable.py FOLDER`. In its first life the last rank is killed
in the middle of training; a later life goes on from what is there."""

import os
import pathlib
import signal
import sys

import paddle
import paddle.distributed as dist
from paddle import nn
from parallel_networks import Transformer
from training import adam, part

#: The step in which the first life ends, and after how many steps each checkpoint comes.
KILLED, INTERVAL = 8, 3

# The launcher ends the other ranks when one has died: these report first.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(sys.argv[1])
dist.init_parallel_env()
rank, ranks = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(*Transformer.layers())
optimizer = adam(Transformer, model)
first = 0
if (folder / "latest").exists():
    latest = (folder / "latest").read_text()
    model.set_state_dict(paddle.load(str(folder / f"{latest}.model")))
    optimizer.set_state_dict(paddle.load(str(folder / f"{latest}.optimizer")))
    first = int(latest)
parallel = paddle.DataParallel(model)
for number, (inputs, labels) in enumerate(Transformer.batches()):
    if number < first:
        continue
    if number == KILLED and first == 0 and rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss = Transformer.loss(parallel(part(inputs, rank, ranks)), part(labels, rank, ranks))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    dist.all_reduce(loss)
    with (folder / f"losses.{rank}").open("a") as file:
        print(number, float(loss) / ranks, file=file)
    if rank == 0 and (number + 1) % INTERVAL == 0:
        paddle.save(model.state_dict(), str(folder / f"{number + 1}.model"))
        paddle.save(optimizer.state_dict(), str(folder / f"{number + 1}.optimizer"))
        # The name is there when what it names is whole.
        (folder / "writing").write_text(str(number + 1))
        (folder / "writing").rename(folder / "latest")
