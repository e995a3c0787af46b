"""python -m differential.triton FILE...: kernels that a run printed, once more on both sides; OPENMPS_DEVICE names the device."""

import os
import sys
import tempfile
from pathlib import Path

from .runs import Sides
from .worker import load


def main() -> int:
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(Path(folder), os.environ.get("OPENMPS_DEVICE", "host"))
        for path in sys.argv[1:]:
            outcome, what = sides.try_file(Path(path).resolve(), load(path).BUFFERS)
            print(f"{path}: {outcome} {what}")
            failed |= outcome != "agreed"
        sides.end()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
