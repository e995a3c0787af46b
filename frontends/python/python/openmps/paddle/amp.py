"""bfloat16 in ``paddle.amp``: Paddle keeps a list of device types that may have it, and ``mps`` is not on it."""

from __future__ import annotations


def install(paddle) -> None:
    """Adds device ``mps`` to that list."""
    from paddle.amp import auto_cast

    original = getattr(auto_cast, "_is_custom_device_bfloat16_supported", None)
    if original is None:
        return

    def supported() -> bool:
        place = auto_cast._current_expected_place()
        return (place.is_custom_place() and place.get_device_type() == "mps") or original()

    auto_cast._is_custom_device_bfloat16_supported = supported
