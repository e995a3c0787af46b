"""Bad arguments and files of the command `openmps`: one line on standard error, exit status 2, and nothing heavy imported before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

# Runs the command with each list of arguments in one process; answers with (status, standard output, standard error, heavy modules).
RUNNER = """
import contextlib, io, json, sys
from openmps.cli import main
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    heavy = [name for name in ("paddle", "cv2", "rapidocr_paddle", "rich", "numpy", "triton") if name in sys.modules]
    answers.append((status, out.getvalue(), err.getvalue(), heavy))
print(json.dumps(answers))
"""


def answers(folder: Path, *calls: list[str]) -> list[tuple[int, str, str, list[str]]]:
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", RUNNER], input=json.dumps(calls), cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_wrong_is_one_line_before_anything_heavy(tmp_path: Path) -> None:
    good = tmp_path / "good.png"
    Image.new("RGB", (40, 30), "white").save(good)
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("no picture at all\n" * 100)
    (tmp_path / "cut.png").write_bytes(_noise(good)[:2000])
    (tmp_path / "cut.jpg").write_bytes(_noise(tmp_path / "x.jpg")[:2000])
    (tmp_path / "head.png").write_bytes(good.read_bytes()[:20])
    (tmp_path / "huge.png").write_bytes(_png_of(200_000, 200_000))
    (tmp_path / "script.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n")
    (tmp_path / "locked.png").write_bytes(good.read_bytes())
    (tmp_path / "locked.png").chmod(0)
    picture = str(good)
    cases = {
        ("demo", "missing.png"): "missing.png cannot be read: No such file or directory",
        ("demo", "missing/good.png"): "cannot be read",
        ("demo", "."): ". is a folder",
        ("demo", "a\0b.png"): "cannot be read",
        ("demo", "x" * 5000): "cannot be read: File name too long",
        ("demo", "empty.png"): "empty.png is empty",
        ("demo", "text.png"): "text.png is no picture that can be read: its content is that of no known format",
        ("demo", "cut.png"): "cut.png is no picture that can be read",
        ("demo", "cut.jpg"): "cut.jpg is no picture that can be read",
        ("demo", "head.png"): "head.png is no picture that can be read",
        ("demo", "huge.png"): "huge.png has 200000 x 200000 pixels; at most 400,000,000 are read",
        ("demo", "script.eps"): "script.eps is no picture that can be read",
        ("demo",): "image",
        ("demo", picture, "--runs", "0"): "'0' is not a positive number",
        ("demo", picture, "--runs", "many"): "'many' is not a positive number",
        ("demo", picture, "--device", "gpu"): "'gpu' is no device of this command",
        ("demo", picture, "--device", "mps:x"): "'mps:x' is no device of this command",
        ("demo", picture, "--output", "."): ". is a folder",
        ("demo", picture, "--output", "missing/out.png"): "missing is not a folder",
        ("demo", picture, "--colour"): "--colour",
        ("bench", "--seconds", "nan"): "'nan' is not a number of seconds",
        ("bench", "--seconds", "-1"): "'-1' is not a number of seconds",
        ("collective", "bench", "--ranks", "1"): "'1' is too few",
        ("collective", "plan", "--gigabits", "0"): "'0' is not a number of gigabits",
        ("compile", "missing.ttir"): "missing.ttir cannot be read",
        ("compile", "."): ". cannot be read",
        ("compile", "good.png"): "good.png cannot be read",
        ("compile", "text.png", "--threads", "33"): "'33' is not a power of two from 32 to 1024",
        ("compile", "text.png", "--to", "java"): "java",
        ("fly",): "fly",
        (): "COMMAND",
    }
    if os.geteuid() != 0:
        cases["demo", "locked.png"] = "locked.png cannot be read: Permission denied"
    for (arguments, words), (status, out, err, heavy) in zip(cases.items(), answers(tmp_path, *map(list, cases)), strict=True):
        assert status == 2 and out == "", (arguments, status, out, err)
        assert err.startswith("openmps: ") and err.count("\n") == 1 and words in err, (arguments, err)
        assert heavy == [], (arguments, heavy)


def _noise(path: Path) -> bytes:
    """A picture that does not compress."""
    Image.effect_noise((200, 150), 90).convert("RGB").save(path.with_stem("noise"))
    return path.with_stem("noise").read_bytes()


def _png_of(width: int, height: int) -> bytes:
    """The beginning of a PNG of any size."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def _sign(mode: str = "RGB", size: tuple[int, int] = (64, 48)) -> Image.Image:
    """White, with a black rectangle in the upper left quarter."""
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).rectangle((0, 0, size[0] // 2 - 1, size[1] // 2 - 1), fill=0)
    return image.convert(mode)


def _deep(kind: str) -> Image.Image:
    import numpy as np

    gray = np.asarray(_sign("L"))
    values = {"I;16": gray.astype("uint16") * 257, "I": gray.astype("int32") * 1000, "F": gray.astype("float32") / 255}
    return Image.fromarray(values[kind])


def _transparent(mode: str) -> Image.Image:
    """What is white in the sign is transparent black here."""
    sign = _sign("L")
    image = Image.merge("LA", (Image.new("L", sign.size, 0), sign.point(lambda v: 255 - v)))
    return image.convert(mode)


PICTURES = {
    "plain.png": (_sign, {}),
    "gray.png": (lambda: _sign("L"), {}),
    "bilevel.png": (lambda: _sign("1"), {}),
    "palette.gif": (lambda: _sign("P"), {}),
    "alpha.png": (lambda: _transparent("RGBA"), {}),
    "gray_alpha.png": (lambda: _transparent("LA"), {}),
    "alpha.webp": (lambda: _transparent("RGBA"), {"lossless": True}),
    "transparent_palette.png": (lambda: _transparent("RGBA").quantize(4), {}),
    "cmyk.jpg": (lambda: _sign("CMYK"), {}),
    "cmyk.tiff": (lambda: _sign("CMYK"), {}),
    "deep.png": (lambda: _deep("I;16"), {}),
    "deep.tiff": (lambda: _deep("I"), {}),
    "floats.tiff": (lambda: _deep("F"), {}),
    "animated.gif": (_sign, {"save_all": True, "append_images": [Image.new("RGB", (64, 48), "red")]}),
    "animated.png": (_sign, {"save_all": True, "append_images": [Image.new("RGB", (64, 48), "red")]}),
    "plain.bmp": (_sign, {}),
    "plain.ppm": (_sign, {}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_every_kind_of_picture_becomes_one_kind(name: str, tmp_path: Path) -> None:
    from openmps.picture import load

    make, options = PICTURES[name]
    made = tmp_path / name
    make().save(made, **options)
    wrong = made.rename(tmp_path / "picture.txt") if name == "plain.png" else made  # the content decides, not the name
    loaded = load(wrong)
    assert (loaded.mode, loaded.size) == ("RGB", (64, 48))
    for place, wanted in (((5, 5), 0), ((60, 5), 255), ((5, 45), 255), ((60, 45), 255)):
        assert all(abs(value - wanted) < 24 for value in loaded.getpixel(place)), (name, place, loaded.getpixel(place))


def test_pictures_stand_as_their_camera_says(tmp_path: Path) -> None:
    from openmps.picture import load

    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side: turn by 90 degrees
    _sign().save(tmp_path / "turned.jpg", exif=exif, quality=95)
    loaded = load(tmp_path / "turned.jpg")
    assert loaded.size == (48, 64) and max(loaded.getpixel((43, 5))) < 24 and min(loaded.getpixel((5, 5))) > 230


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1, 1), (1, 1)), ((1, 9000), (100, 4000)), ((9000, 20), (4000, 100)), ((20_000, 20_000), (4000, 4000))],
    ids=lambda size: "x".join(map(str, size)),
)
def test_sizes_are_bounded(size: tuple[int, int], expected: tuple[int, int], tmp_path: Path) -> None:
    from openmps.picture import load

    Image.new("1", size, 1).save(tmp_path / "big.png")
    loaded = load(tmp_path / "big.png")
    assert loaded.size == expected and loaded.getpixel((0, 0)) == (255, 255, 255)
