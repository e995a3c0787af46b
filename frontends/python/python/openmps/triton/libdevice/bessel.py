"""Bessel functions of orders 0 and 1 in ``libdevice``: near the origin by polynomials with the zeros as factors, far from it by Hankel's form."""

from __future__ import annotations

import triton
import triton.language as tl

from openmps.triton.libdevice.language import log1p
from openmps.triton.libdevice.parts import in_single, pair, polynomial

_TWO_OVER_PI = tl.constexpr(0.63661977236758134)

# The zeros below 8, each as a number and what that lacks, so that the distance from one has all its digits.
_J0_FIRST = pair(single=(2.404825448989868, 1.087059047222283e-07), double=(2.404825557695773, -1.176691651530894e-16))
_J0_SECOND = pair(single=(5.520078182220459, -7.193414575112911e-08), double=(5.520078110286311, 8.088597146146722e-17))
_J1_FIRST = pair(single=(3.8317060470581055, -7.685058989181925e-08), double=(3.8317059702075125, -1.5269184090088067e-16))
_J1_SECOND = pair(single=(7.015586853027344, -1.832117249023213e-07), double=(7.015586669815619, -9.414165653410389e-17))
_Y0_FIRST = pair(single=(0.893576979637146, -1.33579787231497e-08), double=(0.8935769662791675, 2.6596231539720385e-17))
_Y0_SECOND = pair(single=(3.9576783180236816, 1.0129117811175092e-07), double=(3.957678419314858, -1.0764340697562706e-16))
_Y0_THIRD = pair(single=(7.086050987243652, 7.305811777769122e-08), double=(7.086051060301773, -8.835285723085408e-17))
_Y1_FIRST = pair(single=(2.197141408920288, -8.288927233479626e-08), double=(2.197141326031017, -4.8259835876454966e-17))
_Y1_SECOND = pair(single=(5.429680824279785, 2.1651435133662744e-07), double=(5.429681040794135, 4.162514026670377e-16))
# J0 less 1 over x^2, of x^2, for x up to 1.
_J0_ORIGIN = polynomial(
    single=(
        -0.25, 0.015624983, -0.00043394405, 6.6473376e-06,
    ),
    double=(
        -0.25, 0.015624999999999889, -0.0004340277777760002, 6.7816840171089095e-06, -6.781680977801047e-08, 4.709055007953936e-10,
        -2.3701712219435617e-12,
    ),
)
# J0 over x^2 less its first zero's, of x^2, for x from 1 to 4.
_J0_NEAR = polynomial(
    center=8,
    single=(
        -0.088662416, 0.00808251, -0.00026609542, 4.5892093e-06, -4.897536e-08, 3.5619716e-10, -1.8843809e-12, 7.557178e-15,
    ),
    double=(
        -0.08866241912277732, 0.008082510351864747, -0.00026609542270822584, 4.58920932838392e-06, -4.897547976055148e-08, 3.5619746410315506e-10,
        -1.8813320204089937e-12, 7.549421488489693e-15, -2.3808057874988283e-17, 6.05794115274023e-20, -1.270836244064938e-22,
        2.2336843678249962e-25,
    ),
)
# J0 over the distance from its second zero, for x from 4 to 8.
_J0_MIDDLE = polynomial(
    center=0.5,
    single=(
        0.31232113, -0.07927029, -0.042916086, 0.008599605, 0.0016613672, -0.00029425955, -3.174462e-05, 5.105725e-06, 3.662387e-07,
        -5.4138017e-08, -2.6735263e-09, 3.6439476e-10,
    ),
    double=(
        0.3123211386234635, -0.07927028643237169, -0.04291608570226695, 0.00859960517324296, 0.0016613689338957557, -0.0002942599579442211,
        -3.1746354946167006e-05, 5.106079778870918e-06, 3.6707658893830423e-07, -5.42818973132881e-08, -2.861063380727316e-09,
        3.920409451061694e-10, 1.6088027878504896e-11, -2.0546866160144736e-12, -6.841798209892842e-14, 8.173768352192994e-15,
        2.2804217900719745e-16, -2.4427803206981773e-17, -6.089337793197239e-19,
    ),
)
# J1 over x and x^2 less its first zero's, of x^2, for x up to 5.4.
_J1_NEAR = polynomial(
    center=14.5,
    single=(
        -0.013886942, 0.0009432418, -2.4900019e-05, 3.5940934e-07, -3.3024863e-09, 2.1106072e-11, -9.990855e-14, 3.6081555e-16,
    ),
    double=(
        -0.01388694177990043, 0.0009432418340671357, -2.4900016565099985e-05, 3.594093537797896e-07, -3.3025447430930927e-09,
        2.110599741190844e-11, -9.946765305128877e-14, 3.604484185407787e-16, -1.0364890277407606e-18, 2.4240110949703243e-21,
        -4.702733485309816e-24, 7.701682846341767e-27, -1.0751779086435437e-29,
    ),
)
# J1 over the distance from its second zero, for x from 5.4 to 8.
_J1_MIDDLE = polynomial(
    single=(
        0.30011576, -0.021389214, -0.04697049, 0.003130304, 0.0021056423, -0.00012551266, -4.5074677e-05, 2.369792e-06, 6.022631e-07,
    ),
    double=(
        0.30011575252613254, -0.02138921280934159, -0.046970478949741545, 0.003130291726048313, 0.0021055871432490714, -0.00012550790955296245,
        -4.4991475307368066e-05, 2.4015808001595067e-06, 5.665270133370969e-07, -2.7273430665902876e-08, -4.720500334882462e-09,
        2.0653199593520754e-10, 2.8017613414170763e-11, -1.1159650318627547e-12, -1.27068710523044e-13, 2.2040619270873613e-15,
    ),
)
# Y0 less 2/pi J0 log(x / first zero), over x^2 less that zero's, of x^2, for x up to 3.
_Y0_NEAR = polynomial(
    center=4.5,
    single=(
        0.11731069, -0.012251937, 0.00044060973, -8.108571e-06, 9.1065274e-08, -6.9120626e-10, 3.7811373e-12,
    ),
    double=(
        0.11731068956802439, -0.01225193676776447, 0.00044060974203792623, -8.108576544427252e-06, 9.106529345341298e-08, -6.906520099779726e-10,
        3.779341834276673e-12, -1.5637069109182796e-14, 5.065740705381841e-17, -1.3204828020346618e-19, 2.8288259602419323e-22,
    ),
)
# Y0 over the distance from its second zero, for x from 3 to 5.5.
_Y0_MIDDLE = polynomial(
    single=(
        -0.40254268, 0.050855912, 0.05852382, -0.006852584, -0.0021835004, 0.00019532448, 5.0886098e-05, -4.957609e-06, -2.513786e-07,
    ),
    double=(
        -0.40254267177502423, 0.050855909592158244, 0.058523822105170244, -0.006852566677111401, -0.0021835188740491557, 0.00019526940245617784,
        5.092291380279123e-05, -4.893369358171709e-06, -2.9348811775161343e-07, -2.1853328666781295e-08, 1.8927985073974608e-08,
        -3.656856519614389e-09, 7.671624000867416e-10, -1.8605658923556565e-10, 4.4403619415855985e-11, -1.056491178602655e-11,
        2.65392297397006e-12, -6.769615180912636e-13, 1.352187756425704e-13, -1.3512289674052637e-14,
    ),
)
# Y0 over the distance from its third zero, for x from 5.5 to 8.
_Y0_LAST = polynomial(
    single=(
        0.3000976, -0.02117524, -0.04802408, 0.0033183673, 0.0021760343, -0.0001406284, -4.6043166e-05, 2.6838845e-06, 6.24894e-07,
    ),
    double=(
        0.3000976149104752, -0.02117523655676954, -0.0480240700762599, 0.003318348268895931, 0.002175984016443562, -0.00014060259774323306,
        -4.595140671019198e-05, 2.7013638007215807e-06, 5.749349687721956e-07, -3.098471392364485e-08, -4.71724314182015e-09,
        2.3029867226903654e-10, 2.8287619709378848e-11, -1.3069143749711442e-12, -1.224699209880058e-13, 4.990422336506243e-16,
    ),
)
# x times Y1 less 2/pi J1 log(x / first zero), over x^2 less that zero's, of x^2, for x up to 4.
_Y1_NEAR = polynomial(
    center=8,
    single=(
        0.18612623, -0.0003842339, -0.0006673616, 2.487758e-05, -4.217906e-07, 4.2859445e-09, -2.950827e-11, 1.4689884e-13,
    ),
    double=(
        0.18612623508607282, -0.00038423390469386257, -0.0006673615388783835, 2.4877578961212406e-05, -4.2179342900362124e-07,
        4.285952818255976e-09, -2.9437029122822564e-11, 1.4668605339452282e-13, -5.562182334957352e-16, 1.661629940515906e-18,
        -4.018508968879434e-21, 8.023035458242904e-24,
    ),
)
# Y1 over the distance from its second zero, for x from 4 to 8.
_Y1_MIDDLE = polynomial(
    center=0.5,
    single=(
        -0.31256184, 0.07813772, 0.041683488, -0.0080165975, -0.0016400284, 0.0002673789, 3.294536e-05, -4.7442322e-06, -3.7648348e-07,
        4.815935e-08, 3.3527106e-09, -4.2270643e-10,
    ),
    double=(
        -0.3125618279128928, 0.07813771450678993, 0.04168348848067986, -0.008016597004515283, -0.0016400287547503503, 0.00026737870739646473,
        3.29457627998738e-05, -4.744101762614122e-06, -3.767048458852295e-07, 4.811845710176333e-08, 3.414536352950583e-09,
        -4.1833165785727144e-10, -8.210046040431793e-12, 2.869495466529001e-13, 3.5269721055179176e-13, -5.4412728088874515e-14,
        7.757274406930018e-15, -1.3890630537894018e-15, 2.2612612103756454e-16, -2.8459356391543244e-17, 6.391557495807199e-18,
        -2.1136333355889138e-18, 2.8066471528465366e-19,
    ),
)
# Hankel's P and Q x for order 0, of 1 / x^2, for x from 8 on.
_P0 = polynomial(
    single=(
        1.0, -0.07030879, 0.11091783, -0.4330812,
    ),
    double=(
        1.0, -0.07031249999990756, 0.11215209927188549, -0.5725009290352429, 6.07366220329183, -109.83815573937966, 2981.9543685287936,
        -106369.46045870287, 4178650.658926048, -149745041.60106367, 4138261193.87895, -74001452748.55945, 624282701928.0964,
    ),
)
_Q0 = polynomial(
    single=(
        -0.125, 0.07324091, -0.22643015, 1.5947775, -12.437965,
    ),
    double=(
        -0.125, 0.07324218749998752, -0.22710800163998324, 1.7277273495182643, -24.380348461559407, 551.2035005496776, -18192.57220789675,
        809854.9437419882, -43953637.14049289, 2550940399.9969993, -138915289780.67142, 6384137470191.668, -227170376064638.1, 5731393536993482.0,
        -9.012941755526544e+16, 6.596759678745582e+17,
    ),
)
# The same for order 1.
_P1 = polynomial(
    single=(
        1.0, 0.11718325, -0.14278354, 0.51747787,
    ),
    double=(
        1.0, 0.11718749999990227, -0.1441955562838084, 0.6765920683809837, -6.883512855247047, 121.4087798026004, -3242.9874033864744,
        114482.25187580986, -4469688.330766841, 159622979.62233248, -4402702054.151175, 78640464506.5695, -662944464443.04,
    ),
)
_Q1 = polynomial(
    single=(
        0.375, -0.102537654, 0.27682573, -1.8464794, 14.077255,
    ),
    double=(
        0.375, -0.10253906249994958, 0.2775764462879859, -1.9935312558861595, 27.24833106937476, -603.5268700017172, 19582.073091942028,
        -848405.532095329, 43407101.408447586, -2261040619.5210752, 104601056141.30104, -3847665857146.407, 101561215507797.52,
        -1678191070253568.0, 1.2913256816439716e+16,
    ),
)


