"""Bessel functions of any order in ``libdevice``, by recurrence from those of orders 0 and 1, and the modified ones of orders 0 and 1."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice.bessel import first_two, second_two
from openmps.triton.libdevice.parts import exponential, in_single, polynomial
from openmps.triton.libdevice.rounding import bits_of

# I0 of x^2, for x up to 10.
_I0_NEAR = polynomial(
    single=(
        1.0, 0.24999999, 0.015625006, 0.0004340267, 6.7818064e-06, 6.780857e-08, 4.7130777e-10, 2.3924914e-12, 9.58862e-15, 2.6258612e-17,
        9.6555035e-20, 1.4817436e-23, 6.6813413e-25,
    ),
    double=(
        1.0, 0.25, 0.015625000000000003, 0.00043402777777777645, 6.781684027778112e-06, 6.781684027772666e-08, 4.70950279711984e-10,
        2.4028075491543643e-12, 9.385967009514447e-15, 2.8969033178814686e-17, 7.242260656533797e-20, 1.4963295084533986e-22,
        2.5978871296580037e-25, 3.841788369095448e-28, 4.912837136360846e-31, 5.363141298599398e-34, 5.761533776103086e-37, 3.022147335585654e-40,
        6.816253223449143e-43,
    ),
)
# e^-x sqrt(x) I0 of 1 / x, for x from 10 on.
_I0_FAR = polynomial(
    single=(
        0.3989423, 0.049868066, 0.028018715, 0.030502208, 0.022599464, 0.2469655,
    ),
    double=(
        0.3989422804014327, 0.04986778505016433, 0.028050629112373864, 0.029219392684182426, 0.04474610880473936, 0.08986778657692573,
        0.320885794602301, -7.506784613977464, 533.5821127638524, -25822.351647506246, 959348.1704994391, -27498505.481806174, 611631955.4282062,
        -10554708179.87463, 140513062175.47946, -1425457477658.1943, 10788516953536.361, -58836969808929.96, 217978515638098.0,
        -490276267829240.3, 504785097719842.94,
    ),
)
# I1 over x, of x^2, for x up to 10.
_I1_NEAR = polynomial(
    single=(
        0.5, 0.0625, 0.0026041667, 5.4253436e-05, 6.7817257e-07, 5.651123e-09, 3.3651436e-11, 1.4982521e-13, 5.283304e-16, 1.3561929e-18,
        4.1152296e-21, 1.6177173e-24, 2.4089624e-26,
    ),
    double=(
        0.5, 0.0625, 0.002604166666666663, 5.4253472222223676e-05, 6.781684027774506e-07, 5.6514033565261895e-09, 3.363930568930076e-11,
        1.5017547210032925e-13, 5.214425989275456e-16, 1.4484520900035993e-18, 3.291925655588163e-21, 6.234919441114374e-24,
        9.988741612221468e-27, 1.3755332845752892e-29, 1.60920931299036e-32, 1.8430284469034106e-35, 1.0280853752738741e-38,
        2.4544756468452206e-41,
    ),
)
# e^-x sqrt(x) I1 of 1 / x, for x from 10 on.
_I1_FAR = polynomial(
    single=(
        0.3989423, -0.14960368, -0.046714555, -0.04237594, -0.032110155, -0.291149,
    ),
    double=(
        0.3989422804014327, -0.1496033551505215, -0.046751048507640475, -0.0409071539670906, -0.05752985440080237, -0.10995420221132621,
        -0.36829172803724425, 7.910954491905347, -566.1922064290308, 27350.41787116836, -1014522.6607087442, 29031380.737357713,
        -644611208.5854654, 11104137787.725344, -147562045414.01855, 1494257716050.0764, -11288732570466.264, 61453926645147.05,
        -227267706869012.84, 510274453856027.56, -524478654427942.4,
    ),
)


@triton.jit
def _largest(order):
    """The largest of all elements."""
    if len(order.shape) == 0:
        return order
    else:
        return tl.max(order)


@triton.jit
def _power_below(x):
    """The power of 2 that is not larger than |x|."""
    if x.dtype == tl.float64:
        return (bits_of(x) & 0x7FF0000000000000).to(tl.float64, bitcast=True)
    else:
        return (bits_of(x) & 0x7F800000).to(tl.float32, bitcast=True)


@triton.jit
def _upwards(n, x, before, value):
    """The function of order n from those of orders 0 and 1, where each is the one before times 2 order / x, less the one before that."""
    found = tl.where(n == 0, before, value)
    for order in range(1, _largest(n)):
        following = (2 * order).to(x.dtype) / x * value - before
        # What is infinite stays so, and is not taken from itself.
        following = tl.where(tl.abs(value) == float("inf"), value, following)
        before, value = value, following
        found = tl.where(n == order + 1, value, found)
    return found


@triton.jit
def _downwards(n, x, j0, j1):
    """J of an order above x, of which the recurrence upwards keeps no digit: from far above it downwards, but for a factor that J0 or J1 gives."""
    last = _largest(n)
    start = last + 20 + tl.sqrt(12.0 * last.to(tl.float32)).to(tl.int32)
    above, value, found = x * 0, x * 0 + 1, x * 0
    for step in range(0, start):
        order = start - step
        following = (2 * order).to(x.dtype) / x * value - above
        above, value = value, following
        found = tl.where(n == order - 1, value, found)
        # By powers of 2, so that nothing is rounded.
        scale = tl.where(tl.abs(value) > 1e6, 1 / _power_below(value), 1.0).to(x.dtype)
        above, value, found = above * scale, value * scale, found * scale
    by_first = tl.abs(value) > tl.abs(above)
    return found * (tl.where(by_first, j0, j1) / tl.where(by_first, value, above))


@triton.jit
def _jn(n, x):
    size = tl.abs(x)
    j0, j1 = first_two(size)
    is_above = n > size
    found = _upwards(tl.where(is_above, 0, n), size, j0, j1)
    # The square of what is smaller is none.
    is_tiny = size < (1e-162 if x.dtype == tl.float64 else 1e-23)
    below = _downwards(tl.where(is_above & (n > 1), n, 0), tl.where(is_tiny | (size == float("inf")), 1.0, size).to(x.dtype), j0, j1)
    found = tl.where(is_above, tl.where(is_tiny, 0.0, below), found)
    found = tl.where(n == 0, j0, tl.where(n == 1, j1, found))
    found = tl.where((x < 0) & (n % 2 == 1), -found, found)
    return tl.where(n < 0, float("nan"), found)


@triton.jit
def _yn(n, x):
    y0, y1 = second_two(x)
    found = _upwards(tl.where(x > 0, n, tl.minimum(n, 1)), x, y0, y1)
    return tl.where(n < 0, float("nan"), found)


@triton.jit
def _growing(x, near, far):
    """Where x is up to 10 and where it is more; beyond 1000 both types have overflowed."""
    large = tl.minimum(x, 1000.0)
    return tl.where(x <= 10, near, exponential(large, large * 0, far / tl.sqrt(large)))


@triton.jit
def _cyl_bessel_i0(x):
    size, bounded = tl.abs(x), tl.minimum(tl.abs(x), 10.0)
    return _growing(size, _I0_NEAR(bounded * bounded), _I0_FAR(1 / size))


@triton.jit
def _cyl_bessel_i1(x):
    size, bounded = tl.abs(x), tl.minimum(tl.abs(x), 10.0)
    value = _growing(size, bounded * _I1_NEAR(bounded * bounded), _I1_FAR(1 / size))
    return tl.where(x < 0, -value, tl.where(x == 0, x, value))


jn = in_single("jn", _jn)
yn = in_single("yn", _yn)
cyl_bessel_i0 = in_single("cyl_bessel_i0", _cyl_bessel_i0)
cyl_bessel_i1 = in_single("cyl_bessel_i1", _cyl_bessel_i1)
