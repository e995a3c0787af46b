"""Pictures of any kind as one kind: RGB, 8 bits, upright, on white, no larger than text recognition needs."""

from __future__ import annotations

import warnings
from pathlib import Path

from openmps.cli import CommandError, Unavailable

#: More pixels are not decoded: 20,000 x 20,000 are 1.6 GB.
MOST_PIXELS = 400_000_000
#: The longer side of what is recognised. The models work on 2,000.
LONGEST_SIDE = 4_000
#: The longer side in terms of the shorter one.
NARROWEST = 40
#: What is decoded by Pillow itself; other formats would start other programs.
_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA", "TIFF", "WEBP")


def check_file(path: Path) -> None:
    """Refuses, with the reason, what is no file with something in it."""
    try:
        if path.is_dir():
            raise CommandError(f"{path} is a folder, not a picture")
        with path.open("rb") as file:
            if not file.read(1):
                raise CommandError(f"{path} is empty")
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def load(path: Path):
    """The picture as a ``PIL.Image`` of mode RGB; of an animation the first frame."""
    check_file(path)
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise Unavailable(f"the demo needs Pillow ({error}): pip install 'openmps[ocr]'") from None
    Image.init()
    unlimited, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # the size is checked here, before anything is decoded
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=[name for name in _FORMATS if name in Image.OPEN]) as opened:
                width, height = opened.size
                if width * height > MOST_PIXELS:
                    raise CommandError(f"{path} has {width} x {height} pixels; at most {MOST_PIXELS:,} are read")
                opened.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # decoders that can do so begin with a smaller one
                opened.load()
                return _padded(_rgb(_bounded(ImageOps.exif_transpose(opened))))
    except CommandError:
        raise
    except Exception as error:  # decoders raise whatever comes to them
        reason = "its content is that of no known format" if type(error).__name__ == "UnidentifiedImageError" else error
        raise CommandError(f"{path} is no picture that can be read: {reason}") from None
    finally:
        Image.MAX_IMAGE_PIXELS = unlimited


def _bounded(image):
    """The picture, or a smaller one where its longer side is too long."""
    if max(image.size) <= LONGEST_SIDE:
        return image
    scale = LONGEST_SIDE / max(image.size)
    size = tuple(max(1, round(side * scale)) for side in image.size)
    # Pixels of a palette, or without a filter of their own, cannot be averaged: every n-th is taken.
    return image.resize(size, reducing_gap=2.0) if image.mode in ("L", "RGB", "RGBA", "LA", "CMYK") else image.resize(size, 0)


def _padded(image):
    """The picture, on white paper where it is so narrow that the models' sizes would leave nothing of it."""
    from PIL import Image

    least = max(image.size) // NARROWEST
    if min(image.size) >= least:
        return image
    paper = Image.new("RGB", (max(image.width, least), max(image.height, least)), "white")
    paper.paste(image, (0, 0))
    return paper


def _rgb(image):
    from PIL import Image

    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    if image.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image):
    """Gray of 16 or 32 bits, or of floats, as gray of 8: `convert` would cut what is above 255."""
    import numpy as np
    from PIL import Image

    values = np.nan_to_num(np.asarray(image).astype(np.float32), posinf=0.0, neginf=0.0)
    if image.mode.startswith("I;16"):
        low, high = 0.0, 65535.0
    else:
        low, high = float(values.min()), float(values.max())
    return Image.fromarray(((values - low) * (255.0 / max(high - low, 1e-30))).round().astype(np.uint8))
