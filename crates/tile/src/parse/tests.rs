//! Texts as Triton 3.9 prints them, broken ones, and mutilated ones.

use super::parse;
use crate::{HostMemory, Operation, interpret, verify};
use proptest::prelude::*;

const VECTOR_ADD: &str = include_str!("../../tests/ttir/vector_add.ttir");
const SOFTMAX: &str = include_str!("../../tests/ttir/softmax.ttir");
const DROPOUT: &str = include_str!("../../tests/ttir/dropout.ttir");
const MATMUL: &str = include_str!("../../tests/ttir/matmul.ttir");
const WAITS: &str = include_str!("../../tests/ttir/waits.ttir");
const RETURNS: &str = include_str!("../../tests/ttir/returns.ttir");

#[test]
fn tutorial_kernels_are_read_and_verified() {
    for text in [VECTOR_ADD, SOFTMAX, DROPOUT, MATMUL, RETURNS, WAITS] {
        let kernel = parse(text).unwrap_or_else(|error| panic!("{error}"));
        verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn vector_add_adds() {
    let kernel = parse(VECTOR_ADD).expect("read");
    let verified = verify(&kernel).expect("verified");
    let x: Vec<f32> = (0..1500).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..1500).map(|i| 0.5 * i as f32).collect();
    let mut out = vec![-1.0f32; 1600];
    let mut memory = HostMemory::new();
    let arguments = [memory.register_read_only(&x), memory.register_read_only(&y), memory.register(&mut out), 1500];
    interpret(verified, [2, 1, 1], &arguments, &mut memory).expect("runs");
    drop(memory);
    assert!((0..1500).all(|i| out[i] == 1.5 * i as f32));
    assert_eq!(out[1500..], [-1.0; 100], "what the mask leaves out stays");
}

/// What others write meanwhile is read by an operation that changes nothing, of memory that may only be read.
#[test]
fn flags_are_read_as_they_are() {
    let (flags, mut out) = ([7, -1, 0, 9], [5; 4]);
    let kernel = parse(WAITS).expect("read");
    assert_eq!(kernel.written_parameters(), [false, true]);
    let mut memory = HostMemory::new();
    let arguments = [memory.register_read_only(&flags), memory.register(&mut out)];
    interpret(verify(&kernel).expect("verified"), [1, 1, 1], &arguments, &mut memory).expect("runs");
    drop(memory);
    assert_eq!(out, [7, -1, 0, 5]);
}

#[test]
fn barriers_of_every_version_of_triton_are_one_operation() {
    for barrier in ["ttg.barrier all", "gpu.barrier"] {
        let text = format!(
            "module {{ tt.func public @k() {{ {barrier} loc(#loc) tt.return loc(#loc) }} loc(#loc) }} loc(#loc)\n#loc = loc(unknown)"
        );
        let kernel = parse(&text).unwrap_or_else(|error| panic!("{barrier}: {error}"));
        assert_eq!(kernel.body.instructions[0].operation, Operation::Barrier, "{barrier}");
    }
}

/// What a kernel with this PTX of two float32 operands gives for 3 and 2; two results are subtracted.
fn assembled(text: &str, results: usize) -> Result<f32, String> {
    let (names, types) = (["%a", "%a:2"][results - 1], ["f32", "f32, f32"][results - 1]);
    let second = ["%zero", "%a#1"][results - 1];
    let (first, stored) = (["%a", "%a#0"][results - 1], ["%a", "%d"][results - 1]);
    let text = format!(
        r#"module {{ tt.func public @k(%out: !tt.ptr<f32>) {{
        %x = arith.constant 3.000000e+00 : f32 loc(#loc)
        %y = arith.constant 2.000000e+00 : f32 loc(#loc)
        %zero = arith.constant 0.000000e+00 : f32 loc(#loc)
        {names} = tt.elementwise_inline_asm "{text}" {{constraints = "=f,f,f", packed_element = 1 : i32, pure = true}} %x, %y : f32, f32 -> {types} loc(#loc)
        %d = arith.subf {first}, {second} : f32 loc(#loc)
        tt.store %out, {stored} : !tt.ptr<f32> loc(#loc)
        tt.return loc(#loc) }} loc(#loc) }} loc(#loc)
#loc = loc(unknown)"#
    );
    let kernel = parse(&text).map_err(|error| error.problem)?;
    let (mut out, mut memory) = ([0f32], HostMemory::new());
    let arguments = [memory.register(&mut out)];
    interpret(verify(&kernel).expect("verified"), [1, 1, 1], &arguments, &mut memory).expect("runs");
    drop(memory);
    Ok(out[0])
}

#[test]
fn ptx_of_known_instructions_is_computed() {
    for (text, expected) in [
        ("tanh.approx.f32 $0, $1;", 3f32.tanh()),
        ("ex2.approx.ftz.f32 $0, $2;", 4.0),
        ("rcp.approx.ftz.f32 $0, $2;", 0.5),
        ("mov.f32 $0, $1;", 3.0),
        ("{ .reg .f32 t; add.f32 t, $1, $2; // 5\\0A\\09 fma.rn.f32 $0, t, $2, 0f3F800000; }", 11.0),
        ("min.f32 $0, $1, $2", 2.0),
        ("div.full.f32 $0, $1, $2;", 1.5),
        ("add.sat.f32 $0, $1, $2;", 1.0),
        ("{ .reg .b16 t; cvt.rn.bf16.f32 t, 0f3F810000; cvt.f32.bf16 $0, t; }", 1.007_812_5),
        ("{ .reg .f16 t; cvt.rn.f16.f32 t, $1; cvt.f32.f16 $0, t; }", 3.0),
        ("{ .reg .f32 t; div.full.f32 t, $1, $2; cvt.rpi.ftz.f32.f32 $0, t; }", 2.0),
        ("{ .reg .f32 t; .reg .s32 i; div.full.f32 t, $1, $2; cvt.rzi.s32.f32 i, t; cvt.rn.f32.s32 $0, i; }", 1.0),
        ("{ .reg .s32 i; cvt.rni.s32.f32 i, 2.5; cvt.rn.f32.s32 $0, i; }", 2.0),
        ("{ .reg .u16 i; .reg .u32 j; cvt.rzi.u16.f32 i, 65535.0; cvt.u32.u16 j, i; cvt.rn.f32.u32 $0, j; }", 65535.0),
        ("cvt.sat.f32.f32 $0, $1;", 1.0),
        ("cvt.rna.tf32.f32 $0, 0f3F801000;", f32::from_bits(0x3f80_2000)),
        ("{ .reg .pred p; setp.gt.f32 p, $1, $2; selp.f32 $0, $2, $1, p; }", 2.0),
        ("{ .reg .pred p; setp.lt.ftz.f32 p, $1, $2; selp.f32 $0, $2, $1, p; }", 3.0),
        ("{ .reg .b32 t; cvt.rni.s32.f32 t, $1; xor.b32 $0, t, 0x40000003; }", 2.0),
        (
            "{ .reg .pred p, q; setp.gt.f32 p, $1, $2; setp.lt.and.f32 q, $1, $2, p; @q mov.f32 $0, $1; @!q mov.f32 $0, $2; }",
            2.0,
        ),
        (
            "{ .reg .pred p; mov.f32 $0, $1; setp.gt.f32 p, $1, $2; @p add.f32 $0, $0, $2; @!p mul.f32 $0, $0, $0; }",
            5.0,
        ),
        ("{ .reg .s8 i; .reg .s32 j; cvt.rni.sat.s8.f32 i, 300.0; cvt.s32.s8 j, i; cvt.rn.f32.s32 $0, j; }", 127.0),
        ("{ .reg .u8 i; .reg .u32 j; cvt.rni.u8.f32 i, -7.0; cvt.u32.u8 j, i; cvt.rn.f32.u32 $0, j; }", 0.0),
        ("{ .reg .u8 i; .reg .u32 j; cvt.sat.u8.s32 i, 1000; cvt.u32.u8 j, i; cvt.rn.f32.u32 $0, j; }", 255.0),
        ("{ .reg .b16 t; cvt.rz.bf16.f32 t, 0f3FFFFFFF; cvt.f32.bf16 $0, t; }", 1.992_187_5),
        ("{ .reg .b64 t; mov.b64 t, {$1, $2}; shr.b64 t, t, 32; cvt.u32.u64 $0, t; }", 2.0),
        ("{ .reg .b64 r, s; mov.b64 r, { $1, $2 }; fma.rn.f32x2 s, r, r, r; mov.b64 { _, $0 }, s; }", 6.0),
    ] {
        assert_eq!(assembled(text, 1), Ok(expected), "{text}");
    }
    for text in ["griddepcontrol.wait; // dummy $0", "bar.sync 0;", "fence.acq_rel.gpu;"] {
        assert_eq!(assembled(text, 1), Ok(0.0), "{text}: a result that nobody reads");
    }
    assert_eq!(assembled("{ mul.f32 $0, $2, $3; sub.rn.f32 $1, $2, $3; }", 2), Ok(5.0));
}

/// The bits that instructions give, whose last one writes `$0`.
fn bits_of(text: &str) -> u32 {
    assembled(&format!("{{ .reg .b32 a, b, c; {text} }}"), 1)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .to_bits()
}

#[test]
fn ptx_on_bits_is_computed() {
    for (text, expected) in [
        ("mov.b32 a, 0x33221100; prmt.b32 $0, a, 0x77665544, 0x7610;", 0x7766_1100),
        ("prmt.b32 $0, 0x33221180, 0x77665544, 0x048c;", 0x8044_ff00),
        // The selector is not known before the kernel runs.
        ("mov.b32 a, $1; prmt.b32 $0, 0x33221180, 0x77665544, a;", 0x8080_8080),
        ("cvt.rni.s32.f32 a, 33991.0; prmt.b32 $0, 0x33221180, 0x77665544, a;", 0xff44_0077),
        ("lop3.b32 $0, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x6a;", 0x6a6a_6a6a),
        ("lop3.b32 $0, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xea;", 0xeaea_eaea),
        ("lop3.b32 $0, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x01;", 0x0101_0101),
        ("lop3.b32 $0, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96;", 0x9696_9696),
        ("lop3.b32 $0, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xe8;", 0xe8e8_e8e8),
        ("lop3.b32 $0, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x00;", 0),
        ("shf.l.wrap.b32 $0, 0x80000001, 0x00000003, 33;", 7),
        ("shf.r.clamp.b32 $0, 0x80000001, 0x00000003, 40;", 3),
        ("shf.r.wrap.b32 $0, 0x80000001, 0x00000003, 4;", 0x3800_0000),
        ("bfe.u32 $0, 0x12345678, 8, 12;", 0x456),
        ("bfi.b32 $0, 0xff, 0x12345678, 8, 4;", 0x1234_5f78),
        ("popc.b32 $0, 0xf0f00001;", 9),
        ("brev.b32 $0, 0x80000002;", 0x4000_0001),
        ("clz.b32 $0, 0x00010000;", 15),
        ("clz.b32 $0, 0;", 32),
        ("shl.b32 $0, 1, 40;", 0),
        ("shr.s32 $0, 0x80000000, 40;", u32::MAX),
        ("mul.hi.u32 $0, 0x80000000, 6;", 3),
        ("mul.hi.s32 $0, 0x80000000, 6;", -3_i32 as u32),
        ("mul24.lo.u32 $0, 0x01000003, 5;", 15),
        ("mad24.lo.s32 $0, 0x00ffffff, 5, 7;", 2),
        ("{ .reg .b64 w; mad.wide.s32 w, -2, 3, 8; cvt.u32.u64 $0, w; }", 2),
        ("{ .reg .b16 h; mov.b16 h, 0xffff; mul.wide.u16 $0, h, h; }", 0xfffe_0001),
        ("rem.u32 $0, 0xffffffff, 10;", 5),
    ] {
        assert_eq!(bits_of(text), expected, "{text}");
    }
}

#[test]
fn ptx_on_two_floats_in_a_register_is_computed() {
    for (text, expected) in [
        ("cvt.rn.f16x2.f32 $0, $1, $2;", 0x4200_4000),
        ("cvt.rz.bf16x2.f32 $0, 0f3FFFFFFF, $2;", 0x3fff_4000),
        ("cvt.rn.relu.bf16x2.f32 $0, -1.0, $2;", 0x0000_4000),
        ("mov.b32 a, 0x42004000; fma.rn.f16x2 $0, a, a, a;", 0x4a00_4600),
        ("mov.b32 a, 0x42004000; sub.f16x2 $0, a, 0x40004200;", 0x3c00_bc00),
        ("mov.b32 a, 0x40403f80; max.bf16x2 $0, a, 0x40004000;", 0x4040_4000),
        ("mov.b32 a, 0x42004000; { .reg .b16 l, h; mov.b32 {l, h}, a; mov.b32 $0, {h, l}; }", 0x4000_4200),
        ("mov.b32 a, 0x42004000; { .reg .pred p, q; setp.gt.f16x2 p|q, a, 0x41004100; selp.b32 $0, 1, 2, q; }", 1),
        ("{ .reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, $1, 1000.0; cvt.u32.u16 $0, h; }", 0x447e),
        ("{ .reg .b16 h; cvt.rn.satfinite.e5m2x2.f32 h, $1, -2.0; cvt.rn.f16x2.e5m2x2 $0, h; }", 0x4200_c000),
        ("{ .reg .b16 h; mov.b16 h, 0x443c; cvt.rn.f16x2.e4m3x2 $0, h; }", 0x4200_3e00),
        ("{ .reg .b8 h; cvt.rn.satfinite.e2m1x2.f32 h, $1, -0.76; cvt.u32.u8 $0, h; }", 0x5a),
        ("{ .reg .b8 h; cvt.rn.satfinite.e2m1x2.f32 h, 100.0, 0.25; cvt.u32.u8 $0, h; }", 0x70),
        ("{ .reg .b8 h; mov.b8 h, 0x9f; cvt.rn.f16x2.e2m1x2 $0, h; }", 0xb800_c600),
        ("{ .reg .b16 h; cvt.rp.satfinite.ue8m0x2.f32 h, 0.0, $1; cvt.u32.u16 $0, h; }", 129),
        ("{ .reg .b16 h; cvt.rz.ue8m0x2.f32 h, 0f7F800000, $1; cvt.u32.u16 $0, h; }", 0xff80),
        // Every register of several elements in one is as long as they are together.
        ("{ .reg .b8 l, h; mov.b8 l, 1; mov.b8 h, 2; mov.b32 $0, {l, h, l, h}; }", 0x0201_0201),
    ] {
        assert_eq!(bits_of(text), expected, "{text}");
    }
}

#[test]
fn ptx_that_is_not_known_is_refused_by_the_instruction() {
    for (text, expected) in [
        ("cvt.rs.f16x2.f32 $0, $1, $2, $1;", "the PTX `cvt.rs.f16x2.f32 $0, $1, $2, $1`: not covered"),
        ("cvt.rn.e4m3x2.f32 $0, $1, $2;", "not covered"),
        ("cvt.rm.f16.f32 $0, $1;", "`cvt.rm.f16.f32 $0, $1`: not covered"),
        ("prmt.b32.f4e $0, $1, $2, 0;", "not covered"),
        ("mov.u32 $0, %tid.x;", "%tid.x: a program sees no threads"),
        ("{ .reg .pred p; setp.gt.f32 p, $1, $2; @p bar.sync 0; }", "a barrier for some elements"),
        ("L: bra L;", "not covered"),
        ("rcp.sat.f32 $0, $1;", "not covered"),
        ("setp.ne.f32 $0, $1, $2;", "not covered"),
        ("selp.f32 $0, $1, $2, $1;", "$1 is no i1"),
        ("min.NaN.xorsign.abs.f32 $0, $1, $2;", "not covered"),
        ("@p mov.f32 $0, $1;", "p holds nothing"),
        ("add.f32 $0, $1, q;", "q holds nothing"),
        ("mov.b16 $0, 7;", "another type than the result"),
        ("add.f32", "no register to write"),
        ("", "PTX that does not write $0"),
    ] {
        let problem = assembled(text, 1).expect_err(text);
        assert!(problem.contains(expected), "{problem}, expected {expected}");
    }
}

#[test]
fn what_is_not_covered_is_refused_by_name_and_source_line() {
    let error = parse(&MATMUL.replace("tt.dot ", "tt.dot_by_hand ")).expect_err("not covered");
    assert!(error.problem.starts_with("tt.dot_by_hand: not covered"), "{error}");
    assert_eq!(error.source_line.as_deref(), Some("k.py:47:15"), "{error}");
}

#[test]
fn broken_texts_say_what_and_where() {
    for (from, to, expected) in [
        ("%block_start_0 = arith.muli %pid,", "%block_start_0 = arith.muli %pit,", "%pit is not defined before"),
        ("tensor<1024xf32>", "tensor<1024xf33>", "`f33` is no type"),
        ("arith.cmpi slt", "arith.cmpi smaller", "the predicate `smaller`"),
        ("get_program_id x", "get_program_id w", "an axis of the grid is x, y or z"),
        ("arith.addf", "arith.addq", "arith.addq: not covered"),
        ("module {", "", "no `module` in the text"),
    ] {
        let error = parse(&VECTOR_ADD.replace(from, to)).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}, expected {expected}");
        assert!(error.line > 0 && error.column > 0);
    }
}

#[test]
fn branches_lead_to_blocks_that_are_there_and_end() {
    let function = |body: &str| {
        format!(
            "module {{\n  tt.func public @f(%c: i1, %p: !tt.ptr<i32>) attributes {{noinline = false}} {{\n{body}  }}\n}}\n"
        )
    };
    for (body, expected) in [
        ("cf.br ^bb7\n^bb1:\ntt.return\n", "no block ^bb7"),
        ("cf.br ^bb1(%c : i1)\n^bb1:\ntt.return\n", "1 values for ^bb1, expected 0"),
        ("cf.br ^bb1\n^bb1:\ncf.br ^bb1\n", "more than 1048576 instructions"),
        ("cf.cond_br %c, ^bb1, ^bb2\n^bb1:\ncf.cond_br %c, ^bb1, ^bb2\n^bb2:\ntt.return\n", "64 deep"),
    ] {
        let error = parse(&function(body)).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}, expected {expected}");
    }
    // Many conditions behind each other without a return are no deeper than one, and each is read once.
    let chain: String = (0..60)
        .map(|i| format!("cf.cond_br %c, ^bb{}, ^bb{}\n^bb{0}:\ncf.br ^bb{1}\n^bb{1}:\n", 2 * i + 1, 2 * i + 2))
        .collect();
    parse(&function(&format!("{chain}tt.return loc(unknown)\n"))).unwrap_or_else(|error| panic!("{error}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever is cut out of a text, doubled or replaced: an error or a kernel, never a panic.
    #[test]
    fn mutilated_texts_never_panic(
        which in 0..5usize,
        at in 0.0..1.0f64,
        length in 0..60usize,
        insert in prop::sample::select(vec!["", "%", "{", "}", "(", ")", "tensor<", "999999999999999999999x", "\"", "loc(", "->", "dense<", "é", "\u{0}"]),
    ) {
        let text = [VECTOR_ADD, SOFTMAX, DROPOUT, MATMUL, RETURNS][which];
        let begin = (0..=(at * text.len() as f64) as usize).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        let end = (begin + length).min(text.len());
        let mutilated = format!("{}{insert}{}", &text[..begin], text.get(end..).unwrap_or(""));
        if let Ok(kernel) = parse(&mutilated) {
            let _ = verify(&kernel);
        }
    }
}
