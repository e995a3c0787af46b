"""bfloat16 in ``paddle.amp``: Paddle keeps a list of device types that may have it, and ``mps`` is not on it."""

from __future__ import annotations

import importlib


def install(paddle) -> None:
    """Adds device ``mps`` to that list."""
    # `paddle.amp.auto_cast` is a function; the module behind it has the same name.
    auto_cast = importlib.import_module("paddle.amp.auto_cast")
    original = getattr(auto_cast, "_is_custom_device_bfloat16_supported", None)
    if original is None:
        return

    def supported() -> bool:
        place = auto_cast._current_expected_place()
        return (place.is_custom_place() and place.get_device_type() == "mps") or original()

    vars(auto_cast)["_is_custom_device_bfloat16_supported"] = supported
