"""Fuses a legacy inference program for device ``mps``: scalar chains and activations go into the convolution before them.

Paddle's own passes fuse convolution, bias and ReLU only. Models such as PP-OCRv4 follow every convolution with
``hardswish(x * a + b) * c + d``, five operators that each read and write the whole feature map. Here

1. what is affine before the activation (bias, batch normalisation, scalar products and sums) is folded into weights and bias,
2. the activation and what is affine with scalars behind it becomes the *epilogue* of the fused operator,
3. identities (dropout of an inference program, ``assign``) disappear, and ``x * s + x`` becomes ``x * (s + 1)``.

The fused operators are Paddle's: ``fused_conv2d_add_act``, whose activation attribute, a string, carries the epilogue
(:class:`Epilogue` says how), and ``fc``, which takes a bias and ReLU. A transposed convolution that does not overlap is a 1x1
convolution and ``pixel_shuffle``. With ``fused=False`` the folded program is written with plain operators, which every device of
Paddle runs; tests compare it with the original.

A program is changed only where its declared shapes say that it stays the same function; what is not understood stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from paddle.base.proto import framework_pb2 as pb

from .graph import Graph, argument, attribute, make_operator
from .program import Program

_CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
_CONVOLUTION_ATTRIBUTES = ("strides", "paddings", "padding_algorithm", "dilations", "groups", "data_format")
_TRANSPOSE_ATTRIBUTES = (*_CONVOLUTION_ATTRIBUTES, "output_padding", "output_size")


def fuse(model: bytes, parameters: bytes, *, fused: bool = True) -> tuple[bytes, bytes]:
    """The contents of both files of a model, fused. A program that is not of the legacy kind raises ``UnsupportedProgram``."""
    program = Program.parse(model, parameters)
    graph = Graph(program)
    _remove_identities(graph)
    _factor_gates(graph)
    _fuse_chains(graph, fused)
    graph.store()
    return program.serialise()


@dataclass(frozen=True)
class Epilogue:
    """``scale * activation(x; a, b) + offset``, applied to the result of a convolution or matrix product with its bias.

    As text: ``"<activation> <a> <b> <scale> <offset>"`` with single spaces; without an affine part and parameters just
    ``"<activation>"``. Activations: ``identity``, ``relu``, ``sigmoid``, ``hardswish``, ``swish`` (``a`` is beta), ``hardsigmoid``
    (``a`` is the slope, ``b`` the offset).
    """

    activation: str = "identity"
    a: float = 0.0
    b: float = 0.0
    scale: float = 1.0
    offset: float = 0.0

    def then(self, scale: float, offset: float) -> Epilogue:
        """This epilogue with ``* scale + offset`` behind it."""
        return Epilogue(self.activation, self.a, self.b, self.scale * scale, self.offset * scale + offset)

    @property
    def affine(self) -> bool:
        """Whether something stands behind the activation."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def __str__(self) -> str:
        if not self.affine and (self.a, self.b) == (0.0, 0.0):
            return self.activation
        return " ".join([self.activation, *(str(np.float32(value)) for value in (self.a, self.b, self.scale, self.offset))])


# -------------------------------------------------------------------------------------------------------------- identities and gates


def _remove_identities(graph: Graph) -> None:
    """Dropout of an inference program that scales in training, and assignments, are their own input."""
    for index, operator in enumerate(graph.operators):
        if operator is None:
            continue
        is_dropout = operator.type == "dropout" and attribute(operator, "dropout_implementation") == "upscale_in_train"
        if not (is_dropout and attribute(operator, "is_test", False)) and operator.type != "assign":
            continue
        source, result = argument(operator, "X"), argument(operator, "Out")
        if source and result and result not in graph.kept and not graph.is_parameter(source):
            graph.remove(index)
            graph.rename_reads(result, source)


def _factor_gates(graph: Graph) -> None:
    """``x * s + x`` with a gate ``s`` becomes ``x * (s + 1)``: the sum moves from the feature map to the small gate."""
    for index, operator in enumerate(graph.operators):
        if operator is None or operator.type != "elementwise_mul":
            continue
        x, gate, product = argument(operator, "X"), argument(operator, "Y"), argument(operator, "Out")
        reader = graph.only_reader(product)
        if reader is None or graph.operators[reader].type != "elementwise_add" or graph.only_reader(gate) != index:
            continue
        total = graph.operators[reader]
        if sorted((argument(total, "X"), argument(total, "Y"))) != sorted((x, product)) or x == product:
            continue
        if not _is_gate(graph.dims(x), graph.dims(gate)) or attribute(operator, "axis", -1) != -1:
            continue
        raised = graph.add_variable(f"{gate}.plus_one", like=gate)
        plus_one = make_operator("scale", {"X": gate}, {"Out": raised}, {"scale": 1.0, "bias": 1.0, "bias_after_scale": True})
        multiply = make_operator("elementwise_mul", {"X": x, "Y": raised}, {"Out": argument(total, "Out")}, {"axis": -1})
        graph.replace(index, [plus_one])
        graph.replace(reader, [multiply])


