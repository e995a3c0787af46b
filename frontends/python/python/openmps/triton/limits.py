"""What a kernel may use of a GPU at the most. Triton hands a driver the kernel's text and nothing else, so limits are its first line."""

from __future__ import annotations

import re

#: What may be asked for by ``set_kernel_config``: the least and the most.
RANGES = {"num_warps": (1, 32), "num_stages": (1, 16), "max_threads": (32, 1024), "shared_memory": (0, 32768)}

#: Those that become part of the text, where they are given.
_WRITTEN = ("max_threads", "shared_memory")
_LINE = re.compile(r"// openmps limits:((?: \w+=\d+)+)\n")


def check(name: str, value: int) -> None:
    """An error that names the setting and its value, where it is none or out of its range."""
    if name not in RANGES:
        raise ValueError(f"mps: {name!r} is no setting; there are: {', '.join(RANGES)}")
    low, high = RANGES[name]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"mps: {name}={value!r} is outside {low} to {high}")


def written(text: str, options) -> str:
    """The text of a kernel with the limits that its options have."""
    limits = [f"{name}={value}" for name in _WRITTEN if (value := getattr(options, name)) is not None]
    return f"// openmps limits: {' '.join(limits)}\n{text}" if limits else text


def read(text: str) -> dict[str, int]:
    """The limits that were written into a text."""
    found = _LINE.match(text)
    pairs = (part.split("=") for part in found.group(1).split()) if found else ()
    return {name: int(value) for name, value in pairs}
