"""The gamma function of ``libdevice`` and its logarithm."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice.bits import sinpi
from openmps.triton.libdevice.language import log1p
from openmps.triton.libdevice.parts import exponential, in_single, logarithm, pair, polynomial
from openmps.triton.libdevice.rounding import two_product, two_sum

_PI = tl.constexpr(3.141592653589793)
_HALF_LOG_2_PI = pair(single=(0.9189385175704956, 1.563417661998301e-08), double=(0.9189385332046728, -3.8782941580672414e-17))
# lgamma(2 + d) / d for d from -3/4 to 1.
_AROUND_TWO = polynomial(
    center=-0.25,
    single=(
        0.3376045, 0.3605281, -0.086091235, 0.030230073, -0.012472077, 0.005605927, -0.0026503843, 0.0012999107, -0.0006679386, 0.00035180562,
        -0.00016291079, 5.1340063e-05, -7.5563325e-06,
    ),
    double=(
        0.3376044840819422, 0.36052812214032426, -0.08609125122636044, 0.030229978825822977, -0.012471680011313204, 0.005606724830873816,
        -0.0026545437156241945, 0.0013001093221580065, -0.0006518933392316507, 0.0003325040376311822, -0.00017180297225537572,
        8.96704004201647e-05, -4.7183249334117574e-05, 2.4993986488850232e-05, -1.331589699462523e-05, 7.127144186489289e-06,
        -3.823911502276187e-06, 2.055200755046934e-06, -1.118308303016452e-06, 6.270524517442057e-07, -3.5432686286623425e-07,
        1.8365244778842903e-07, -7.707262792038834e-08, 2.3207474178673844e-08, -4.340908375159254e-09, 3.7492418092000883e-10,
    ),
)
# x times what Stirling's formula lacks, of 1 / x^2, for x from 3 on.
_STIRLING = polynomial(
    single=(
        0.083333336, -0.0027777639, 0.0007926113, -0.0005671814, 0.0005045319,
    ),
    double=(
        0.08333333333333333, -0.0027777777777757695, 0.000793650792622404, -0.0005952378854503139, 0.0008417282394032359, -0.0019160464198791072,
        0.006346110578292672, -0.027601910018978465, 0.13605466944124706, -0.6346190865706115, 2.348297111372058, -5.724231505133728,
        6.653396422514748,
    ),
)


@triton.jit
def _stirling(x, rest):
    """lgamma of x + rest and what it lacks, where x is at least 3 and rest is small."""
    high, low = logarithm(x)
    product, lacking = two_product(x - 0.5, high)
    value, of_sum = two_sum(product, -x)
    constant, of_constant = _HALF_LOG_2_PI(x)
    value, of_both = two_sum(value, constant)
    inverse = 1 / x
    small = (x - 0.5) * low + rest * (high - 0.5 * inverse) + inverse * _STIRLING(inverse * inverse)
    # The smaller parts may have come to as much as the largest.
    return two_sum(value, lacking + of_sum + of_constant + of_both + small)


@triton.jit
def _lgamma_above_zero(x):
    # By steps of 1 to between 5/4 and 3: the zeros at 1 and 2 are factors then.
    is_low, is_middle = x < 0.5, x < 1.25
    d = tl.where(is_low, x, tl.where(is_middle, x - 1, x - 2))
    step = tl.where(is_low, tl.log(tl.where(is_low, x * (1 + x), 1.0)), tl.where(is_middle, log1p(tl.where(is_middle, d, 0.0)), 0.0))
    bounded = tl.minimum(tl.maximum(x, 3.0), 1e30)
    value, lacking = _stirling(bounded, x * 0)
    value = tl.where(x < 3, d * _AROUND_TWO(d) - step, value + lacking)
    return tl.where(x > 1e30, x * (tl.log(x) - 1), value)


@triton.jit
def _lgamma(x):
    size = tl.abs(x)
    value = _lgamma_above_zero(size)
    # Where x is below zero, by the product of both sides; it is infinite at whole numbers.
    reflected = -tl.log(tl.abs(sinpi(size)) * (size / _PI)) - value
    reflected = tl.where(size < 1e-17, -tl.log(size), reflected)
    value = tl.where(x < 0, reflected, value)
    is_pole = (x <= 0) & (tl.floor(x) == x)
    return tl.where(is_pole | (size == float("inf")), float("inf"), value)


@triton.jit
def _tgamma(x):
    size = tl.abs(x)
    # Beyond 60 and 200 both sides have overflowed or vanished.
    bounded = tl.minimum(size, 200.0 if x.dtype == tl.float64 else 60.0)
    # By steps of 1 to 3 or more; the first of the factors that this brings is x itself.
    steps = tl.maximum(tl.ceil(3 - bounded), 0.0)
    moved, rest = two_sum(bounded, steps)
    factors = tl.where(steps > 1, 1 + bounded, 1.0) * tl.where(steps > 2, 2 + bounded, 1.0)
    value, lacking = _stirling(moved, rest)
    # Below zero it is -pi over x sin(pi x) and the function of -x.
    is_negative, has_steps = x < 0, steps > 0
    turned = -_PI / sinpi(size)
    inside = tl.where(has_steps, factors, turned / size)
    sign = tl.where(is_negative, -1.0, 1.0).to(x.dtype)
    power = exponential(sign * value, sign * lacking, tl.where(is_negative, inside, 1.0).to(x.dtype))
    below = tl.where(has_steps, power * turned, power)
    above = tl.where(has_steps, power / factors / bounded, power)
    found = tl.where(is_negative, below, above)
    is_pole = is_negative & (tl.floor(x) == x)
    return tl.where(x == 0, 1 / x, tl.where(is_pole, float("nan"), found))


lgamma = in_single("lgamma", _lgamma)
tgamma = in_single("tgamma", _tgamma)
