//! The vector instructions of both levels.

use super::body::{Element, Relation, Shift, Two};
use crate::Level;
use iced_x86::{Code, Register};

/// The registers and instructions of a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors {
    /// Elements of a register.
    pub lanes: usize,
    /// How many registers there are.
    pub registers: u32,
    first: Register,
    /// The first of those that hold as many elements of half types.
    first_half: Register,
    /// Whether truths have registers of their own.
    pub has_masks: bool,
    codes: &'static Codes,
}

impl Vectors {
    /// None of a level below AVX2.
    pub fn of(level: Level) -> Option<Vectors> {
        match level {
            Level::Avx512 => Some(Vectors {
                lanes: 16,
                registers: 32,
                first: Register::ZMM0,
                first_half: Register::YMM0,
                has_masks: true,
                codes: &AVX512,
            }),
            Level::Avx2 => Some(Vectors {
                lanes: 8,
                registers: 16,
                first: Register::YMM0,
                first_half: Register::XMM0,
                has_masks: false,
                codes: &AVX2,
            }),
            Level::Portable => None,
        }
    }

    pub fn register(self, number: u32) -> Register {
        self.first + number
    }

    /// The lower half of a register.
    pub fn half(self, number: u32) -> Register {
        self.first_half + number
    }

    pub fn codes(self) -> &'static Codes {
        self.codes
    }
}

/// An instruction that exchanges parts of one register, or of two, and which parts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exchange {
    OfOne(Code, u32),
    OfTwo(Code, u32),
}

/// Instructions by what they do, each of as many lanes as a register has.
#[derive(Debug)]
pub(super) struct Codes {
    pub add: Code,
    pub subtract: Code,
    pub multiply: Code,
    pub divide: Code,
    pub lower: Code,
    pub upper: Code,
    pub and: Code,
    pub or: Code,
    pub xor: Code,
    pub sqrt: Code,
    /// `first = second * first + third`.
    pub multiply_add_213: Code,
    /// `first = second * third + first`.
    pub multiply_add_231: Code,
    pub compare: Code,
    pub choose: Code,
    pub load: Code,
    pub store: Code,
    pub store_past: Code,
    pub store_half_past: Code,
    pub copy: Code,
    /// Stores the first element.
    pub store_first: Code,
    /// Exchange halves, quarters and so on, down to neighbours.
    pub exchanges: &'static [Exchange],
    pub broadcast: Code,
    pub from_half: Code,
    pub to_half: Code,
    pub load_half: Code,
    pub store_half: Code,
    /// Words to the lower bits of integers, and back.
    pub load_words: Code,
    pub store_words: Option<Code>,
    pub shift_left: Code,
    pub shift_right: Code,
    pub shift_right_signed: Code,
    pub add_integers: Code,
    pub subtract_integers: Code,
    pub to_integers: Code,
}

impl Codes {
    pub fn two(&self, two: Two) -> Code {
        match two {
            Two::Add => self.add,
            Two::Subtract => self.subtract,
            Two::Multiply => self.multiply,
            Two::Divide => self.divide,
            Two::Lower => self.lower,
            Two::Upper => self.upper,
            Two::And => self.and,
            Two::Or => self.or,
            Two::Xor => self.xor,
            Two::AddIntegers => self.add_integers,
            Two::SubtractIntegers => self.subtract_integers,
        }
    }

    pub fn shift(&self, shift: Shift) -> Code {
        match shift {
            Shift::Left => self.shift_left,
            Shift::Right => self.shift_right,
            Shift::RightSigned => self.shift_right_signed,
        }
    }

    pub fn load(&self, element: Element) -> Code {
        match element {
            Element::Single => self.load,
            Element::Half => self.load_half,
            Element::Bfloat => self.load_words,
        }
    }

    /// As [`Codes::store`], past the caches.
    pub fn store_past(&self, element: Element) -> Option<Code> {
        match element {
            Element::Single => Some(self.store_past),
            Element::Half => Some(self.store_half_past),
            Element::Bfloat => None,
        }
    }

    /// None where there is no single instruction.
    pub fn store(&self, element: Element) -> Option<Code> {
        match element {
            Element::Single => Some(self.store),
            Element::Half => Some(self.store_half),
            Element::Bfloat => self.store_words,
        }
    }
}

/// The number of a relation among those of the comparing instruction.
pub(super) fn predicate(relation: Relation) -> u32 {
    match relation {
        Relation::Equal => 0x00,
        Relation::Less => 0x11,
        Relation::AtMost => 0x12,
        Relation::Unordered => 0x03,
        Relation::Differs => 0x04,
    }
}