@triton.jit
def _beyond(x, zero):
    """The distance from a zero, which is known with twice a number's digits."""
    high, low = zero
    return (x - high) - low


@triton.jit
def _hankel(x, p, q, cosine, sine):
    """The two functions by the cosine and the sine, times the root of 2, of x less their phase."""
    size = 0.56418958354775629 / tl.sqrt(x)
    q = q / x
    return tl.where(x == float("inf"), 0.0, size * (p * cosine - q * sine)), tl.where(x == float("inf"), 0.0, size * (p * sine + q * cosine))


@triton.jit
def far(x):
    """J0, J1, Y0 and Y1 for x from 8 on."""
    sine, cosine = tl.sin(x), tl.cos(x)
    plus, minus = sine + cosine, sine - cosine
    w = (1 / x) * (1 / x)
    j0, y0 = _hankel(x, _P0(w), _Q0(w), plus, minus)
    j1, y1 = _hankel(x, _P1(w), _Q1(w), minus, -plus)
    return j0, j1, y0, y1


@triton.jit
def _j0_near(x):
    beyond = _beyond(x, _J0_FIRST(x))
    near = beyond * (x + _J0_FIRST(x)[0]) * _J0_NEAR(x * x)
    beyond = _beyond(x, _J0_SECOND(x))
    near = tl.where(x < 1, tl.fma(x * x, _J0_ORIGIN(x * x), 1.0), near)
    return tl.where(x < 4, near, beyond * _J0_MIDDLE(beyond))


