"""The error function's family and the normal distribution of ``libdevice``."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice.numbers import copysign
from openmps.triton.libdevice.parts import exponential, in_single, polynomial
from openmps.triton.libdevice.rounding import two_product

_ROOT_2 = tl.constexpr(1.4142135623730951)

# What is left of (1 + 2 x) erfcx(x), which is between 1 and 1.26, less 1, over u = 2 x / (x + 3), of u, which is between 0 and 2 for all x above 0.
_SCALED = polynomial(
    center=1,
    single=(
        0.25300807, -0.38862917, 0.34106684, -0.21142171, 0.092148356, -0.023839954, 6.763929e-05, 0.0024594762, -0.0005657007, -0.00020740925,
        9.496709e-05, 1.9662868e-05, -9.752682e-06, -1.7289595e-06,
    ),
    double=(
        0.25300805826972966, -0.38862916439431083, 0.34106687004085967, -0.21142171133809773, 0.0921480479228222, -0.023840020578874875,
        6.950565926502955e-05, 0.0024598861570559478, -0.0005711957841902369, -0.00020863648787147981, 0.0001034765788075508,
        2.1622759437589747e-05, -1.667273601956021e-05, -3.4277257045938606e-06, 2.694480987287362e-06, 7.775213243354225e-07,
        -4.169275647843032e-07, -1.9873267469952435e-07, 5.162306074955268e-08, 4.8701117302581134e-08, -1.493049982658938e-09,
        -1.0253894913080063e-08, -1.634028310871011e-09, 1.6031836449068353e-09, 5.127790270822378e-10, -1.351771125370553e-10,
        -6.12145732683555e-11,
    ),
)
# erfinv(x) / x of x^2, for |x| up to 1/2.
_CENTRE = polynomial(
    single=(
        0.88622695, 0.23201342, 0.12757173, 0.08618737, 0.068963684, 0.029879779, 0.09744713,
    ),
    double=(
        0.886226925452758, 0.23201366653465907, 0.1275561753044084, 0.08655212936268426, 0.06495961132714785, 0.051731484987895315,
        0.042832578465667154, 0.03652298828704453, 0.031145240861636964, 0.03159333036205363, 0.008445972994168912, 0.07345030192108802,
        -0.07607374806010314, 0.11314175862170527,
    ),
)
# erfcinv(y) / s of 1 / s, where s is the root of -log(y): from 0.832 (y = 1/2) to 2.5,
_NEAR_TAIL = polynomial(
    center=0.8125,
    single=(
        0.7048937, -0.3854047, 0.111390226, 0.03840109, -0.07753133, 0.058811627, -0.028744707, 0.008787774, -0.0023150996, 0.008430799,
        -0.011603673,
    ),
    double=(
        0.7048936978970809, -0.3854047062846027, 0.11139029346276581, 0.038402642446330584, -0.07753616103804396, 0.058759344519854775,
        -0.028628288873337907, 0.00949459906550287, -0.003519013569991156, 0.0044123607787032075, -0.006339938672941429, 0.006946437371194595,
        -0.0064434353261620175, 0.005754759029417187, -0.00548007812138689, 0.005622681663768128, -0.0052984059579233855, 0.0046511335682334,
        -0.008113600185728882, 0.0120368435488987, 0.0019251285960186443, -0.011861024644898185, -0.022946986573261847, 0.03572570792361068,
    ),
)
# from 2.5 to 6,
_TAIL = polynomial(
    center=0.28125,
    single=(
        0.92583853, -0.39147878, -0.2209107, 0.52767307, -0.5716665, 0.6845629, -1.4165994, 3.0003166,
    ),
    double=(
        0.9258385245168584, -0.3914787878266652, -0.22090634267054507, 0.5276759271664975, -0.5732632935782781, 0.6860498765951941,
        -1.2329385401591013, 2.6752197877450565, -6.098557270967184, 14.48693773787373, -35.94627269337219, 92.65529928352983,
        -245.98642384511066, 673.7481646807755, -1944.3477054526154, 5406.988198201686, -11632.560939789419, 38778.094113933716,
        -253543.47608130818, 680927.2693686362,
    ),
)
# and from 6 to that of the smallest number: 10.2 in float32, 27.3 in float64.
_FAR_TAIL = polynomial(
    center=0.125,
    single=(
        0.9791678, -0.27185073, -0.59946024, 1.2760993, -2.668747, 7.3325,
    ),
    double=(
        0.9791678303150311, -0.2718504713164367, -0.5994701669618787, 1.2748562928254714, -2.6327531467086898, 8.423748376460074,
        -34.31409704963953, 157.30641273766787, -785.2097525955032, 4182.506723660981, -23474.714600222156, 134515.802429889, -739542.2388319127,
        7204060.421181435, -68092897.9629344, -1562583211.875784, -602935530.910369, 776202795569.3066, 7856213680236.153, -136574878281987.3,
        -3327764152084795.5, -1.0561976101141248e+16, 3.6554657546229606e+17, 5.141924659322364e+18, 2.820128079221781e+19, 5.976321098810224e+19,
    ),
)


@triton.jit
def _erfcx_above_zero(x):
    bounded = tl.minimum(x, 1e15)
    u = 2 * bounded / (bounded + 3)
    value = tl.fma(u, _SCALED(u), 1.0) / (1 + 2 * bounded)
    return tl.where(x > 1e15, 0.56418958354775629 / x, value)


@triton.jit
def _erfcx(x):
    # The square's last digits matter to its power; beyond 30 both types have overflowed.
    high, low = two_product(tl.minimum(tl.abs(x), 30.0), tl.minimum(tl.abs(x), 30.0))
    value = _erfcx_above_zero(tl.abs(x))
    return tl.where(x < 0, exponential(high, low, 2.0) - value, value)


@triton.jit
def _erfc(x):
    size = tl.minimum(tl.abs(x), 30.0)
    high, low = two_product(size, size)
    value = exponential(-high, -low, _erfcx_above_zero(size))
    return tl.where(x < 0, 2 - value, value)


@triton.jit
def _normcdf(x):
    size = tl.minimum(tl.abs(x), 45.0)
    # Half of x^2 and not the square of x / sqrt(2), which is rounded.
    high, low = two_product(size, size)
    value = exponential(-0.5 * high, -0.5 * low, 0.5 * _erfcx_above_zero(size / _ROOT_2))
    return tl.where(x > 0, 1 - value, value)


@triton.jit
def _near_zero(x):
    return x * _CENTRE(x * x)


@triton.jit
def _of_rest(y):
    """erfcinv of y up to 1/2."""
    s = tl.sqrt(-tl.log(y))
    return s * tl.where(s < 2.5, _NEAR_TAIL(1 / s), tl.where(s < 6, _TAIL(1 / s), _FAR_TAIL(1 / s)))


@triton.jit
def _erfinv(x):
    return tl.where(tl.abs(x) <= 0.5, _near_zero(x), copysign(_of_rest(1 - tl.abs(x)), x))


@triton.jit
def _erfcinv(x):
    tail = tl.where(x < 1, _of_rest(x), -_of_rest(2 - x))
    return tl.where(tl.abs(1 - x) <= 0.5, _near_zero(1 - x), tail)


@triton.jit
def _normcdfinv(x):
    # By a difference, so that the middle is 0 and not -0.
    return 0.0 - _ROOT_2 * _erfcinv(2 * x)


erfc = in_single("erfc", _erfc)
erfcx = in_single("erfcx", _erfcx)
erfinv = in_single("erfinv", _erfinv)
erfcinv = in_single("erfcinv", _erfcinv)
normcdf = in_single("normcdf", _normcdf)
normcdfinv = in_single("normcdfinv", _normcdfinv)
