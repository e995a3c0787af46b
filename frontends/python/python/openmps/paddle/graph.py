"""A legacy inference program as a graph that can be changed: operators in order, who reads what, and access to their attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from paddle.base.proto import framework_pb2 as pb

from .program import Program, UnsupportedProgram


class Graph:
    """The operators of a program in order, with the readers of each variable. A variable is written once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.operators: list[pb.OpDesc | None] = [_copy(operator) for operator in program.block.ops]
        self.variables = {var.name: var for var in program.block.vars}
        self.kept = {name for op in self.operators if op.type == "fetch" for name in arguments(op.inputs)}
        self.readers: dict[str, list[int]] = defaultdict(list)
        written: set[str] = set()
        for index, operator in enumerate(self.operators):
            for name in set(arguments(operator.inputs)):
                self.readers[name].append(index)
            for name in arguments(operator.outputs):
                if name in written and not self.is_parameter(name) and operator.type != "fetch":
                    raise UnsupportedProgram(f"variable {name} is written twice")
                written.add(name)

    def is_parameter(self, name: str) -> bool:
        return name in self.program.parameters

    def parameter(self, name: str) -> np.ndarray | None:
        """The values of a float32 parameter, in float64 to fold with."""
        values = self.program.parameters.get(name)
        return values.astype(np.float64) if values is not None and values.dtype == np.float32 else None

    def dims(self, name: str) -> tuple[int, ...]:
        """The shape as the program declares it: -1 where only a run knows."""
        return tuple(self.variables[name].type.dense_tensor.tensor.dims)

    def only_reader(self, name: str) -> int | None:
        """The operator that alone reads a variable which nothing else needs."""
        readers = self.readers[name]
        return readers[0] if len(readers) == 1 and name not in self.kept else None

    def remove(self, index: int) -> None:
        for name in set(arguments(self.operators[index].inputs)):
            self.readers[name].remove(index)
        self.operators[index] = None

    def replace(self, index: int, operators: list[pb.OpDesc]) -> None:
        """Puts operators in the place of one. Several stay together until :meth:`store`."""
        self.remove(index)
        self.operators[index] = operators[0] if len(operators) == 1 else _Sequence(operators)  # type: ignore[assignment]
        for operator in operators:
            for name in set(arguments(operator.inputs)):
                self.readers[name].append(index)

    def rename_reads(self, old: str, new: str) -> None:
        for index in self.readers.pop(old, []):
            for slot in self.operators[index].inputs:
                slot.arguments[:] = [new if name == old else name for name in slot.arguments]
            if index not in self.readers[new]:
                self.readers[new].append(index)

    def add_parameter(self, name: str, values: np.ndarray) -> str:
        """A new float32 parameter, under `name` or, where that is taken, a name made from it."""
        while name in self.variables:
            name += "_"
        self.variables[name] = _variable(name, values.shape, persistable=True)
        self.program.parameters[name] = values.astype(np.float32)
        return name

    def add_variable(self, name: str, like: str) -> str:
        """A new variable of the shape of another."""
        while name in self.variables:
            name += "_"
        self.variables[name] = _variable(name, self.dims(like), persistable=False)
        return name

    def store(self) -> None:
        """Writes operators and variables back to the program, without the variables that nobody names any more."""
        block, operators = self.program.block, []
        for operator in self.operators:
            operators += operator.operators if isinstance(operator, _Sequence) else [operator] if operator is not None else []
        named = {name for op in operators for name in (*arguments(op.inputs), *arguments(op.outputs))}
        variables = [var for name, var in self.variables.items() if name in named]
        del block.ops[:], block.vars[:]
        block.ops.extend(operators)
        block.vars.extend(variables)
        self.program.parameters = {name: values for name, values in self.program.parameters.items() if name in named}


@dataclass
class _Sequence:
    """Operators that took the place of one."""

    operators: list[pb.OpDesc]

    @property
    def inputs(self) -> Iterable:
        return [slot for operator in self.operators for slot in operator.inputs]

    type = "sequence"
    attrs = ()
    outputs = ()


def arguments(slots: Iterable) -> list[str]:
    """All names in the inputs or outputs of an operator."""
    return [name for slot in slots for name in slot.arguments]


def argument(operator: pb.OpDesc, slot: str) -> str:
    """The one name in a slot of inputs or outputs, or ``""``."""
    for candidate in (*operator.inputs, *operator.outputs):
        if candidate.parameter == slot and len(candidate.arguments) == 1:
            return candidate.arguments[0]
    return ""


_FIELDS = {pb.INT: "i", pb.LONG: "l", pb.FLOAT: "f", pb.FLOAT64: "float64", pb.STRING: "s", pb.BOOLEAN: "b"}
_LISTS = {pb.INTS: "ints", pb.LONGS: "longs", pb.FLOATS: "floats", pb.STRINGS: "strings", pb.BOOLEANS: "bools"}


def attribute(operator: pb.OpDesc, name: str, default: object = None) -> object:
    """The value of an attribute. A list comes as a tuple."""
    for attr in operator.attrs:
        if attr.name == name:
            if attr.type in _FIELDS:
                return getattr(attr, _FIELDS[attr.type])
            if attr.type in _LISTS:
                return tuple(getattr(attr, _LISTS[attr.type]))
    return default


def make_operator(
    kind: str,
    inputs: dict[str, str],
    outputs: dict[str, str],
    attributes: dict[str, object],
    like: pb.OpDesc | None = None,
    keep: Iterable[str] = (),
) -> pb.OpDesc:
    """A new operator; the attributes named in `keep` are those of `like`."""
    operator = pb.OpDesc(type=kind)
    for slots, named in ((operator.inputs, inputs), (operator.outputs, outputs)):
        for slot, name in named.items():
            slots.add(parameter=slot, arguments=[name])
    for attr in like.attrs if like is not None else ():
        if attr.name in set(keep):
            operator.attrs.add().CopyFrom(attr)
    for name, value in attributes.items():
        attr = operator.attrs.add(name=name)
        if isinstance(value, bool):
            attr.type, attr.b = pb.BOOLEAN, value
        elif isinstance(value, int):
            attr.type, attr.i = pb.INT, value
        elif isinstance(value, float):
            attr.type, attr.f = pb.FLOAT, value
        elif isinstance(value, str):
            attr.type, attr.s = pb.STRING, value
        else:
            attr.type = pb.INTS
            attr.ints.extend(value)
    return operator


def _copy(operator: pb.OpDesc) -> pb.OpDesc:
    copy = pb.OpDesc()
    copy.CopyFrom(operator)
    return copy


def _variable(name: str, dims: tuple[int, ...], *, persistable: bool) -> pb.VarDesc:
    var = pb.VarDesc(name=name, persistable=persistable)
    var.type.type = pb.VarType.DENSE_TENSOR
    var.type.dense_tensor.tensor.data_type = pb.VarType.FP32
    var.type.dense_tensor.tensor.dims.extend(dims)
    return var