@triton.jit
def _j1_near(x):
    beyond = _beyond(x, _J1_FIRST(x))
    near = beyond * (x + _J1_FIRST(x)[0]) * _J1_NEAR(x * x) * x
    beyond = _beyond(x, _J1_SECOND(x))
    return tl.where(x < 5.4, near, beyond * _J1_MIDDLE(beyond))


@triton.jit
def _logarithm_of_ratio(x, zero, beyond):
    """log(x / zero), exact where it is small."""
    is_near = tl.abs(beyond) < 0.5 * zero
    return tl.where(is_near, log1p(tl.where(is_near, beyond / zero, 0.0)), tl.log(tl.where(is_near, 1.0, x)) - tl.log(zero))


@triton.jit
def _y0_near(x):
    beyond, zero = _beyond(x, _Y0_FIRST(x)), _Y0_FIRST(x)[0]
    of_j0 = _TWO_OVER_PI * _j0_near(x) * _logarithm_of_ratio(x, zero, beyond)
    near = of_j0 + beyond * (x + zero) * _Y0_NEAR(x * x)
    beyond = _beyond(x, _Y0_SECOND(x))
    middle = beyond * _Y0_MIDDLE(beyond)
    beyond = _beyond(x, _Y0_THIRD(x))
    return tl.where(x < 3, near, tl.where(x < 5.5, middle, beyond * _Y0_LAST(beyond)))


