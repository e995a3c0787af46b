"""What a call's source may use beyond Paddle's functions: derivatives as values, layers with given weights, steps of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import paddle

# Makes a tensor of float64's numbers, rounded to an element type, as an input whose gradient is wanted.
Make = Callable[[np.ndarray, list[int], str], paddle.Tensor]


def ramp(shape: Sequence[int]) -> np.ndarray:
    """Numbers between -5/8 and 7/8 that every element type holds."""
    return ((np.arange(np.prod(shape, dtype=np.int64)) * 5 % 13 - 5) / 8).reshape(shape)


def slope(function: Callable[..., paddle.Tensor], *inputs: paddle.Tensor) -> list[paddle.Tensor]:
    """The gradients of a function, as values that have gradients themselves."""
    for one in inputs:
        one.stop_gradient = False
    output = function(*inputs)
    weights = paddle.to_tensor(ramp(output.shape), dtype=output.dtype)
    weights.stop_gradient = False
    found = paddle.grad([output], list(inputs), grad_outputs=[weights], create_graph=True, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def positive_definite(factor: paddle.Tensor) -> paddle.Tensor:
    return paddle.matmul(factor, factor, transpose_y=True)


def flat(values: object) -> list[paddle.Tensor]:
    """The tensors of nested results, each once: a cell's output is its state too."""
    if isinstance(values, paddle.Tensor):
        return [values]
    found = {id(tensor): tensor for value in values for tensor in flat(value)}
    return list(found.values())


class Layers:
    """Layers and optimizers over the inputs that `make` makes."""

    def __init__(self, make: Make, inputs: list[paddle.Tensor], double: bool):
        self.make, self.inputs, self.double = make, inputs, double

    def layer(self, create: Callable[[], paddle.nn.Layer], dtype: str, *inputs: object) -> list[paddle.Tensor]:
        """A layer's results, its parameters being waves of a frequency of their own. They are inputs too."""
        paddle.set_default_dtype("float64" if self.double else dtype)  # states that begin with zeros have it too
        try:
            return self.evaluated(create(), dtype, *inputs)
        finally:
            paddle.set_default_dtype("float32")

    def evaluated(self, layer: paddle.nn.Layer, dtype: str, *inputs: object) -> list[paddle.Tensor]:
        for number, parameter in enumerate(layer.parameters()):
            wave = 0.5 * np.sin(np.arange(parameter.size) * (0.7 + 0.1 * number) + number)
            parameter.set_value(self.make(wave, parameter.shape, dtype).detach())
            self.inputs[-1] = parameter  # in place of the tensor that its numbers came in
        return flat(layer(*inputs))

    def stepped(self, create: Callable[[list], paddle.optimizer.Optimizer], start: paddle.Tensor, *gradients: paddle.Tensor) -> paddle.Tensor:
        """What an optimizer makes of a parameter after steps along these gradients."""
        parameter = paddle.create_parameter(start.shape, str(start.dtype).removeprefix("paddle."))
        parameter.set_value(start.detach())
        optimizer = create([parameter])
        for gradient in gradients:
            (parameter * gradient.detach()).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        return parameter.detach()
