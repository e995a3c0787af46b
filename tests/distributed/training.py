"""Trains a small network on several ranks of device `mps`: `training.py WAY ..`. Each rank prints the losses, which one rank alone has too."""

import sys

import numpy
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed import fleet

STEPS, BATCH, WIDTH = 20, 8, 16


def network():
    """The same weights on every rank."""
    numpy.random.seed(7)
    layers = [nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)]
    for layer in layers[::2]:
        layer.weight.set_value(numpy.random.uniform(-0.3, 0.3, layer.weight.shape).astype("float32"))
        layer.bias.set_value(numpy.zeros(layer.bias.shape, "float32"))
    return layers


def batches():
    random = numpy.random.RandomState(3)
    inputs = random.uniform(-1, 1, [BATCH, WIDTH]).astype("float32")
    for _ in range(STEPS):
        yield inputs, numpy.sin(inputs.sum(1, keepdims=True)).astype("float32")


def own(array):
    """This rank's rows of a batch."""
    rows = BATCH // dist.get_world_size()
    return paddle.to_tensor(array[dist.get_rank() * rows :][:rows])


def train(model, optimizer, share=own):
    """The losses over the whole batch, step by step."""
    losses = []
    for inputs, labels in batches():
        loss = nn.functional.mse_loss(model(share(inputs)), share(labels))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        mean = loss.detach().clone()
        if share is own and dist.get_world_size() > 1:
            dist.all_reduce(mean)
            mean = mean / dist.get_world_size()
        losses.append(float(mean))
    return losses


def adam(model):
    return paddle.optimizer.AdamW(learning_rate=0.01, parameters=model.parameters())


def alone():
    model = nn.Sequential(*network())
    return train(model, adam(model), share=paddle.to_tensor)


def data_parallel():
    dist.init_parallel_env()
    model = paddle.DataParallel(nn.Sequential(*network()))
    return train(model, adam(model))


def sharded_optimizer():
    """Stage 1: each rank keeps the optimizer's state of some parameters."""
    hybrid(sharding_degree=dist.get_world_size())
    model = nn.Sequential(*network())
    model, optimizer = fleet.distributed_model(model), fleet.distributed_optimizer(adam(model))
    return train(model, optimizer)


def sharded(level):
    dist.init_parallel_env()
    model = nn.Sequential(*network())
    model, optimizer, _ = dist.sharding.group_sharded_parallel(model, adam(model), level)
    return train(model, optimizer)


def hybrid(**degrees):
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, **degrees}
    if "pp_degree" in degrees:
        strategy.pipeline_configs = {"accumulate_steps": 2, "micro_batch_size": BATCH // 2}
    fleet.init(is_collective=True, strategy=strategy)


def tensor_parallel():
    from paddle.distributed.fleet.layers.mpu import ColumnParallelLinear, RowParallelLinear

    hybrid(mp_degree=dist.get_world_size())
    first, tanh, second, *rest = network()
    column = ColumnParallelLinear(WIDTH, 2 * WIDTH, has_bias=True, gather_output=False)
    row = RowParallelLinear(2 * WIDTH, WIDTH, has_bias=True, input_is_parallel=True)
    rank, part = dist.get_rank(), 2 * WIDTH // dist.get_world_size()
    columns = slice(rank * part, (rank + 1) * part)
    column.weight.set_value(first.weight.numpy()[:, columns])
    column.bias.set_value(first.bias.numpy()[columns])
    row.weight.set_value(second.weight.numpy()[columns])
    row.bias.set_value(second.bias.numpy())
    model = fleet.distributed_model(nn.Sequential(column, tanh, row, *rest))
    return train(model, fleet.distributed_optimizer(adam(model)), share=paddle.to_tensor)


def pipeline():
    from paddle.distributed.fleet.meta_parallel import PipelineLayer

    hybrid(pp_degree=dist.get_world_size())
    model = PipelineLayer(layers=network(), num_stages=dist.get_world_size(), loss_fn=nn.functional.mse_loss)
    optimizer = adam(model)
    model, optimizer = fleet.distributed_model(model), fleet.distributed_optimizer(optimizer)
    losses = []
    for inputs, labels in batches():
        loss = model.train_batch([paddle.to_tensor(inputs), paddle.to_tensor(labels)], optimizer)
        losses.append(float(loss.reshape([])))
    return losses


WAYS = {
    "alone": alone,
    "data_parallel": data_parallel,
    "sharding_1": sharded_optimizer,
    "sharding_2": lambda: sharded("os_g"),
    "sharding_3": lambda: sharded("p_g_os"),
    "tensor_parallel": tensor_parallel,
    "pipeline": pipeline,
}

if __name__ == "__main__":
    for way in sys.argv[1:]:
        print(way, "losses:", *WAYS[way](), flush=True)