@triton.jit
def _y1_near(x):
    beyond, zero = _beyond(x, _Y1_FIRST(x)), _Y1_FIRST(x)[0]
    of_j1 = _TWO_OVER_PI * _j1_near(x) * _logarithm_of_ratio(x, zero, beyond)
    near = of_j1 + beyond * (x + zero) * _Y1_NEAR(x * x) / x
    beyond = _beyond(x, _Y1_SECOND(x))
    return tl.where(x < 4, near, beyond * _Y1_MIDDLE(beyond))


@triton.jit
def _unless_negative(x, value):
    """The functions of the second kind are infinite at 0 and no numbers below."""
    return tl.where(x < 0, float("nan"), tl.where(x == 0, -float("inf"), value))


@triton.jit
def first_two(x):
    """J0 and J1."""
    size = tl.abs(x)
    bounded = tl.minimum(size, 8.0)
    j0, j1, _, _ = far(tl.maximum(size, 8.0))
    j0 = tl.where(size < 8, _j0_near(bounded), j0)
    j1 = tl.where(size < 8, _j1_near(bounded), j1)
    # Before Triton 3.7 `-j1` is `0 - j1`, which loses the sign of a zero.
    return j0, tl.where(x < 0, -1.0 * j1, tl.where(x == 0, x, j1))


@triton.jit
def second_two(x):
    """Y0 and Y1."""
    bounded = tl.minimum(tl.maximum(x, 0.0), 8.0)
    _, _, y0, y1 = far(tl.maximum(x, 8.0))
    y0 = tl.where(x < 8, _y0_near(bounded), y0)
    y1 = tl.where(x < 8, _y1_near(bounded), y1)
    return _unless_negative(x, y0), _unless_negative(x, y1)


@triton.jit
def _j0(x):
    return first_two(x)[0]


@triton.jit
def _j1(x):
    return first_two(x)[1]


@triton.jit
def _y0(x):
    return second_two(x)[0]


@triton.jit
def _y1(x):
    return second_two(x)[1]


j0 = in_single("j0", _j0)
j1 = in_single("j1", _j1)
y0 = in_single("y0", _y0)
y1 = in_single("y1", _y1)
