"""The command ``openmps``: what is installed, a demonstration, inference programs, a comparison of speed, the text of a kernel."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

__all__ = ["main"]


class CommandError(Exception):
    """A command was asked for what it cannot do; the message says why and what helps."""

    status = 2


class Unavailable(CommandError):
    """What a command needs is not there."""

    status = 1


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status. What goes wrong is one line on standard error."""
    os.environ.setdefault("GLOG_minloglevel", "1")  # Paddle logs how it loads plug-ins
    try:
        options = _parser().parse_args(arguments)
        return options.run(options)
    except CommandError as error:
        return _failed(error, error.status)
    except ImportError as error:
        return _failed(error, Unavailable.status)
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _failed(error: Exception, status: int) -> int:
    print("openmps:", " ".join(str(error).split()), file=sys.stderr)
    return status


def installed_version(package: str) -> str:
    """The version of a package, as it is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


class _Version(argparse.Action):
    """Prints the version, which is looked up only here: it takes longer than all the other options together."""

    def __call__(self, parser, *_):
        print(f"openmps {installed_version('openmps')}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str):
        raise CommandError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="openmps", description="Deep learning on Metal Performance Shaders, without lock-in.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="devices, memory and versions")
    info.add_argument("--settings", action="store_true", help="every environment variable of openmps, with its meaning")
    info.set_defaults(run=_info)

    demo = commands.add_parser("demo", help="read the text in an image with PP-OCRv4 on device mps, next to Paddle's CPU where Paddle is installed")
    demo.add_argument("image", type=Path, help="a picture with Chinese or English text")
    demo.add_argument("--output", type=Path, help="where the annotated picture goes (default: NAME.openmps.png in this folder)")
    demo.add_argument("--device", type=_device, default="mps", help="the device to run on (default: %(default)s)")
    demo.add_argument("--runs", type=_positive, default=5, help="timed runs on each device; the median counts (default: %(default)s)")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="single operators on device mps, next to Paddle's CPU")
    bench.add_argument("--device", type=_device, default="mps", help="the device to run on (default: %(default)s)")
    bench.add_argument("--seconds", type=_seconds, default=0.5, help="time for each operator on each device (default: %(default)s)")
    bench.set_defaults(run=_bench)

    collective = commands.add_parser("collective", help="communication between processes").add_subparsers(required=True, metavar="COMMAND")
    between = collective.add_parser("bench", help="all-reduce between processes of this machine, next to Paddle's CPU (Gloo)")
    between.add_argument("--ranks", type=_several, default=2, help="processes (default: %(default)s)")
    between.add_argument("--seconds", type=_seconds, default=2.0, help="time for each size (default: %(default)s)")
    between.set_defaults(run=_collective_bench)
    planned = collective.add_parser("plan", help="what all-reduce would take on a cluster, by a simulation of the same algorithms")
    planned.add_argument("--hosts", type=_positive, default=1, help="machines (default: %(default)s)")
    planned.add_argument("--ranks", type=_positive, default=2, help="processes on each (default: %(default)s)")
    planned.add_argument("--cores", type=_positive, help="cores on each (default: one for each process)")
    planned.add_argument("--latency", type=_seconds, default=50e-6, help="seconds that a message is on its way between two (default: %(default)s)")
    planned.add_argument("--gigabits", type=_gigabits, default=10.0, help="a second, on the line of each (default: %(default)s)")
    planned.set_defaults(run=_collective_plan)

    inspected = _program_command(commands, "inspect", "what an inference program of PaddlePaddle or ONNX is made of, and whether openmps runs it")
    _shapes(inspected)
    inspected.set_defaults(run=_inspect)

    executed = _program_command(commands, "run", "an inference program of PaddlePaddle or ONNX on arrays from files")
    executed.add_argument("--input", type=Path, action="append", default=[], help="an array, NAME.npy, for each input in its order")
    executed.add_argument("--output", type=Path, help="where the results go, NAME.npz (default: nowhere)")
    executed.set_defaults(run=_run)

    profiled = _program_command(commands, "profile", "where the time of an inference program goes, step by step")
    _shapes(profiled)
    profiled.add_argument("--runs", type=_positive, default=10, help="runs that are measured (default: %(default)s)")
    profiled.add_argument("--trace", type=Path, help="where the timeline goes, for ui.perfetto.dev (default: nowhere)")
    profiled.add_argument("--counters", type=Path, help="what each kernel does, counted on metal-emulated: a file for a row of each dispatch")
    profiled.set_defaults(run=_profile)

    compiled = commands.add_parser("compile", help="a kernel of Triton as Metal Shading Language, CUDA C++ or openmps's own language")
    compiled.add_argument("kernel", type=Path, help="the text that Triton prints of a module, NAME.ttir (OPENMPS_DUMP writes it)")
    compiled.add_argument("--to", choices=["msl", "cuda", "tile"], default="msl", help="the language (default: %(default)s)")
    compiled.add_argument("--threads", type=_threads, help="threads of a threadgroup (default: as suits the kernel)")
    compiled.set_defaults(run=_compile)

    triton = commands.add_parser("triton", help="Triton without its native library, for machines that PyPI has no wheel for")
    steps = triton.add_subparsers(required=True, metavar="STEP")
    installed = steps.add_parser("install", help="install Triton's Python files, with openmps's native module in place of Triton's own")
    installed.add_argument("--version", default="3.9.0", help="which Triton (default: %(default)s, the one that is tested)")
    installed.add_argument("--target", type=Path, help="a folder for PYTHONPATH (default: this environment)")
    installed.add_argument("--wheel", type=Path, help="the wheel for Linux, where it is on disk already (default: pip downloads it)")
    installed.set_defaults(run=_install_triton)
    return parser


def _program_command(commands, name: str, summary: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary)
    parser.add_argument("model", type=Path, help="inference.json, NAME.pdmodel, NAME.onnx, or the folder that holds one of the first two")
    parser.add_argument("--parameters", type=Path, help="NAME.pdiparams (default: beside the program)")
    return parser


def _shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", type=_shape, action="append", default=[], help="such as 1x3x640x640, for each input in its order")


def _shape(text: str) -> list[int]:
    sizes = text.split("x")
    if not all(size.isascii() and size.isdigit() and len(size) < 10 for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape: write sizes with x between them, such as 1x3x640x640")
    return [int(size) for size in sizes]


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _several(text: str) -> int:
    number = _positive(text)
    if number < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is too few: communication is between two processes at least")
    return number


def _seconds(text: str) -> float:
    return _number(text, 3600, "a number of seconds up to 3600")


def _gigabits(text: str) -> float:
    return _number(text, 1e6, "a number of gigabits above 0")


def _number(text: str, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def _threads(text: str) -> int:
    if text not in ("32", "64", "128", "256", "512", "1024"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a power of two from 32 to 1024")
    return int(text)


def _device(text: str) -> str:
    kind, separator, index = text.partition(":")
    if kind not in ("mps", "cpu") or (separator and (kind == "cpu" or not (index.isascii() and index.isdigit()))):
        raise argparse.ArgumentTypeError(f"{text!r} is no device of this command: write mps, mps:0 or cpu")
    return text


def _console():
    try:
        from rich.console import Console
    except ImportError:
        raise Unavailable("the command needs the package rich: pip install rich") from None
    # A pipe has no width: rich would fold tables at 80 columns.
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140)


def _info(options: argparse.Namespace) -> int:
    console = _console()
    from openmps import information

    return information.settings(console) if options.settings else information.show(console)


def _demo(options: argparse.Namespace) -> int:
    from openmps import picture

    output = options.output if options.output is not None else Path(f"{options.image.stem}.openmps.png")
    picture.check_file(options.image)
    _check_output(output)
    image = picture.load(options.image)
    console = _console()
    from openmps import demo

    return demo.run(image, options.image.name, output, options.device, options.runs, console)


def _check_output(output: Path) -> None:
    if output.is_dir():
        raise CommandError(f"{output} is a folder: name a file for the annotated picture")
    if not output.parent.is_dir():
        raise CommandError(f"{output.parent} is not a folder: the annotated picture cannot be written there")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise CommandError(f"{output} cannot be written: name another file with --output")


def _bench(options: argparse.Namespace) -> int:
    console = _console()
    from openmps import benchmark

    return benchmark.run(options.device, options.seconds, console)


def _collective_bench(options: argparse.Namespace) -> int:
    from openmps import collective

    return collective.run(options.ranks, options.seconds, _console())


def _collective_plan(options: argparse.Namespace) -> int:
    from openmps import collective

    cores = options.cores or options.ranks
    return collective.plan(options.hosts, options.ranks, cores, options.latency, options.gigabits / 8 * 1e9, _console())


def _inspect(options: argparse.Namespace) -> int:
    console = _console()
    from openmps.inference import commands

    return commands.inspect(options.model, options.parameters, options.shape, console)


def _run(options: argparse.Namespace) -> int:
    console = _console()
    from openmps.inference import commands

    return commands.run(options.model, options.parameters, options.input, options.output, console)


def _profile(options: argparse.Namespace) -> int:
    console = _console()
    if options.counters:
        # The device reads it when it compiles its first kernel.
        os.environ["OPENMPS_EMULATOR_COUNT"] = os.fspath(options.counters)
    from openmps.inference import commands

    return commands.profile(options.model, options.parameters, options.shape, options.runs, options.trace, console)


def _install_triton(options: argparse.Namespace) -> int:
    from openmps.triton import installation

    if options.version not in installation.VERSIONS:
        raise CommandError(f"Triton {options.version} is not tested without its native library; tested: {', '.join(installation.VERSIONS)}")
    folder = installation.install(options.version, options.target, options.wheel)
    print(f"Triton {options.version} is in {folder}")
    return 0


def _compile(options: argparse.Namespace) -> int:
    try:
        text = options.kernel.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CommandError(f"{options.kernel} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    from paddle_custom_device import openmps_native

    try:  # the text goes as it is to a file or another program
        sys.stdout.write(openmps_native.kernel_text(text, options.to, options.threads))
        sys.stdout.flush()
    except (NotImplementedError, ValueError) as error:
        raise CommandError(f"{options.kernel}: {str(error).removeprefix('mps: ')}") from None
    return 0


def require_device(device: str) -> None:
    """Refuses, with the reason, a device that is not there, to Paddle's operators."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return
    try:
        from openmps.paddle import mps
    except ImportError as error:
        raise Unavailable(f"PaddlePaddle cannot be imported ({error}): pip install 'openmps[paddle]'") from None
    if not mps.is_available():
        raise Unavailable(f"device mps is not available: {mps.unavailable_reason()}")
    if int(index or 0) >= mps.device_count():
        raise CommandError(f"device {device} does not exist: there are {mps.device_count()}")


def require_executor(device: str) -> None:
    """Refuses, with the reason, a device that is not there, to inference programs, which need no Paddle but on its CPU."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        from importlib.util import find_spec

        if find_spec("paddle") is None:
            raise Unavailable("device cpu is PaddlePaddle's, which is not installed: pip install 'openmps[paddle]'")
        return
    from openmps import native

    try:
        native.device_properties(0)
    except RuntimeError as error:
        raise Unavailable(f"device mps is not available: {error}") from None
    if int(index or 0) >= native.device_count():
        raise CommandError(f"device {device} does not exist: there are {native.device_count()}")
