"""Layers with weights of their own, steps of optimizers, graphs and signals."""

from ..draw import FLOATS, Draw
from ..row import CLOSE, EXACT, NO, SINGLE, SUM, YES, Row
from .elementwise import each


def sequences(draw: Draw) -> dict[str, object]:
    """Sequences of a batch, for layers of an inner and an outer width."""
    batch, time, inner, outer, layers = draw.pick(1, 2, 3), draw.pick(1, 2, 4), draw.pick(1, 3), draw.pick(1, 2, 4), draw.pick(1, 2)
    direction = draw.word("forward", "bidirect")
    return {
        "x": draw.dense((batch, time, inner), draw.type, "bounded"), "inner": inner, "outer": outer, "layers": layers, "direction": direction, "dtype": draw.type,
        "lengths": f'T({[draw.random.randint(1, time) for _ in range(batch)]}, [{batch}], "int64")',
    }  # fmt: skip


def parameters(draw: Draw) -> dict[str, object]:
    """A parameter and gradients of three steps."""
    draw.special = False
    shape = draw.shape(1, 3, empty=False)
    return {"p": draw.dense(shape, draw.type, "any"), **{name: draw.dense(shape, draw.type, "nonzero") for name in ("g1", "g2", "g3")}, "rate": draw.pick(0.1, 0.01),
            "decay": draw.pick(0.0, 0.0, 0.02), "flag": draw.chance(0.5)}  # fmt: skip


def graphs(draw: Draw) -> dict[str, object]:
    """Features of nodes, the ends of edges, features of edges, and segments in order."""
    draw.special = False
    nodes, edges, width = draw.random.randint(1, 6), draw.random.randint(1, 9), draw.pick(1, 3, 8)
    ends = {name: f'T({[draw.random.randrange(nodes) for _ in range(edges)]}, [{edges}], "int64")' for name in ("from", "to")}
    segments = sorted(draw.random.randrange(3) for _ in range(nodes))
    return {"x": draw.dense((nodes, width), draw.type, "any"), "e": draw.dense((edges, width), draw.type, "nonzero"), "y": draw.dense((nodes, width), draw.type, "nonzero"),
            **ends, "segments": f'T({segments}, [{nodes}], "int64")'}  # fmt: skip


def weighted(draw: Draw) -> dict[str, object]:
    draw.special = False
    return {"x": draw.dense((3, 5), draw.type, "any"), "z": draw.dense((3, 4), draw.type, "any"), "dtype": draw.type, "dim": draw.pick(0, 1), "image": draw.dense((2, 3, 5, 4), draw.type, "any"),
            "groups": draw.pick(1, 3)}  # fmt: skip


def folded(draw: Draw) -> dict[str, object]:
    """Columns that make an image."""
    k, stride, padding, dilation = draw.random.randint(1, 3), draw.pick(1, 2), draw.pick(0, 1), draw.pick(1, 1, 2)
    size = [draw.random.randint(5, 8), draw.random.randint(5, 8)]
    columns = 1
    for length in size:
        columns *= (length + 2 * padding - dilation * (k - 1) - 1) // stride + 1
    return {"x": draw.tensor((draw.pick(1, 2), 2 * k * k, columns)), "size": size, "k": k, "stride": stride, "padding": padding, "dilation": dilation}


def reduced(draw: Draw) -> dict[str, object]:
    shape = draw.shape(2, 4, empty=False)
    kept = tuple(size if draw.chance(0.5) else 1 for size in shape)
    return {"x": draw.tensor(shape), "target": draw.dense(kept[draw.random.randint(0, 1) :], draw.type, "any")}


OPTIMIZERS = (
    "SGD({rate}, parameters=p, weight_decay={decay})",
    "Momentum({rate}, 0.9, parameters=p, use_nesterov={flag}, weight_decay={decay})",
    "Adam({rate}, parameters=p, weight_decay={decay}, amsgrad={flag})",
    "AdamW({rate}, parameters=p, weight_decay={decay}, amsgrad={flag})",
    "Adamax({rate}, parameters=p, weight_decay={decay})",
    "Adagrad({rate}, parameters=p, weight_decay={decay})",
    "Adadelta({rate}, parameters=p, weight_decay={decay})",
    "RMSProp({rate}, parameters=p, weight_decay={decay}, centered={flag}, momentum=0.5)",
    "Lamb({rate}, parameters=p, lamb_weight_decay={decay})",
    "NAdam({rate}, parameters=p, weight_decay={decay})",
    "RAdam({rate}, parameters=p, weight_decay={decay})",
    "Rprop({rate}, parameters=p)",
    "ASGD({rate}, 2, parameters=p, weight_decay={decay})",
)

