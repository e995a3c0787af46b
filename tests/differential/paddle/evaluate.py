"""Evaluates a call's source on a device, or in float64 on Paddle's CPU: values, gradients or the exception."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable

import numpy as np
import paddle
from paddle.nn import functional as F

from .draw import FLOATS
from .numbers import UNIT, rounded_to
from .programs import Layers, positive_definite, ramp, slope
from .result import MISSING, Missing, Result

nan, inf = float("nan"), float("inf")


class Evaluation:
    """The names that a call's source may use, and the inputs that it made."""

    def __init__(self, device: str, double: bool = False, perturbed: int | None = None):
        self.device, self.double = device, double
        self.noise = None if perturbed is None else np.random.default_rng(perturbed)
        self.inputs: list[paddle.Tensor] = []
        self.differentiates = False

    def tensor(self, values: Iterable, shape: list[int], dtype: str) -> paddle.Tensor:
        """T: a tensor of these numbers; one of floats is an input whose gradient is wanted."""
        if dtype not in FLOATS:
            return paddle.to_tensor(np.asarray(values).astype(dtype).reshape(shape))
        rounded = rounded_to(np.asarray(values, "float64"), dtype).reshape(shape)
        if self.noise is not None:
            unit = UNIT[dtype]
            with np.errstate(all="ignore"):
                rounded = rounded * (1 + unit * self.noise.choice((-1.0, 1.0), rounded.shape))
        made = paddle.to_tensor(rounded, dtype="float64" if self.double else dtype)
        made.stop_gradient = not self.differentiates
        self.inputs.append(made)
        return made

    def changed(self, tensor: paddle.Tensor, change) -> paddle.Tensor:
        """The tensor after a change in place. On Paddle's CPU x[...] = y writes past a view's memory, so that it gets a copy there."""
        tensor = tensor.clone() if self.device == "cpu" else tensor
        change(tensor)
        return tensor

    def names(self) -> dict[str, object]:
        layers = Layers(self.tensor, self.inputs, self.double)
        own = {"T": self.tensor, "changed": self.changed, "INDEX": INDEX, "slope": slope, "positive_definite": positive_definite, "layer": layers.layer, "stepped": layers.stepped}
        return {"paddle": paddle, "np": np, "F": F, "operator": operator, "nan": nan, "inf": inf, **own}


class Index:
    """INDEX[i, j:k] is what stands between the brackets, as a value."""

    def __getitem__(self, index):
        return index


INDEX = Index()


def evaluate(text: str, device: str, gradients: bool, double: bool = False, perturbed: int | None = None) -> Result:
    paddle.set_device(device)
    evaluation, result = Evaluation(device, double, perturbed), Result()
    evaluation.differentiates = gradients
    try:
        outputs = eval(text, evaluation.names())  # the text is made by this package
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        result.values = [as_array(output) for output in outputs]
        if gradients:
            result.where = "gradient"
            result.gradients = differentiate(outputs, evaluation.inputs)
    except Exception as error:
        result.raised, result.message = type(error).__name__, str(error)
        if found := MISSING.search(result.message):
            result.missing = Missing(*found.groups())
    return result


def differentiate(outputs: list, inputs: list[paddle.Tensor]) -> list[tuple[str, np.ndarray] | None]:
    """Gradients of all outputs, each weighted by numbers that every element type can hold."""
    wanted = [output for output in outputs if isinstance(output, paddle.Tensor) and not output.stop_gradient and output.is_floating_point()]
    if not wanted or not inputs:
        return []
    weights = [paddle.to_tensor(ramp(output.shape), dtype=output.dtype) for output in wanted]
    found = paddle.grad(wanted, inputs, grad_outputs=weights, allow_unused=True)
    return [None if gradient is None else as_array(gradient) for gradient in found]


def as_array(value: object) -> tuple[str, np.ndarray] | object:
    """A tensor as its element type and its numbers; anything else as it is."""
    if not isinstance(value, paddle.Tensor):
        return copy.copy(value)
    name = str(value.dtype).removeprefix("paddle.")
    array = value.numpy()
    if name == "bfloat16":
        array = (array.astype("uint32") << 16).view("float32")
    return name, array
