"""Decompositions, inverses, determinants, systems of equations; of matrices that are far from singular, so that there is one answer."""

from ..draw import Draw
from ..row import CLOSE, EXACT, NO, SINGLE, SUM, YES, Row
from .elementwise import each


def conditioned(draw: Draw) -> dict[str, object]:
    """Square matrices with a large diagonal, triangles of them, right sides, and any matrices."""
    draw.special = False
    batch = draw.pick((), (), (2,), (2, 1), (3, 2))
    size, columns, rows = draw.pick(1, 2, 3, 5, 8), draw.pick(1, 2, 4), draw.pick(1, 2, 3, 6)
    return {
        "a": diagonal(draw, batch, size), "m": draw.dense((*batch, rows, size), draw.type, "bounded"), "b": draw.tensor((*batch, size, columns), domain="bounded"),
        "v": draw.tensor((*batch, size, 1), domain="bounded"), "upper": draw.chance(0.5), "flip": draw.chance(0.5), "ones": draw.chance(0.3), "power": draw.random.randint(-3, 4),
    }  # fmt: skip


def diagonal(draw: Draw, batch: tuple[int, ...], size: int) -> str:
    """Numbers below one, and on the diagonals numbers above all the others of their rows together, far from each other: derivatives of singular
    values are known as well as these are apart."""
    count = 1
    for length in batch:
        count *= length
    numbers = [
        draw.pick(-1, 1) * (size + 2 * row + draw.random.uniform(0.5, 1)) if row == column else draw.random.uniform(-0.9, 0.9)
        for _ in range(count)
        for row in range(size)
        for column in range(size)
    ]
    return f'T({[round(number, 3) for number in numbers]}, {[*batch, size, size]}, "{draw.type}")'


ROWS = [
    Row("paddle.linalg.inv({a})", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.det({a})", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.slogdet({a})", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.solve({a}, {b})", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.triangular_solve({a}, {b}, upper={upper}, transpose={flip}, unitriangular={ones})", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.cholesky(positive_definite({a}), upper={upper})", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.cholesky_solve({b}, paddle.linalg.cholesky(positive_definite({a})))", SINGLE, NO, SUM, conditioned),
    Row("paddle.linalg.cholesky_solve({b}, paddle.linalg.cholesky(positive_definite({a}), upper=True), upper=True)", SINGLE, NO, SUM, conditioned),
    # Of float64 nothing better is known than the CPU's own vectors, which are as far off as ours.
    Row("paddle.linalg.eigh(positive_definite({a}))[0]", ("float32",), YES, SUM, conditioned),
    Row("paddle.linalg.eigvalsh(positive_definite({a}))", SINGLE, NO, SUM, conditioned),
    Row("paddle.linalg.svdvals({a})", ("float32",), YES, SUM, conditioned),
    Row("paddle.linalg.svd({a})[1]", ("float32",), YES, SUM, conditioned),
    Row("[abs(part) for part in paddle.linalg.qr({a})]", SINGLE, YES, SUM, conditioned),
    Row("abs(paddle.linalg.qr({m}, mode='r'))", SINGLE, NO, SUM, conditioned),
    Row("paddle.linalg.lu({a})[0]", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.lu({m}, get_infos=True)", SINGLE, NO, SUM, conditioned),
    Row("paddle.linalg.lu_unpack(*paddle.linalg.lu({a}))", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.lu_unpack(*paddle.linalg.lu({m}))", SINGLE, NO, SUM, conditioned),
    Row("paddle.linalg.lu_solve({b}, *paddle.linalg.lu({a}), trans={letter})", SINGLE, YES, SUM, lambda draw: {**conditioned(draw), "letter": draw.word("N", "T", "C")}),
    Row("paddle._C_ops.lstsq({a}, {b}, 1e-7, {driver})[0]", SINGLE, NO, SUM, lambda draw: {**conditioned(draw), "driver": draw.word("gels", "gelsy", "gelsd", "gelss")}),
    Row("paddle.sort(abs(paddle.linalg.eigvals({a})))", SINGLE, NO, SUM, conditioned),
    Row("paddle.linalg.matrix_power({a}, {power})", SINGLE, YES, SUM, conditioned),
    Row("paddle.linalg.matrix_rank({a})", SINGLE, NO, EXACT, conditioned),
    Row("paddle.linalg.pinv({a})", SINGLE, NO, SUM, conditioned),
    Row("paddle.linalg.cond({a}, p={order})", SINGLE, NO, SUM, lambda draw: {**conditioned(draw), "order": draw.pick(repr("fro"), 1, -1, 2, float("inf"))}),
    Row("paddle.linalg.cov({m})", SINGLE, NO, SUM, lambda draw: {"m": draw.dense((draw.pick(1, 2, 4), draw.pick(2, 3, 7)), draw.type, "bounded")}),
    Row("paddle.linalg.corrcoef({m})", SINGLE, NO, SUM, lambda draw: {"m": draw.dense((3, 7), draw.type, "bounded")}),
    Row("paddle.linalg.multi_dot([{a}, {b}])", SINGLE, YES, SUM, lambda draw: {"a": diagonal(draw, (), 3), "b": draw.dense((3, 4), draw.type, "bounded")}),
    Row("paddle.linalg.vector_norm({x:1+}, p={integer:1 3}, axis={axis})", SINGLE, YES, SUM),
    Row("paddle.linalg.matrix_norm({x:2+}, p={order})", SINGLE, NO, SUM, lambda draw: {"order": draw.pick(repr("fro"), 1, float("inf"))}),
    Row("paddle.vander({x:1}, {integer:1 4})", SINGLE, NO, CLOSE),
    *each("block_diag", "paddle.NAME([{a}, {c}])", SINGLE, YES, EXACT, lambda draw: {"a": diagonal(draw, (), 2), "c": diagonal(draw, (), 3)}),
]
