"""The command ``openmps``: what is installed, a demonstration, a comparison of speed, the text of a kernel."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("GLOG_minloglevel", "1")  # Paddle logs how it loads plug-ins
    try:
        from rich.console import Console
        from rich.markup import escape
    except ImportError:
        print("openmps: the command needs the package rich: pip install rich", file=sys.stderr)
        return 1
    console = Console()
    try:
        return options.run(options, console)
    except (ImportError, CommandError) as error:
        console.print(f"[bold red]openmps:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130


class CommandError(Exception):
    """A command cannot do what it was asked; the message says why and what helps."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="openmps", description="Deep learning on Metal Performance Shaders, without lock-in.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="devices, memory and versions")
    info.add_argument("--settings", action="store_true", help="every environment variable of openmps, with its meaning")
    info.set_defaults(run=_info)

    demo = commands.add_parser("demo", help="read the text in an image with PP-OCRv4 on device mps, next to Paddle's CPU")
    demo.add_argument("image", type=Path, help="a picture with Chinese or English text")
    demo.add_argument("--output", type=Path, help="where the annotated picture goes (default: NAME.openmps.png in this folder)")
    demo.add_argument("--device", default="mps", help="the device to run on (default: %(default)s)")
    demo.add_argument("--runs", type=_positive, default=5, help="timed runs on each device; the median counts (default: %(default)s)")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="single operators on device mps, next to Paddle's CPU")
    bench.add_argument("--device", default="mps", help="the device to run on (default: %(default)s)")
    bench.add_argument("--seconds", type=float, default=0.5, help="time for each operator on each device (default: %(default)s)")
    bench.set_defaults(run=_bench)

    compiled = commands.add_parser("compile", help="a kernel of Triton as Metal Shading Language, CUDA C++ or openmps's own language")
    compiled.add_argument("kernel", type=Path, help="the text that Triton prints of a module, NAME.ttir (OPENMPS_DUMP writes it)")
    compiled.add_argument("--to", choices=["msl", "cuda", "tile"], default="msl", help="the language (default: %(default)s)")
    compiled.add_argument("--threads", type=_positive, help="threads of a threadgroup (default: as suits the kernel)")
    compiled.set_defaults(run=_compile)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _info(options: argparse.Namespace, console) -> int:
    from openmps import information

    return information.settings(console) if options.settings else information.show(console)


def _demo(options: argparse.Namespace, console) -> int:
    from openmps import demo

    return demo.run(options.image, options.output, options.device, options.runs, console)


def _bench(options: argparse.Namespace, console) -> int:
    from openmps import benchmark

    return benchmark.run(options.device, options.seconds, console)


def _compile(options: argparse.Namespace, console) -> int:
    from paddle_custom_device import openmps_native

    del console  # the text goes as it is to a file or another program
    try:
        text = options.kernel.read_text(encoding="utf-8")
        sys.stdout.write(openmps_native.kernel_text(text, options.to, options.threads))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{options.kernel} cannot be read: {error}") from None
    except (NotImplementedError, ValueError) as error:
        raise CommandError(f"{options.kernel}: {str(error).removeprefix('mps: ')}") from None
    return 0


def require_device(device: str) -> None:
    """Refuses, with the reason, a device that Paddle does not have."""
    import paddle

    kind, _, index = device.partition(":")
    if kind == "cpu":
        return
    if kind != "mps":
        raise CommandError(f"{device!r} is no device of this command: write mps, mps:0 or cpu")
    if not paddle.mps.is_available():
        raise CommandError(f"device mps is not available: {paddle.mps.unavailable_reason()}")
    if int(index or 0) >= paddle.mps.device_count():
        raise CommandError(f"device {device} does not exist: there are {paddle.mps.device_count()}")
