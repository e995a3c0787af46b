"""``openmps info``: what is installed, which devices there are, and what stands in the way where there is none."""

from __future__ import annotations

import platform
from typing import Any

from rich.markup import escape
from rich.table import Table

from openmps.cli import installed_version

_PACKAGES = ("openmps", "paddlepaddle", "triton", "numpy", "rapidocr_paddle")


def show(console) -> int:
    """Prints everything; the exit status is 1 where there is no device, or Paddle, which is installed, has none."""
    table = Table("", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("system", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}")
    for package in _PACKAGES:
        table.add_row(package, installed_version(package))
    settings, problems = _settings()
    for name, value in settings:
        table.add_row(name, escape(value))
    console.print(table)
    for problem in problems:
        console.print(f"[yellow]{escape(problem)}[/]", highlight=False, soft_wrap=True)
    console.print()
    try:
        console.print(_devices())
    except (ImportError, RuntimeError) as error:
        console.print(f"[bold red]device mps is not available:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 1
    try:
        from openmps.paddle import mps
    except ImportError as error:
        console.print(f"\nPaddlePaddle cannot be imported ({escape(str(error))}); inference programs and Triton need none", soft_wrap=True)
        return 0
    reason = mps.unavailable_reason()
    if reason is not None:
        console.print(f"\n[bold red]PaddlePaddle has no device mps:[/] {escape(reason)}", highlight=False, soft_wrap=True)
        return 1
    kernels = mps.kernels()
    console.print(f"\n{len(kernels)} kernels of PaddlePaddle, {sum(map(len, kernels.values()))} with their element types")
    return 0


def settings(console) -> int:
    """Prints every setting: what is allowed, what holds here, what it changes."""
    from openmps import native

    table = Table("variable", "here", "allowed", "default", "meaning", title="Settings", title_justify="left")
    for name, rule, default, meaning, value in native.settings():
        table.add_row(name, "" if value is None else escape(value), escape(rule), escape(default), escape(meaning))
    console.print(table)
    return 0


def _settings() -> tuple[list[tuple[str, str]], list[str]]:
    """What the environment sets, what is wrong with it, and what Apple's libraries have answered wrongly here."""
    try:
        from openmps import native
    except ImportError:  # the rest of `info` says so
        return [], []
    problems = native.setting_problems() + native.wrong_answers()
    return [(name, value) for name, *_, value in native.settings() if value is not None], problems


def _devices() -> Table:
    from openmps import native

    table = Table("device", "name", "runs on", "threads", "memory", title="Devices", title_justify="left")
    native.device_properties(0)  # says why there is none
    for index in range(native.device_count()):
        properties: dict[str, Any] = native.device_properties(index)
        backend = properties["backend"]
        table.add_row(
            f"mps:{index}",
            properties["name"],
            f"{backend} ({properties['vector_level']})" if backend == "host" else backend,
            str(properties["threads"]),
            f"{properties['total_memory'] / 2**30:.1f} GiB",
        )
    return table