def _is_gate(dims: tuple[int, ...], gate: tuple[int, ...]) -> bool:
    """Whether a shape is one value a channel of the other."""
    return len(dims) == len(gate) == 4 and gate[2:] == (1, 1) and dims[:2] == gate[:2] and dims[2:] != (1, 1)


# ------------------------------------------------------------------------------------------------------------------------ the chains


@dataclass
class Chain:
    """A convolution or matrix product and the operators that go into it: ``epilogue(root * scale + bias + residual)``."""

    graph: Graph
    root: pb.OpDesc
    channels: int
    scale: np.ndarray = field(init=False)
    bias: np.ndarray = field(init=False)
    residual: str = ""
    epilogue: Epilogue = Epilogue()
    result: str = ""

    def __post_init__(self) -> None:
        self.scale, self.bias = np.ones(self.channels), np.zeros(self.channels)
        self.result = argument(self.root, "Out") or argument(self.root, "Output")

    @property
    def is_matrix_product(self) -> bool:
        return self.root.type == "matmul_v2"

    def absorb(self, operator: pb.OpDesc) -> bool:
        """Takes an operator that alone reads the result of the chain; False where it does not fit."""
        taken = (
            self._absorb_affine(operator)
            if operator.type in ("elementwise_add", "elementwise_mul", "scale", "batch_norm")
            else self._absorb_activation(operator)
        )
        if taken:
            self.result = argument(operator, "Y" if operator.type == "batch_norm" else "Out")
        return taken

    def _absorb_affine(self, operator: pb.OpDesc) -> bool:
        affine = self._affine(operator)
        if affine is None:
            return operator.type == "elementwise_add" and self._absorb_residual(operator)
        scale, offset = affine
        if self.epilogue != Epilogue() or self.residual:
            if scale.size != 1 or offset.size != 1 or self.epilogue == Epilogue() or self.is_matrix_product:
                return False
            self.epilogue = self.epilogue.then(float(scale), float(offset))
        else:
            self.scale, self.bias = self.scale * scale, self.bias * scale + offset
        return True

    def _affine(self, operator: pb.OpDesc) -> tuple[np.ndarray, np.ndarray] | None:
        """Factor and summand, each one number or one for each channel; None where the operator is something else."""
        if operator.type == "batch_norm":
            return self._batch_norm(operator)
        if operator.type == "scale":
            if argument(operator, "ScaleTensor"):
                return None
            scale, offset = attribute(operator, "scale", 1.0), attribute(operator, "bias", 0.0)
            return np.asarray(scale), np.asarray(offset if attribute(operator, "bias_after_scale", True) else offset * scale)
        values = self._constant(operator)
        if values is None:
            return None
        return (values, np.asarray(0.0)) if operator.type == "elementwise_mul" else (np.asarray(1.0), values)

    def _constant(self, operator: pb.OpDesc) -> np.ndarray | None:
        """The parameter that an elementwise operator joins to the result: a number, or one for each channel."""
        x, y = argument(operator, "X"), argument(operator, "Y")
        name = y if x == self.result else x
        values = self.graph.parameter(name)
        if values is None:
            return None
        if values.size == 1 and values.ndim <= len(self.graph.dims(self.result)):
            return values.reshape(())
        if name != y or values.size != self.channels:
            return None
        rank, axis = len(self.graph.dims(self.result)), attribute(operator, "axis", -1)
        channel_axis = rank - 1 if self.is_matrix_product else 1
        start = rank - values.ndim if axis == -1 else axis
        position = channel_axis - start
        fits = 0 <= position < values.ndim and values.shape[position] == self.channels
        return values.reshape(-1) if fits else None

    def _batch_norm(self, operator: pb.OpDesc) -> tuple[np.ndarray, np.ndarray] | None:
        """Batch normalisation with stored statistics, unless a training program wants its own."""
        stored = attribute(operator, "is_test", False) or attribute(operator, "use_global_stats", False)
        values = [self.graph.parameter(argument(operator, slot)) for slot in ("Scale", "Bias", "Mean", "Variance")]
        if self.is_matrix_product or not stored or any(value is None or value.size != self.channels for value in values):
            return None
        if attribute(operator, "data_layout", "NCHW") != "NCHW":
            return None
        gamma, beta, mean, variance = values
        factor = gamma / np.sqrt(variance + attribute(operator, "epsilon", 1e-5))
        return factor, beta - mean * factor

    def _absorb_residual(self, operator: pb.OpDesc) -> bool:
        """The sum with another feature map of the same shape."""
        x, y = argument(operator, "X"), argument(operator, "Y")
        other = y if x == self.result else x
        usable = self.root.type in _CONVOLUTIONS and not self.residual and self.epilogue == Epilogue()
        if (
            not usable
            or other in ("", self.result)
            or self.graph.is_parameter(other)
            or self.graph.dims(other) != self.graph.dims(self.result)
        ):
            return False
        self.residual = other
        return True

    def _absorb_activation(self, operator: pb.OpDesc) -> bool:
        if self.epilogue != Epilogue():
            return False
        epilogue = _activation(operator)
        if epilogue is None or (self.is_matrix_product and epilogue != Epilogue("relu")):
            return False
        self.epilogue = epilogue
        return True


