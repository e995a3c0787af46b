"""Random numbers: the generator of each device."""

from __future__ import annotations

import functools
import operator
import os

from paddle.base import core

from openmps.paddle.devices import MPSPlace, device_count, index_of


def _generator(index: int):
    return core.default_custom_device_generator(MPSPlace(index))


def manual_seed(seed: int) -> None:
    """Seeds the generator of every device of type mps with an integer of 64 bits; negative ones count from the largest down."""
    number = operator.index(seed)
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"the seed {seed} has more than 64 bits")
    for index in range(device_count()):
        _generator(index).manual_seed(number % (1 << 64))


def seed() -> int:
    """Seeds the generators with a number from the system, and returns it."""
    value = int.from_bytes(os.urandom(8), "little") >> 1
    manual_seed(value)
    return value


def get_rng_state(device=None):
    """The state of a device's generator, for :func:`set_rng_state`."""
    return _generator(index_of(device)).get_state()


def set_rng_state(new_state, device=None) -> None:
    """Sets the state of a device's generator to one that :func:`get_rng_state` gave."""
    if not isinstance(new_state, core.GeneratorState):
        raise TypeError(f"the state is {new_state!r}, expected one of get_rng_state")
    _generator(index_of(device)).set_state(new_state)


def install(paddle) -> None:
    """Wraps ``paddle.seed``: while a static program is built, Paddle 3.3 knows no device there, and seeds the CPU's generator alone."""
    original = paddle.seed

    @functools.wraps(original)
    def seed_all(seed):
        generator = original(seed)
        if paddle.framework.in_pir_mode():
            manual_seed(seed)
        return generator

    for module in (paddle, paddle.framework, paddle.framework.random):
        if getattr(module, "seed", None) is original:
            module.seed = seed_all
