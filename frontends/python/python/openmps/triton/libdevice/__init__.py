"""``triton.language.extra.libdevice`` for this backend: every function that CUDA's has, for all devices."""

from __future__ import annotations

from triton.language import core
from triton.language.extra import libdevice as _declared

from openmps.triton.libdevice import (
    bessel,
    bits,
    error,
    gamma,
    integers,
    language,
    numbers,
    orders,
    rounding,
)

#: Where each function comes from.
TABLE = {
    language: """
        acos asin atan atan2 ceil cos cosh erf exp exp2 expm1 floor fma fma_rn fmod log log1p log2
        nearbyint pow rint rsqrt sin sinh sqrt tan tanh trunc
        fast_cosf fast_expf fast_logf fast_log2f fast_powf fast_sinf fast_tanf fast_tanhf
    """,
    numbers: """
        abs acosh asinh atanh cbrt copysign exp10 fdim hypot log10 norm3d norm4d rcbrt rhypot rnorm3d rnorm4d round saturatef
        fast_dividef fast_exp10f fast_log10f finitef isfinited isinf isnan llrint llround
    """,
    bits: "cospi ilogb ldexp logb nextafter remainder scalbn signbit sinpi double2hiint double2loint hiloint2double rcp64h rsqrt_rn",
    integers: "brev byte_perm clz ffs hadd mul24 mulhi popc rhadd sad",
    error: "erfc erfcinv erfcx erfinv normcdf normcdfinv",
    gamma: "lgamma tgamma",
    bessel: "j0 j1 y0 y1",
    orders: "cyl_bessel_i0 cyl_bessel_i1 jn yn",
    rounding: """
        add_rn sub_rn mul_rn div_rn rcp_rn sqrt_rn
        add_rd add_ru add_rz sub_rd sub_ru sub_rz mul_rd mul_ru mul_rz div_rd div_ru div_rz fma_rd fma_ru fma_rz
        rcp_rd rcp_ru rcp_rz sqrt_rd sqrt_ru sqrt_rz
        double2float_rd double2float_rn double2float_ru double2float_rz
        double2int_rd double2int_rn double2int_ru double2int_rz double2uint_rd double2uint_rn double2uint_ru double2uint_rz
        double2ll_rd double2ll_rn double2ll_ru double2ll_rz double2ull_rd double2ull_rn double2ull_ru double2ull_rz
        float2int_rd float2int_rn float2int_ru float2int_rz float2uint_rd float2uint_rn float2uint_ru float2uint_rz
        float2ll_rd float2ll_rn float2ll_ru float2ll_rz float2ull_rd float2ull_rn float2ull_ru float2ull_rz
        int2double_rn uint2double_rn ll2double_rd ll2double_rn ll2double_ru ll2double_rz ull2double_rd ull2double_rn ull2double_ru ull2double_rz
        int2float_rd int2float_rn int2float_ru int2float_rz uint2float_rd uint2float_rn uint2float_ru uint2float_rz
        ll2float_rd ll2float_rn ll2float_ru ll2float_rz ull2float_rd ull2float_rn ull2float_ru ull2float_rz
        double_as_longlong float_as_int float_as_uint int_as_float longlong_as_double uint_as_float
    """,
}
for _source, _names in TABLE.items():
    globals().update({_name: getattr(_source, _name) for _name in _names.split()})


def _refused(name):
    def call(*_, _semantic=None):
        raise NotImplementedError(f"mps: libdevice.{name}: not covered")

    return core.builtin(call)


# Another version of Triton may declare more, which a kernel's module may name; calling it is an error.
for _name in dir(_declared):
    if not _name.startswith("_") and callable(getattr(_declared, _name)) and _name not in globals():
        globals()[_name] = _refused(_name)