def _activation(operator: pb.OpDesc) -> Epilogue | None:
    """The epilogue that an activation operator is."""
    match operator.type:
        case "relu" | "sigmoid":
            return Epilogue(operator.type)
        case "silu":
            return Epilogue("swish", a=1.0)
        case "swish" if attribute(operator, "beta", 1.0) == 1.0:
            return Epilogue("swish", a=1.0)
        case "hard_sigmoid":
            return Epilogue("hardsigmoid", attribute(operator, "slope", 0.2), attribute(operator, "offset", 0.5))
        case "hard_swish" if [attribute(operator, name) for name in ("threshold", "scale", "offset")] == [6.0, 6.0, 3.0]:
            return Epilogue("hardswish")
    return None


def _fuse_chains(graph: Graph, fused: bool) -> None:
    taken: set[int] = set()
    for index, root in enumerate(graph.operators):
        channels = None if root is None or index in taken else _output_channels(graph, root)
        if channels is None:
            continue
        chain, members = Chain(graph, root, channels), [index]
        while (reader := graph.only_reader(chain.result)) is not None and reader not in taken:
            if not chain.absorb(graph.operators[reader]):
                break
            members.append(reader)
        if len(members) == 1:
            continue
        taken.update(members)
        for member in members[:-1]:
            graph.remove(member)
        graph.replace(members[-1], _emit(chain, fused))


def _output_channels(graph: Graph, operator: pb.OpDesc) -> int | None:
    """How many output channels a root of a chain has; None where the operator is no root."""
    if operator.type == "matmul_v2":
        weights = graph.parameter(argument(operator, "Y"))
        plain = not attribute(operator, "trans_x", False) and not attribute(operator, "trans_y", False)
        usable = weights is not None and weights.ndim == 2 and plain and len(graph.dims(argument(operator, "X"))) >= 2
        return weights.shape[1] if usable else None
    weights = graph.parameter(argument(operator, "Filter"))
    if weights is None or attribute(operator, "data_format", "NCHW") not in ("NCHW", "AnyLayout") or argument(operator, "Bias"):
        return None
    if operator.type in _CONVOLUTIONS:
        return weights.shape[0]
    return weights.shape[1] if operator.type == "conv2d_transpose" and attribute(operator, "groups", 1) == 1 else None


def _emit(chain: Chain, fused: bool) -> list[pb.OpDesc]:
    """The operators of a chain: fused ones, or plain ones."""
    root, graph = chain.root, chain.graph
    name = argument(root, "Y" if chain.is_matrix_product else "Filter")
    weights, bias = graph.parameter(name), chain.bias
    axis = 0 if root.type in _CONVOLUTIONS else 1
    weights = weights * chain.scale.reshape([-1 if dimension == axis else 1 for dimension in range(weights.ndim)])
    if not fused or (root.type == "conv2d_transpose" and not _tiles(root, weights.shape)):
        return _emit_plain(chain, graph.add_parameter(f"{name}.folded", weights), graph.add_parameter(f"{name}.bias", bias))
    if root.type == "conv2d_transpose":
        return _emit_tiled(chain, weights, bias)
    folded, bias = graph.add_parameter(f"{name}.folded", weights), graph.add_parameter(f"{name}.bias", bias)
    if chain.is_matrix_product:
        activation = "" if chain.epilogue == Epilogue() else chain.epilogue.activation
        attributes = {"in_num_col_dims": len(graph.dims(argument(root, "X"))) - 1, "activation_type": activation, "padding_weights": False}
        return [make_operator("fc", {"Input": argument(root, "X"), "W": folded, "Bias": bias}, {"Out": chain.result}, attributes)]
    inputs = {"Input": argument(root, "Input"), "Filter": folded, "Bias": bias}
    if chain.residual:
        inputs["ResidualData"] = chain.residual
    return [_fused_convolution(inputs, chain.result, chain.epilogue, root)]


