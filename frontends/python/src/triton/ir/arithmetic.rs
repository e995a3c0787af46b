//! Builder methods for operations on numbers, by tables: Python's name, the operation.

// The names are Triton's.
#![allow(non_snake_case)]

use super::builder::PyBuilder;
use super::handles::{PyType, PyValue};
use openmps_triton_ir::{Float, Type};
use pyo3::prelude::*;

/// Methods whose operands and result have one type.
macro_rules! alike {
    ($($name:ident($($operand:ident),*) = $operation:literal;)*) => {
        #[pymethods]
        impl PyBuilder {$(
            fn $name(&self, $($operand: &PyValue),*) -> PyResult<PyValue> {
                self.alike($operation, &[$($operand),*])
            }
        )*}
    };
}

alike! {
    create_add(x, y) = "arith.addi";
    create_sub(x, y) = "arith.subi";
    create_mul(x, y) = "arith.muli";
    create_sdiv(x, y) = "arith.divsi";
    create_udiv(x, y) = "arith.divui";
    create_srem(x, y) = "arith.remsi";
    create_urem(x, y) = "arith.remui";
    create_minsi(x, y) = "arith.minsi";
    create_maxsi(x, y) = "arith.maxsi";
    create_minui(x, y) = "arith.minui";
    create_maxui(x, y) = "arith.maxui";
    create_and(x, y) = "arith.andi";
    create_or(x, y) = "arith.ori";
    create_xor(x, y) = "arith.xori";
    create_shl(x, y) = "arith.shli";
    create_ashr(x, y) = "arith.shrsi";
    create_lshr(x, y) = "arith.shrui";
    create_umulhi(x, y) = "tt.mulhiui";
    create_fadd(x, y) = "arith.addf";
    create_fsub(x, y) = "arith.subf";
    create_fmul(x, y) = "arith.mulf";
    create_fdiv(x, y) = "arith.divf";
    create_frem(x, y) = "arith.remf";
    create_approx_divf(x, y) = "tt.approx_divf";
    create_precise_divf(x, y) = "tt.precise_divf";
    create_minnumf(x, y) = "arith.minnumf";
    create_maxnumf(x, y) = "arith.maxnumf";
    create_minimumf(x, y) = "arith.minimumf";
    create_maximumf(x, y) = "arith.maximumf";
    create_fma(x, y, z) = "math.fma";
    create_fneg(x) = "arith.negf";
    create_fabs(x) = "math.absf";
    create_iabs(x) = "math.absi";
    create_floor(x) = "math.floor";
    create_ceil(x) = "math.ceil";
    create_sqrt(x) = "math.sqrt";
    create_rsqrt(x) = "math.rsqrt";
    create_precise_sqrt(x) = "tt.precise_sqrt";
    create_exp(x) = "math.exp";
    create_exp2(x) = "math.exp2";
    create_log(x) = "math.log";
    create_log2(x) = "math.log2";
    create_sin(x) = "math.sin";
    create_cos(x) = "math.cos";
    create_erf(x) = "math.erf";
}

/// Methods that compare two values of one type.
macro_rules! comparisons {
    ($($name:ident = $operation:literal $predicate:literal;)*) => {
        #[pymethods]
        impl PyBuilder {$(
            fn $name(&self, x: &PyValue, y: &PyValue) -> PyResult<PyValue> {
                self.compare($operation, $predicate, [x, y])
            }
        )*}
    };
}

