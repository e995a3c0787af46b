"""Draws what was read: boxes on the picture, and the text at the same places beside it."""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_COLOURS = [(52, 120, 198), (214, 93, 66), (60, 148, 98), (150, 96, 180), (196, 138, 30), (64, 150, 168)]
_PAPER, _INK = (252, 252, 250), (30, 32, 36)
# Fonts with Chinese and Japanese characters where systems keep them; the first that exists is taken.
_FONTS = [
    "/System/Library/Fonts/PingFang.ttc",
    "/System/Library/Fonts/STHeiti Medium.ttc",
    "/System/Library/Fonts/Hiragino Sans GB.ttc",
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
    "/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf",
]


def annotate(image: Image.Image, lines, target: Path) -> None:
    """Writes a PNG: the picture with a numbered box around each line, and a page with the text at the same places.

    `lines` have `box` (four corners) and `text`. Without a font for Chinese on this machine such lines show their number alone,
    which is the number in the table.
    """
    picture = image.copy()
    page = Image.new("RGB", picture.size, _PAPER)
    boxes, words = ImageDraw.Draw(picture, "RGBA"), ImageDraw.Draw(page)
    for number, line in enumerate(lines, 1):
        colour = _COLOURS[number % len(_COLOURS)]
        corners = [tuple(corner) for corner in line.box]
        boxes.polygon(corners, fill=(*colour, 40), outline=(*colour, 255), width=2)
        words.polygon(corners, outline=(*colour, 255))
        _number(boxes, corners[0], number, colour)
        _write(words, corners, line.text if _drawable(line.text) else f"#{number}")
    sheet = Image.new("RGB", (picture.width * 2, picture.height), _PAPER)
    sheet.paste(picture, (0, 0))
    sheet.paste(page, (picture.width, 0))
    sheet.save(target, "PNG", optimize=True)


def _number(draw: ImageDraw.ImageDraw, corner: tuple[float, float], number: int, colour: tuple[int, int, int]) -> None:
    """A number on a small tag at the corner of a box."""
    font = ImageFont.load_default(12)
    x, y = corner[0], max(0.0, corner[1] - 15)
    left, top, right, bottom = draw.textbbox((x + 3, y + 1), str(number), font)
    draw.rectangle((left - 3, top - 2, right + 3, bottom + 2), fill=(*colour, 255))
    draw.text((x + 3, y + 1), str(number), (255, 255, 255, 255), font)


def _write(draw: ImageDraw.ImageDraw, corners: list[tuple[float, float]], text: str) -> None:
    """Text as large as its box allows, from the box's left edge, or from its upper one where the box is upright."""
    left, top = min(x for x, _ in corners), min(y for _, y in corners)
    width, height = max(x for x, _ in corners) - left, max(y for _, y in corners) - top
    if height > 1.5 * width:
        size = max(6, int(min(width * 0.9, height / max(1, len(text)))))
        for index, character in enumerate(text):
            draw.text((left + width / 2, top + (index + 0.5) * height / len(text)), character, _INK, _font(size), "mm")
        return
    size = max(6, int(height * 0.8))
    length = draw.textlength(text, _font(size))
    if length > width:
        size = max(6, int(size * width / length))
    draw.text((left, top + height / 2), text, _INK, _font(size), "lm")


def _drawable(text: str) -> bool:
    return _font_file() is not None or all(ord(character) < 0x250 for character in text)


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    file = _font_file()
    return ImageFont.load_default(size) if file is None else ImageFont.truetype(file, size)


@lru_cache(maxsize=1)
def _font_file() -> str | None:
    """A font of this machine that has Chinese characters."""
    for path in _FONTS:
        if Path(path).is_file():
            return path
    if shutil.which("fc-match") is None:
        return None
    asked = subprocess.run(["fc-match", "--format=%{file}|%{lang}", ":lang=zh-cn"], capture_output=True, text=True)
    file, _, languages = asked.stdout.partition("|")
    return file if asked.returncode == 0 and "zh-cn" in languages.split("|") and Path(file).is_file() else None