static AVX512: Codes = Codes {
    add: Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er,
    subtract: Code::EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er,
    multiply: Code::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er,
    divide: Code::EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er,
    lower: Code::EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae,
    upper: Code::EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae,
    and: Code::EVEX_Vandps_zmm_k1z_zmm_zmmm512b32,
    or: Code::EVEX_Vorps_zmm_k1z_zmm_zmmm512b32,
    xor: Code::EVEX_Vxorps_zmm_k1z_zmm_zmmm512b32,
    sqrt: Code::EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er,
    multiply_add_213: Code::EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er,
    multiply_add_231: Code::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er,
    compare: Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae,
    choose: Code::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32,
    load: Code::EVEX_Vmovups_zmm_k1z_zmmm512,
    store: Code::EVEX_Vmovups_zmmm512_k1z_zmm,
    store_past: Code::EVEX_Vmovntps_m512_zmm,
    store_half_past: Code::EVEX_Vmovntps_m256_ymm,
    store_first: Code::EVEX_Vmovss_m32_k1_xmm,
    exchanges: &[
        Exchange::OfTwo(Code::EVEX_Vshuff64x2_zmm_k1z_zmm_zmmm512b64_imm8, 0x4e),
        Exchange::OfTwo(Code::EVEX_Vshuff64x2_zmm_k1z_zmm_zmmm512b64_imm8, 0xb1),
        Exchange::OfOne(Code::EVEX_Vpermilps_zmm_k1z_zmmm512b32_imm8, 0x4e),
        Exchange::OfOne(Code::EVEX_Vpermilps_zmm_k1z_zmmm512b32_imm8, 0xb1),
    ],
    copy: Code::EVEX_Vmovaps_zmm_k1z_zmmm512,
    broadcast: Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
    from_half: Code::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae,
    to_half: Code::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae,
    load_half: Code::EVEX_Vmovdqu16_ymm_k1z_ymmm256,
    store_half: Code::EVEX_Vmovdqu16_ymmm256_k1z_ymm,
    load_words: Code::EVEX_Vpmovzxwd_zmm_k1z_ymmm256,
    store_words: Some(Code::EVEX_Vpmovdw_ymmm256_k1z_zmm),
    shift_left: Code::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8,
    shift_right: Code::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8,
    shift_right_signed: Code::EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8,
    add_integers: Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32,
    subtract_integers: Code::EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32,
    to_integers: Code::EVEX_Vcvtps2dq_zmm_k1z_zmmm512b32_er,
};

static AVX2: Codes = Codes {
    add: Code::VEX_Vaddps_ymm_ymm_ymmm256,
    subtract: Code::VEX_Vsubps_ymm_ymm_ymmm256,
    multiply: Code::VEX_Vmulps_ymm_ymm_ymmm256,
    divide: Code::VEX_Vdivps_ymm_ymm_ymmm256,
    lower: Code::VEX_Vminps_ymm_ymm_ymmm256,
    upper: Code::VEX_Vmaxps_ymm_ymm_ymmm256,
    and: Code::VEX_Vandps_ymm_ymm_ymmm256,
    or: Code::VEX_Vorps_ymm_ymm_ymmm256,
    xor: Code::VEX_Vxorps_ymm_ymm_ymmm256,
    sqrt: Code::VEX_Vsqrtps_ymm_ymmm256,
    multiply_add_213: Code::VEX_Vfmadd213ps_ymm_ymm_ymmm256,
    multiply_add_231: Code::VEX_Vfmadd231ps_ymm_ymm_ymmm256,
    compare: Code::VEX_Vcmpps_ymm_ymm_ymmm256_imm8,
    choose: Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
    load: Code::VEX_Vmovups_ymm_ymmm256,
    store: Code::VEX_Vmovups_ymmm256_ymm,
    store_past: Code::VEX_Vmovntps_m256_ymm,
    store_half_past: Code::VEX_Vmovntps_m128_xmm,
    store_first: Code::VEX_Vmovss_m32_xmm,
    exchanges: &[
        Exchange::OfTwo(Code::VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, 0x01),
        Exchange::OfOne(Code::VEX_Vpermilps_ymm_ymmm256_imm8, 0x4e),
        Exchange::OfOne(Code::VEX_Vpermilps_ymm_ymmm256_imm8, 0xb1),
    ],
    copy: Code::VEX_Vmovaps_ymm_ymmm256,
    broadcast: Code::VEX_Vbroadcastss_ymm_m32,
    from_half: Code::VEX_Vcvtph2ps_ymm_xmmm128,
    to_half: Code::VEX_Vcvtps2ph_xmmm128_ymm_imm8,
    load_half: Code::VEX_Vmovdqu_xmm_xmmm128,
    store_half: Code::VEX_Vmovdqu_xmmm128_xmm,
    load_words: Code::VEX_Vpmovzxwd_ymm_xmmm128,
    store_words: None,
    shift_left: Code::VEX_Vpslld_ymm_ymm_imm8,
    shift_right: Code::VEX_Vpsrld_ymm_ymm_imm8,
    shift_right_signed: Code::VEX_Vpsrad_ymm_ymm_imm8,
    add_integers: Code::VEX_Vpaddd_ymm_ymm_ymmm256,
    subtract_integers: Code::VEX_Vpsubd_ymm_ymm_ymmm256,
    to_integers: Code::VEX_Vcvtps2dq_ymm_ymmm256,
};