comparisons! {
    create_icmpEQ = "arith.cmpi" "eq";
    create_icmpNE = "arith.cmpi" "ne";
    create_icmpSLT = "arith.cmpi" "slt";
    create_icmpSLE = "arith.cmpi" "sle";
    create_icmpSGT = "arith.cmpi" "sgt";
    create_icmpSGE = "arith.cmpi" "sge";
    create_icmpULT = "arith.cmpi" "ult";
    create_icmpULE = "arith.cmpi" "ule";
    create_icmpUGT = "arith.cmpi" "ugt";
    create_icmpUGE = "arith.cmpi" "uge";
    create_fcmpOEQ = "arith.cmpf" "oeq";
    create_fcmpONE = "arith.cmpf" "one";
    create_fcmpOLT = "arith.cmpf" "olt";
    create_fcmpOLE = "arith.cmpf" "ole";
    create_fcmpOGT = "arith.cmpf" "ogt";
    create_fcmpOGE = "arith.cmpf" "oge";
    create_fcmpUEQ = "arith.cmpf" "ueq";
    create_fcmpUNE = "arith.cmpf" "une";
    create_fcmpULT = "arith.cmpf" "ult";
    create_fcmpULE = "arith.cmpf" "ule";
    create_fcmpUGT = "arith.cmpf" "ugt";
    create_fcmpUGE = "arith.cmpf" "uge";
}

/// Methods that convert a value to a type.
macro_rules! conversions {
    ($($name:ident = $operation:literal;)*) => {
        #[pymethods]
        impl PyBuilder {$(
            fn $name(&self, x: &PyValue, to: PyType) -> PyResult<PyValue> {
                self.convert($operation, x, to)
            }
        )*}
    };
}

conversions! {
    create_bitcast = "tt.bitcast";
    create_int_to_ptr = "tt.int_to_ptr";
    create_ptr_to_int = "tt.ptr_to_int";
    create_fp_ext = "arith.extf";
    create_fp_trunc = "arith.truncf";
    create_si_to_fp = "arith.sitofp";
    create_ui_to_fp = "arith.uitofp";
    create_fp_to_si = "arith.fptosi";
    create_fp_to_ui = "arith.fptoui";
}

/// Methods that give a type.
macro_rules! types {
    ($($name:ident = $ty:expr;)*) => {
        #[pymethods]
        impl PyBuilder {$(
            fn $name(&self) -> PyType {
                PyType($ty)
            }
        )*}
    };
}

types! {
    get_void_ty = Type::None;
    get_int1_ty = Type::TRUTH;
    get_int8_ty = Type::Integer(8);
    get_int16_ty = Type::Integer(16);
    get_int32_ty = Type::I32;
    get_int64_ty = Type::Integer(64);
    get_int128_ty = Type::Integer(128);
    get_half_ty = Type::Float(Float::F16);
    get_bf16_ty = Type::Float(Float::BF16);
    get_float_ty = Type::Float(Float::F32);
    get_double_ty = Type::Float(Float::F64);
    get_fp8e5_ty = Type::Float(Float::E5M2);
    get_fp8e4nv_ty = Type::Float(Float::E4M3);
    get_fp8e4b8_ty = Type::Float(Float::E4M3Unsigned);
    get_fp8e5b16_ty = Type::Float(Float::E5M2Unsigned);
    // MLIR has no such float: it is bytes there.
    get_fp8e4b15_ty = Type::Integer(8);
}

/// Methods that give a number as a constant.
macro_rules! numbers {
    ($($name:ident = $ty:expr;)*) => {
        #[pymethods]
        impl PyBuilder {$(
            fn $name(&self, number: &Bound<'_, PyAny>) -> PyResult<PyValue> {
                self.number(number, $ty)
            }
        )*}
    };
}

numbers! {
    get_int1 = Type::TRUTH;
    get_int8 = Type::Integer(8);
    get_uint8 = Type::Integer(8);
    get_int16 = Type::Integer(16);
    get_uint16 = Type::Integer(16);
    get_int32 = Type::I32;
    get_uint32 = Type::I32;
    get_int64 = Type::Integer(64);
    get_uint64 = Type::Integer(64);
    get_fp16 = Type::Float(Float::F16);
    get_bf16 = Type::Float(Float::BF16);
    get_fp32 = Type::Float(Float::F32);
    get_fp64 = Type::Float(Float::F64);
}