def _fused_convolution(inputs: dict[str, str], result: str, epilogue: Epilogue, root: pb.OpDesc | None) -> pb.OpDesc:
    """A fused convolution with the geometry of another, or a 1x1 convolution."""
    attributes: dict[str, object] = {"activation": str(epilogue), "split_channels": (), "exhaustive_search": False}
    attributes |= {"workspace_size_MB": 32, "fuse_alpha": 0.0}
    if root is None:
        attributes |= {"strides": (1, 1), "paddings": (0, 0), "dilations": (1, 1), "groups": 1}
        attributes |= {"padding_algorithm": "EXPLICIT", "data_format": "NCHW"}
    return make_operator("fused_conv2d_add_act", inputs, {"Output": result}, attributes, root, _CONVOLUTION_ATTRIBUTES)


def _tiles(root: pb.OpDesc, shape: tuple[int, ...]) -> bool:
    """Whether a transposed convolution writes each element of its result once, in square tiles."""
    side = shape[2]
    return (
        shape[3] == side
        and attribute(root, "strides") == (side, side)
        and attribute(root, "dilations") == (1, 1)
        and attribute(root, "padding_algorithm", "EXPLICIT") == "EXPLICIT"
        and not any((*attribute(root, "paddings", ()), *attribute(root, "output_padding", ()), *attribute(root, "output_size", ())))
        and not any(slot.arguments for slot in root.inputs if slot.parameter in ("OutputSize", "OutputSizeTensor"))
    )


def _emit_tiled(chain: Chain, weights: np.ndarray, bias: np.ndarray) -> list[pb.OpDesc]:
    """A transposed convolution whose tiles do not overlap: a 1x1 convolution that computes the tile as channels, then a shuffle."""
    root, graph, name = chain.root, chain.graph, argument(chain.root, "Filter")
    inner, outer, side, _ = weights.shape
    filters = weights.transpose(1, 2, 3, 0).reshape(outer * side * side, inner, 1, 1)
    inputs = {
        "Input": argument(root, "Input"),
        "Filter": graph.add_parameter(f"{name}.folded", filters),
        "Bias": graph.add_parameter(f"{name}.bias", bias.repeat(side * side)),
    }
    tiles = graph.add_variable(f"{chain.result}.tiles", like=chain.result)
    dims = graph.variables[tiles].type.dense_tensor.tensor.dims
    dims[:] = [dims[0], outer * side * side, -1, -1]
    shuffle = make_operator("pixel_shuffle", {"X": tiles}, {"Out": chain.result}, {"upscale_factor": side, "data_format": "NCHW"})
    return [_fused_convolution(inputs, tiles, chain.epilogue, None), shuffle]


def _emit_plain(chain: Chain, weights: str, bias: str) -> list[pb.OpDesc]:
    root, graph, result = chain.root, chain.graph, chain.result
    operators: list[pb.OpDesc] = []

    def step(kind: str, inputs: dict[str, str], attributes: dict[str, object], slot: str = "Out", keep: Iterable[str] = ()) -> str:
        out = graph.add_variable(f"{result}.{len(operators)}", like=result)
        operators.append(make_operator(kind, inputs, {slot: out}, attributes, root, keep))
        return out

    if chain.is_matrix_product:
        last = step("matmul_v2", {"X": argument(root, "X"), "Y": weights}, {"trans_x": False, "trans_y": False})
    else:
        inputs = {"Input": argument(root, "Input"), "Filter": weights}
        last = step(root.type, inputs, {}, "Output", _TRANSPOSE_ATTRIBUTES)
    last = step("elementwise_add", {"X": last, "Y": bias}, {"axis": len(graph.dims(result)) - 1 if chain.is_matrix_product else 1})
    if chain.residual:
        last = step("elementwise_add", {"X": last, "Y": chain.residual}, {"axis": -1})
    epilogue = chain.epilogue
    if epilogue.activation != "identity":
        kind, names = _PLAIN_ACTIVATIONS[epilogue.activation]
        values = (epilogue.a, epilogue.b) if epilogue.activation in ("swish", "hardsigmoid") else ()
        last = step(kind, {"X": last}, names | dict(zip(names, values, strict=False)))
    if epilogue.affine:
        step("scale", {"X": last}, {"scale": epilogue.scale, "bias": epilogue.offset, "bias_after_scale": True})
    operators[-1].outputs[0].arguments[:] = [result]
    return operators


_PLAIN_ACTIVATIONS: dict[str, tuple[str, dict[str, object]]] = {
    "relu": ("relu", {}),
    "sigmoid": ("sigmoid", {}),
    "swish": ("swish", {"beta": 1.0}),
    "hardsigmoid": ("hard_sigmoid", {"slope": 0.2, "offset": 0.5}),
    "hardswish": ("hard_swish", {"threshold": 6.0, "scale": 6.0, "offset": 3.0}),
}
"""An epilogue's activation as a plain operator with its attributes; `a` and `b` take the place of the first two."""
