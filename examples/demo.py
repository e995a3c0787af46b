"""PP-OCRv4 on device `mps`: reads a poster in Chinese and English, next to PaddlePaddle's own CPU kernels.

    python examples/demo.py [IMAGE] [--runs N]

The same as `openmps demo examples/images/bookshop.png`. It needs the wheel's extra `ocr`: README.md, section Install.
"""

import sys
from pathlib import Path

from openmps.cli import main

IMAGE = Path(__file__).resolve().parent / "images" / "bookshop.png"

if __name__ == "__main__":
    arguments = sys.argv[1:]
    named = bool(arguments) and not arguments[0].startswith("-")
    sys.exit(main(["demo", *([] if named else [str(IMAGE)]), *arguments]))
