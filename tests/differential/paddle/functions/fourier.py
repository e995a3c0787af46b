"""Fourier transforms, windows over signals, and arithmetic of complex numbers; a complex result is compared by its parts."""

from ..draw import Draw
from ..row import CLOSE, NO, SINGLE, SUM, YES, Row


def signals(draw: Draw) -> dict[str, object]:
    """Numbers of two shapes, and attributes of transforms: lengths that are odd, prime, longer or shorter than the axis."""
    draw.special = False
    shape = tuple(draw.pick(1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16) for _ in range(draw.pick(1, 2, 2, 3)))
    axis, pair = draw.pick(-1, len(shape) - 1, 0), (-1, 0) if len(shape) > 1 else (0,)
    window = draw.pick(4, 5, 8)
    return {
        "a": draw.tensor(shape), "b": draw.tensor(shape), "axis": axis, "axes": pair, "norm": draw.word("backward", "ortho", "forward"), "n": draw.pick(None, None, 2, 3, 7, 9, 10),
        "s": draw.tensor((2, 40)), "v": draw.dense((window,), draw.type, "positive"), "window": window, "hop": draw.pick(1, 2, 3), "flag": draw.chance(0.5), "half": draw.chance(0.5),
        "length": draw.pick(3, 4, 6, 7),
    }  # fmt: skip


def factors(draw: Draw) -> dict[str, object]:
    """Parts of two complex tensors that broadcast, the second of which is not zero."""
    draw.special = False
    shape = draw.shape(0, 3)
    other = draw.partner(shape)
    m, k, n = draw.pick(1, 2, 5), draw.pick(1, 3, 4), draw.pick(1, 2, 6)
    return {
        "a": draw.tensor(shape), "b": draw.tensor(shape), "c": draw.tensor(other, domain="nonzero"), "d": draw.tensor(other, domain="nonzero"),
        "p": draw.tensor((m, k)), "q": draw.tensor((m, k)), "r": draw.tensor((2, k, n)), "t": draw.tensor((2, k, n)),
    }  # fmt: skip


X, Y = "paddle.complex({a}, {b})", "paddle.complex({c}, {d})"

ROWS = [
    *(Row(f"paddle.as_real(paddle.fft.{name}({X}, n={{n}}, axis={{axis}}, norm={{norm}}))", SINGLE, YES, SUM, signals) for name in ("fft", "ifft")),
    *(Row(f"paddle.as_real(paddle.fft.{name}({{a}}, n={{n}}, axis={{axis}}, norm={{norm}}))", SINGLE, YES, SUM, signals) for name in ("fft", "rfft", "ihfft")),
    *(Row(f"paddle.fft.{name}({X}, n={{length}}, axis={{axis}}, norm={{norm}})", SINGLE, YES, SUM, signals) for name in ("irfft", "hfft")),
    *(Row(f"paddle.as_real(paddle.fft.{name}({X}, axes={{axes}}, norm={{norm}}))", SINGLE, YES, SUM, signals) for name in ("fftn", "ifftn")),
    *(Row(f"paddle.as_real(paddle.fft.{name}({{a}}, axes={{axes}}, norm={{norm}}))", SINGLE, YES, SUM, signals) for name in ("rfftn", "ihfftn")),
    *(Row(f"paddle.fft.{name}({X}, axes={{axes}}, norm={{norm}})", SINGLE, YES, SUM, signals) for name in ("irfftn", "hfftn")),
    *(Row(f"paddle.fft.{name}({{a}})", SINGLE, YES, CLOSE, signals) for name in ("fftshift", "ifftshift")),
    Row(
        "paddle.as_real(paddle.signal.stft({s}, {window}, {hop}, window={v}.detach(), center={flag}, normalized={flag}, onesided={half}))",
        SINGLE,
        YES,
        SUM,
        signals,
    ),
    *(Row(f"paddle.as_real({X} {sign} {Y})", SINGLE, YES, SUM, factors) for sign in "+-*/"),
    Row("paddle.as_real(paddle.complex({p}, {q}) @ paddle.complex({r}, {t}))", SINGLE, YES, SUM, factors),
    Row(f"paddle.as_real(paddle.sum({X}))", SINGLE, YES, SUM, factors),
    Row(f"paddle.as_real(-{X})", SINGLE, YES, CLOSE, factors),
    Row(f"abs({Y})", SINGLE, YES, SUM, factors),
    Row(f"paddle.angle({Y})", SINGLE, YES, SUM, factors),
    Row("paddle.angle({x})", SINGLE, YES, CLOSE),
    Row(f"paddle.as_real({X}.astype('complex64'))", SINGLE, NO, CLOSE, factors),
]
