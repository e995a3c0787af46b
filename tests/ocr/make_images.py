"""Draws the test images of tests/ocr/images and the demo's image.

    python tests/ocr/make_images.py

The images are committed, so that tests need neither fonts nor this script. It is deterministic: the same fonts and the same Pillow
draw the same bytes. Fonts: Debian's fonts-noto-cjk, fonts-noto-core and fonts-dejavu-core (SIL Open Font License, Bitstream Vera).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

HERE = Path(__file__).resolve().parent
IMAGES = HERE / "images"
DEMO = HERE.parent.parent / "examples" / "images" / "bookshop.png"
FONTS = Path("/usr/share/fonts")
FACES = {
    "sans": ("opentype/noto/NotoSansCJK-Regular.ttc", 0),  # face 0 draws Japanese forms, 2 simplified Chinese ones
    "bold": ("opentype/noto/NotoSansCJK-Bold.ttc", 0),
    "chinese": ("opentype/noto/NotoSansCJK-Regular.ttc", 2),
    "chinese-bold": ("opentype/noto/NotoSansCJK-Bold.ttc", 2),
    "song": ("opentype/noto/NotoSerifCJK-Regular.ttc", 2),
    "song-bold": ("opentype/noto/NotoSerifCJK-Bold.ttc", 2),
    "latin": ("truetype/dejavu/DejaVuSans.ttf", 0),
    "serif": ("truetype/noto/NotoSerif-Regular.ttf", 0),
    "serif-bold": ("truetype/noto/NotoSerif-Bold.ttf", 0),
    "mono": ("truetype/dejavu/DejaVuSansMono.ttf", 0),
}
WHITE, INK = (255, 255, 255), (24, 26, 30)
Colour = tuple[int, int, int]


def font(face: str, size: int) -> ImageFont.FreeTypeFont:
    """A face of `FACES` at a size, laid out by Pillow itself so that no shaping library matters."""
    path, index = FACES[face]
    return ImageFont.truetype(FONTS / path, size, index=index, layout_engine=ImageFont.Layout.BASIC)


class Page:
    """An image that is written from top to bottom."""

    def __init__(self, width: int, height: int, background: Colour = WHITE) -> None:
        self.image = Image.new("RGB", (width, height), background)
        self.draw = ImageDraw.Draw(self.image)

    def text(self, x: int, y: int, words: str, face: str, size: int, fill: Colour = INK, anchor: str = "la") -> None:
        self.draw.text((x, y), words, fill, font(face, size), anchor)

    def lines(self, x: int, y: int, step: int, words: list[str], face: str, size: int, fill: Colour = INK) -> None:
        for number, line in enumerate(words):
            self.text(x, y + number * step, line, face, size, fill)


def latin() -> Image.Image:
    page = Page(560, 420)
    page.lines(40, 60, 104, ["The quick brown fox jumps", "over 13 lazy dogs, twice!", "openmps@example.org"], "latin", 34)
    return page.image


def chinese() -> Image.Image:
    page = Page(600, 440)
    page.lines(44, 56, 112, ["春眠不觉晓，处处闻啼鸟。", "夜来风雨声，花落知多少。", "孟浩然《春晓》"], "song", 40)
    return page.image


def mixed() -> Image.Image:
    page = Page(640, 460, (250, 248, 240))
    words = ["使用 PaddlePaddle 3.3.1 进行推理", "GPU 显存: 24 GB，功耗 350 W", "Release 2026-11-21 版本说明"]
    page.lines(36, 60, 116, words, "chinese", 34, (40, 40, 90))
    return page.image


def sign() -> Image.Image:
    """A street sign, Japanese and Chinese."""
    page = Page(560, 440, (28, 92, 62))
    page.draw.rounded_rectangle((10, 10, 549, 429), 22, outline=WHITE, width=5)
    page.text(280, 60, "東京都中央区", "bold", 58, WHITE, "ma")
    page.text(280, 190, "东京站八重洲出口", "chinese-bold", 44, WHITE, "ma")
    page.text(280, 310, "TOKYO STATION", "latin", 36, (255, 220, 90), "ma")
    return page.image


def rotated() -> Image.Image:
    """Upside down: the angle classifier has to turn it."""
    page = Page(560, 420)
    page.lines(40, 60, 104, ["Please turn this page", "请将此页旋转一百八十度", "upside down since 1998"], "chinese", 36)
    return page.image.transpose(Image.Transpose.ROTATE_180)


def low_contrast() -> Image.Image:
    page = Page(560, 420, (176, 178, 180))
    page.lines(40, 90, 130, ["Faint print on grey paper", "灰底浅字仍可辨认"], "chinese", 36, (146, 148, 150))
    return page.image


def small_print() -> Image.Image:
    words = [
        "This warranty does not cover damage caused by accident, misuse, fire, flood,",
        "lightning or service performed by anyone who is not an authorised agent.",
        "Batteries are consumable parts: their capacity of 5,000 mAh falls over time.",
        "本产品保修期为十二个月，自购买之日起计算，请妥善保管发票。",
        "Keep away from children under 3 years. Made in 2026. Model MPS-200/A.",
    ]
    page = Page(620, 400)
    page.lines(18, 40, 66, words, "chinese", 15)
    return page.image


def paragraph() -> Image.Image:
    words = [
        "It was a bright cold day in November, and every",
        "machine in the long room was busy. The old printer",
        "had been waiting for its paper since seven o'clock;",
        "now it hummed, stopped, and began to draw letters",
        "one after another: slowly at first, then faster than",
        "anyone could read. Nobody had asked for the text,",
        "and yet nobody left before the last line was out.",
        "When the lamp went dark, page 42 lay on the floor,",
        "warm as bread, and the clock said half past nine.",
    ]
    page = Page(720, 400, (253, 251, 245))
    page.lines(40, 26, 39, words, "serif", 25)
    return page.image


def title() -> Image.Image:
    page = Page(760, 700, (245, 240, 230))
    page.text(380, 180, "人工智能", "song-bold", 120, (150, 30, 30), "ma")
    page.text(380, 420, "DEEP LEARNING", "serif-bold", 64, INK, "ma")
    return page.image


def coloured() -> Image.Image:
    """White and yellow letters on a gradient."""
    width, height = 600, 460
    x, y = np.linspace(0, 1, width)[None, :], np.linspace(0, 1, height)[:, None]
    ramp = np.stack([60 + 140 * x + 0 * y, 30 + 50 * y + 0 * x, 150 - 60 * x + 40 * y], axis=-1)
    page = Page(width, height)
    page.image.paste(Image.fromarray((ramp // 8 * 8).astype(np.uint8)))
    page.text(300, 70, "Summer Sale 50%", "bold", 54, WHITE, "ma")
    page.text(300, 200, "夏季大促销 全场五折", "chinese-bold", 46, (255, 232, 110), "ma")
    page.text(300, 330, "until 31 August", "latin", 36, WHITE, "ma")
    return page.image


def receipt() -> Image.Image:
    rows = [("Espresso", "2", "5.60"), ("Green tea", "1", "3.20"), ("蓝莓蛋糕", "1", "6.80"), ("Sandwich", "3", "22.50")]
    page = Page(460, 470)
    page.text(230, 24, "CAFE METAL", "mono", 36, INK, "ma")
    page.text(230, 76, "2026-11-21 09:41  No. 00712", "mono", 20, INK, "ma")
    page.draw.line((28, 116, 432, 116), INK, 2)
    for number, (name, count, price) in enumerate(rows):
        top = 134 + number * 46
        page.text(32, top, name, "chinese", 26)
        page.text(290, top, count, "mono", 26, INK, "ra")
        page.text(428, top, price, "mono", 26, INK, "ra")
    page.draw.line((28, 326, 432, 326), INK, 2)
    page.text(32, 344, "TOTAL", "mono", 32)
    page.text(428, 344, "38.10", "mono", 32, INK, "ra")
    page.text(230, 410, "谢谢惠顾 Thank you", "chinese", 24, INK, "ma")
    return page.image


def empty() -> Image.Image:
    """A page without a letter."""
    return Page(480, 320, (248, 248, 246)).image


def blurred() -> Image.Image:
    """Out of focus, with the grain of a cheap camera."""
    page = Page(440, 360, (236, 232, 224))
    page.lines(36, 70, 110, ["Platform 9 to Leeds", "departs 17:45 daily"], "serif", 36, (40, 36, 30))
    soft = np.asarray(page.image.filter(ImageFilter.GaussianBlur(1.2)), np.float32)
    grain = np.random.default_rng(7).normal(0, 3, soft.shape[:2])[..., None]
    return Image.fromarray((np.clip(soft + grain, 0, 255) // 8 * 8).astype(np.uint8))


def tilted() -> Image.Image:
    """Turned by a few degrees, so that boxes are not parallel to the axes."""
    page = Page(560, 440)
    page.lines(60, 120, 110, ["Handle with care", "小心轻放 易碎物品"], "chinese-bold", 42, (170, 30, 30))
    return page.image.rotate(7, Image.Resampling.BICUBIC, fillcolor=WHITE)


def vertical() -> Image.Image:
    """A couplet written from top to bottom: crops that are taller than wide are turned before they are read."""
    page = Page(360, 420, (196, 40, 36))
    for column, words in ((250, "风调雨顺"), (90, "国泰民安")):
        for row, character in enumerate(words):
            page.text(column, 40 + row * 88, character, "song-bold", 72, (255, 226, 150), "ma")
    return page.image


def bookshop() -> Image.Image:
    """The demo: a poster of a bookshop, Chinese and English."""
    page = Page(900, 620, (244, 236, 220))
    page.draw.rectangle((0, 0, 900, 150), (38, 60, 84))
    page.text(450, 2, "海边书店", "song-bold", 72, (250, 240, 214), "ma")
    page.text(450, 105, "THE  SEASIDE  BOOKSHOP", "serif-bold", 28, (232, 196, 120), "ma")
    page.text(60, 184, "十一月新书推荐", "chinese-bold", 40, (160, 48, 40))
    page.text(840, 190, "New in November", "serif", 32, (160, 48, 40), "ra")
    page.draw.line((60, 250, 840, 250), (190, 176, 150), 2)
    books = [
        ("《星空下的铁匠》", "The Smith under Stars", "¥58.00"),
        ("《矩阵与茶》", "Matrices and Tea", "¥42.50"),
        ("《慢速列车》", "The Slow Train North", "¥36.00"),
        ("《编译器之歌》", "Song of the Compiler", "¥79.90"),
    ]
    for number, (chinese_name, english_name, price) in enumerate(books):
        top = 272 + number * 62
        page.text(60, top, chinese_name, "chinese", 30)
        page.text(370, top + 4, english_name, "serif", 28, (70, 70, 70))
        page.text(840, top + 4, price, "serif-bold", 28, (38, 60, 84), "ra")
    page.draw.line((60, 528, 840, 528), (190, 176, 150), 2)
    page.text(60, 548, "营业时间 10:00 - 22:00", "chinese", 28)
    page.text(840, 550, "Harbour Road 7, Tel. 555-0142", "serif", 26, INK, "ra")
    return page.image


MAKERS = [latin, chinese, mixed, sign, rotated, low_contrast, small_print, paragraph, title, coloured, receipt, empty, blurred, tilted]
PAGES: dict[str, Callable[[], Image.Image]] = {maker.__name__: maker for maker in (*MAKERS, vertical)}


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.quantize(64, dither=Image.Dither.NONE).convert("RGB").save(path, optimize=True)  # few colours: a small file
    print(f"{path.name:20} {image.width:4} x {image.height:<4} {path.stat().st_size / 1024:6.1f} KiB")


def main() -> None:
    for name, maker in PAGES.items():
        save(maker(), IMAGES / f"{name}.png")
    save(bookshop(), DEMO)


if __name__ == "__main__":
    main()
