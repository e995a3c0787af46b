"""Trains small networks on several ranks of device `mps`: `training.py NETWORK:WAY ..`. Each rank prints the losses, which one rank alone has
too: `NETWORK:alone:PARTS`, which sees each batch in as many parts as there are ranks."""

import sys

import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed import fleet
from parallel_networks import BATCH, NETWORKS, Parts


def part(array, index, parts):
    rows = BATCH // parts
    return paddle.to_tensor(array[index * rows :][:rows])


def train(network, model, optimizer, part_of=None):
    """The losses over the whole batch, step by step, where each rank sees its part; or as many parts one after the other."""
    parts = dist.get_world_size()
    losses = []
    for inputs, labels in network.batches():
        if part_of is not None:
            losses.append(sum(step(network, model, inputs, labels, index, part_of) for index in range(part_of)))
        else:
            mean = paddle.to_tensor(step(network, model, inputs, labels, dist.get_rank(), parts, 1.0))
            dist.all_reduce(mean)
            losses.append(float(mean) / parts)
        optimizer.step()
        optimizer.clear_grad()
    return losses


def step(network, model, inputs, labels, index, parts, share=None):
    """A part's loss, whose gradient counts for its share."""
    loss = network.loss(model(part(inputs, index, parts)), part(labels, index, parts)) * (share or 1 / parts)
    loss.backward()
    return float(loss)


def adam(network, model):
    return paddle.optimizer.AdamW(learning_rate=network.rate, epsilon=1e-4, parameters=model.parameters())


def alone(network, parts):
    model = nn.Sequential(*network.layers())
    return train(network, model, adam(network, model), part_of=int(parts))


def data_parallel(network):
    dist.init_parallel_env()
    model = paddle.DataParallel(nn.Sequential(*network.layers()))
    return train(network, model, adam(network, model))


def sharded_optimizer(network):
    """Stage 1: each rank keeps the optimizer's state of some parameters."""
    hybrid(sharding_degree=dist.get_world_size())
    model = nn.Sequential(*network.layers())
    model, optimizer = fleet.distributed_model(model), fleet.distributed_optimizer(adam(network, model))
    return train(network, model, optimizer)


def sharded(level):
    def run(network):
        dist.init_parallel_env()
        model = nn.Sequential(*network.layers())
        model, optimizer, _ = dist.sharding.group_sharded_parallel(model, adam(network, model), level)
        return train(network, model, optimizer)

    return run


def hybrid(**degrees):
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, **degrees}
    if "pp_degree" in degrees:
        parts = dist.get_world_size()
        strategy.pipeline_configs = {"accumulate_steps": parts, "micro_batch_size": BATCH // parts}
    fleet.init(is_collective=True, strategy=strategy)


def tensor_parallel(network):
    """Every rank sees the whole batch, and has a part of the weights."""
    hybrid(mp_degree=dist.get_world_size())
    model = nn.Sequential(*network.layers(Parts(dist.get_rank(), dist.get_world_size())))
    model, optimizer = fleet.distributed_model(model), adam(network, model)
    return train(network, model, fleet.distributed_optimizer(optimizer), part_of=1)


def pipeline(network):
    from paddle.distributed.fleet.meta_parallel import PipelineLayer

    hybrid(pp_degree=dist.get_world_size())
    model = PipelineLayer(layers=network.layers(), num_stages=dist.get_world_size(), loss_fn=network.loss)
    optimizer = adam(network, model)
    model, optimizer = fleet.distributed_model(model), fleet.distributed_optimizer(optimizer)
    losses = []
    for inputs, labels in network.batches():
        loss = model.train_batch([paddle.to_tensor(inputs), paddle.to_tensor(labels)], optimizer)
        losses.append(float(loss.reshape([])))
    return losses


WAYS = {
    "alone": alone,
    "data_parallel": data_parallel,
    "sharding_1": sharded_optimizer,
    "sharding_2": sharded("os_g"),
    "sharding_3": sharded("p_g_os"),
    "tensor_parallel": tensor_parallel,
    "pipeline": pipeline,
}

if __name__ == "__main__":
    for told in sys.argv[1:]:
        name, way, *more = told.split(":")
        print(told, "losses:", *WAYS[way](NETWORKS[name], *more), flush=True)
