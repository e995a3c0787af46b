"""``place=`` in every function that makes tensors: ``paddle.randn([2, 3], place='mps')``.

Paddle 3.3 spells this argument ``device=``; ``place=`` is what ``paddle.to_tensor`` has always had. Functions without either run with
the named device as the current one.
"""

from __future__ import annotations

import functools
import inspect

_NAMES = (
    "arange bernoulli diag empty empty_like eye full full_like linspace logspace meshgrid multinomial normal ones ones_like poisson "
    "rand rand_like randint randint_like randn randn_like randperm range standard_gamma standard_normal tril_indices triu_indices "
    "uniform zeros zeros_like"
).split()


def install(paddle) -> None:
    """Wraps the functions that lack the argument, wherever Paddle has bound them publicly."""
    for name in _NAMES:
        function = getattr(paddle, name, None)
        if not callable(function):
            continue
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue
        if "place" in parameters:
            continue
        wrapped = _with_device(function) if "device" in parameters else _with_guard(paddle, function)
        for module in (paddle, paddle.tensor, inspect.getmodule(function)):
            if getattr(module, name, None) is function:
                setattr(module, name, wrapped)


def _with_device(function):
    """For functions that have ``device=``."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if "place" in kwargs:
            place = kwargs.pop("place")
            if place is not None:
                if kwargs.get("device") is not None:
                    raise TypeError(f"{function.__name__}() got both 'place' and 'device'")
                kwargs["device"] = place
        return function(*args, **kwargs)

    return wrapper


def _with_guard(paddle, function):
    """For functions that always use the current device."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        place = kwargs.pop("place", None)
        if place is None:
            return function(*args, **kwargs)
        device = place if isinstance(place, str) else _name_of(place)
        previous = paddle.device.get_device()
        paddle.device.set_device(device)
        try:
            return function(*args, **kwargs)
        finally:
            paddle.device.set_device(previous)

    return wrapper


def _name_of(place) -> str:
    if hasattr(place, "get_device_type"):
        kind = place.get_device_type()
        return kind if kind == "cpu" else f"{kind}:{place.get_device_id()}"
    return "cpu"