ROWS = [
    *each("SimpleRNN LSTM GRU", "layer(lambda: paddle.nn.NAME({inner}, {outer}, {layers}, {direction}), '{dtype}', {x})", SINGLE, YES, SUM, sequences),
    *each("LSTM GRU", "layer(lambda: paddle.nn.NAME({inner}, {outer}), '{dtype}', {x}, None, {lengths})", SINGLE, NO, SUM, sequences),
    *each("LSTMCell GRUCell SimpleRNNCell", "layer(lambda: paddle.nn.NAME(5, 2), '{dtype}', {x})", SINGLE, YES, SUM, weighted),
    Row("layer(lambda: paddle.nn.Linear(5, 2), '{dtype}', {x})", SINGLE, YES, SUM, weighted),
    Row("layer(lambda: paddle.nn.utils.weight_norm(paddle.nn.Linear(5, 2), dim={dim}), '{dtype}', {x})", SINGLE, YES, SUM, weighted),
    Row("layer(lambda: paddle.nn.Bilinear(5, 4, 2), '{dtype}', {x}, {z})", SINGLE, YES, SUM, weighted),
    Row("layer(lambda: paddle.nn.Conv2D(3, 3, 2, groups={groups}), '{dtype}', {image})", SINGLE, YES, SUM, weighted),
    Row("layer(lambda: paddle.nn.Conv2DTranspose(3, 3, 2, groups={groups}), '{dtype}', {image})", SINGLE, YES, SUM, weighted),
    Row("layer(lambda: paddle.nn.PReLU(3), '{dtype}', {image})", SINGLE, YES, SUM, weighted),
    *(Row(f"stepped(lambda p: paddle.optimizer.{optimizer}, {{p}}, {{g1}}, {{g2}}, {{g3}})", SINGLE, NO, SUM, parameters) for optimizer in OPTIMIZERS),
    *each("sum mean max min", "paddle.geometric.segment_NAME({x}, {segments})", SINGLE, YES, SUM, graphs),
    *each("sum mean max min", "paddle.geometric.send_u_recv({x}, {from}, {to}, reduce_op='NAME')", SINGLE, YES, SUM, graphs),
    *each("add sub mul div", "paddle.geometric.send_ue_recv({x}, {e}, {from}, {to}, 'NAME', 'sum')", SINGLE, YES, SUM, graphs),
    *each("mean max min", "paddle.geometric.send_ue_recv({x}, {e}, {from}, {to}, 'mul', 'NAME')", SINGLE, YES, SUM, graphs),
    *each("add sub mul div", "paddle.geometric.send_uv({x}, {y}, {from}, {to}, 'NAME')", SINGLE, YES, SUM, graphs),
    Row("paddle.signal.frame({x}, {integer:1 4}, {integer2:1 4})", SINGLE, YES, EXACT, lambda draw: {"x": draw.tensor((*draw.shape(0, 2, empty=False), draw.pick(4, 7, 9)))}),
    Row("paddle.signal.overlap_add({x}, {integer:1 4})", SINGLE, YES, SUM, lambda draw: {"x": draw.tensor((*draw.shape(0, 2, empty=False), draw.pick(1, 3, 4), draw.pick(1, 2, 5)))}),
    Row("F.fold({x}, {size}, {k}, strides={stride}, paddings={padding}, dilations={dilation})", SINGLE, YES, SUM, folded),
    Row("paddle.multiplex([{x:2}, {same}], {i})", FLOATS, NO, EXACT, lambda draw: {"x": draw.tensor((3, 2)), "same": draw.tensor((3, 2)), "i": draw.indices((3, 1), 2, "int32")}),
    Row("paddle.shard_index({i}, 20, 2, {integer:0 1})", ("int64",), NO, EXACT, lambda draw: {"i": draw.indices((5, 1), 20, "int64")}),
    Row("paddle.as_complex({x})", SINGLE, NO, EXACT, lambda draw: {"x": draw.tensor((*draw.shape(0, 3), 2))}),
    Row("paddle.as_real(paddle.as_complex({x}))", SINGLE, YES, EXACT, lambda draw: {"x": draw.tensor((*draw.shape(0, 3), 2))}),
    *each("real imag", "paddle.NAME(paddle.conj(paddle.complex({x}, {same})))", SINGLE, YES, EXACT),
    Row("paddle.reduce_as({x:2+}, {target})", SINGLE, YES, SUM, reduced),
    Row("F.temporal_shift({x}, 2, 0.25)", SINGLE, YES, CLOSE, lambda draw: {"x": draw.tensor((4, 4, 2, 3))}),
]
