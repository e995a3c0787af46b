"""``openmps triton install``: Triton where PyPI has no wheel for the machine, or its native library is not wanted.

Triton's front end is Python; of its native library, 500 MB of LLVM and compilers for GPUs, openmps needs nothing. So the Python files are taken,
unchanged, from the wheel that PyPI has for Linux, with their licence, and ``triton/_C/libtriton`` becomes openmps's native module.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path, PurePosixPath

from openmps.cli import CommandError, Unavailable

#: Versions whose Python files have been tested with openmps's native module.
VERSIONS = ("3.9.0",)

#: Wheels hold the same Python files for each version of Python and each machine: this one is always taken.
_WHEEL = ("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_27_x86_64", "--implementation", "cp", "--python-version", "3.11")

#: Folders whose Python files work only with the compilers that stay away.
_LEFT_OUT = ("triton/backends/nvidia/", "triton/backends/amd/")

_STAND_IN = '''"""Written by ``openmps triton install``: openmps's native module stands where Triton's own native library was."""

from openmps.triton.libtriton import fill

fill(__name__)
'''

#: Beside the native library lies that of the profiler, whose Python files come along.
_NO_PROTON = '''"""Written by ``openmps triton install``."""

raise ImportError("mps: proton, which profiles kernels of NVIDIA's and AMD's GPUs, needs Triton's own native library; OPENMPS_TRACE=FILE traces launches")
'''


def install(version: str, target: Path | None, wheel: Path | None) -> Path:
    """Installs into a folder, or into the running environment; returns where."""
    folder = target if target is not None else Path(sysconfig.get_path("purelib"))
    if target is None:
        _refuse_another()
    elif folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is no folder")
    if wheel is not None:
        _unpack(wheel, version, folder)
        return folder
    with tempfile.TemporaryDirectory() as downloads:
        _unpack(_download(version, Path(downloads)), version, folder)
    return folder


def _refuse_another() -> None:
    """A Triton that pip installed works as it is, and is not overwritten."""
    try:
        found = metadata.distribution("triton")
    except metadata.PackageNotFoundError:
        return
    if (found.read_text("INSTALLER") or "").strip() != "openmps":
        raise CommandError(f"Triton {found.version} is installed already and works with openmps; to replace it: pip uninstall triton")


def _download(version: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run([*pip, *_WHEEL, "--dest", str(folder), f"triton=={version}"], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "pip failed").splitlines()[-1]
        raise Unavailable(f"Triton {version} cannot be downloaded: {reason}")
    return next(folder.glob("*.whl"))


def _is_wanted(name: str) -> bool:
    path = PurePosixPath(name)
    if name.startswith(_LEFT_OUT) or path.is_absolute() or ".." in path.parts:
        return False
    if path.parts[0] == "triton":
        return path.suffix in (".py", ".pyi") or path.name == "py.typed"
    return name.endswith("METADATA") or "licenses" in path.parts or path.name.startswith("LICENSE")


def _unpack(wheel: Path, version: str, folder: Path) -> None:
    try:
        archive = zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile) as error:
        raise CommandError(f"{wheel} cannot be read: {error}") from None
    with archive:
        information = f"triton-{version}.dist-info"
        if f"{information}/METADATA" not in archive.namelist():
            raise CommandError(f"{wheel} is no wheel of Triton {version}")
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/") and _is_wanted(name)}
    files["triton/_C/libtriton/__init__.py"] = _STAND_IN.encode()
    files["triton/_C/libproton.py"] = _NO_PROTON.encode()
    # Triton's cache of kernels reads the library's file; its content is part of each kernel's key.
    library = "triton/_C/libtriton." + sysconfig.get_config_var("EXT_SUFFIX").rsplit(".", 1)[-1]
    files[library] = b"openmps stands here: see libtriton/__init__.py\n"
    files[f"{information}/INSTALLER"] = b"openmps\n"
    files[f"{information}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: openmps\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{information}/RECORD"] = _record(files, f"{information}/RECORD")
    _remove_earlier(folder, information)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _record(files: dict[str, bytes], itself: str) -> bytes:
    """The list of files that pip needs to uninstall them."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([itself, "", ""])
    return text.getvalue().encode()


def _remove_earlier(folder: Path, information: str) -> None:
    """Files of an earlier installation by this command."""
    for record in folder.glob("triton-*.dist-info/RECORD"):
        if not re.fullmatch(r"triton-[0-9.]+\.dist-info", record.parent.name):
            continue
        installer = record.with_name("INSTALLER")
        if not installer.exists() or installer.read_text().strip() != "openmps":
            raise CommandError(f"{record.parent} was installed by somebody else")
        for row in csv.reader(record.read_text().splitlines()):
            (folder / row[0]).unlink(missing_ok=True)
