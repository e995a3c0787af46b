//! Texts and kernels made to cost much: refused, or done in time that grows with their length. A failure is a test that does not end.

use openmps_codegen::{Target, compile};
use openmps_tile::kernel::{Cast, Compare};
use openmps_tile::types::{Scalar, Type};
use openmps_tile::{Builder, Kernel, Value, parse, verify};

fn module(functions: &str, body: &str) -> String {
    format!("module {{\n{functions}tt.func public @k(%p: !tt.ptr<f32>) {{\n{body}tt.return loc(#loc)\n}}\n}}\n")
}

#[test]
fn calls_that_double_and_double_are_refused() {
    let function = |i: usize, body: &str| format!("tt.func private @f{i}() {{\n{body}tt.return loc(#loc)\n}}\n");
    let functions: String = (0..50)
        .map(|i| function(i, &format!("tt.call @f{}() : () -> ()\n", i + 1).repeat(2)))
        .chain([function(50, "")])
        .collect();
    let error = parse(&module(&functions, "tt.call @f0() : () -> ()\n")).expect_err("too many calls");
    assert!(error.problem.contains("more than"), "{error}");
    // One long function, called often.
    let long = function(0, &"ttg.barrier loc(#loc)\n".repeat(40_000));
    let error = parse(&module(&long, &"tt.call @f0() : () -> ()\n".repeat(400))).expect_err("too long");
    assert!(error.problem.contains("more than"), "{error}");
}

#[test]
fn long_lines_and_long_locations_are_read_once() {
    let operations = "ttg.barrier loc(#loc) ".repeat(50_000);
    let kernel = parse(&module("", &format!("{operations}\n"))).expect("a kernel on one line");
    assert_eq!(kernel.body.instructions.len(), 50_000);
    let name = "a".repeat(4 << 20);
    let lines = "ttg.barrier loc(#loc1)\nttg.barrier loc(#loc2)\n".repeat(50_000);
    let text = format!("#loc1 = loc(\"{name}\":1:1)\n#loc2 = loc(\"short.py\":1:1)\n{}", module("", &lines));
    let kernel = parse(&text).expect("a kernel");
    assert_eq!(kernel.lines, ["short.py:1:1"]);
    assert_eq!(kernel.body.instructions[0].line, None);
}

/// Stores at places that are computed in so many steps, each from the last one twice.
fn places(steps: usize, step: impl Fn(&mut Builder, usize, Value) -> Value) -> Kernel {
    let mut b = Builder::new("places");
    let out = b.parameter("out", Type::pointer(Scalar::F32));
    let mut places = b.range(128);
    for i in 0..steps {
        places = step(&mut b, i, places);
    }
    let pointers = b.add_pointer(out, places);
    let loaded = b.load(pointers, None, None);
    b.store(pointers, loaded, None);
    b.finish()
}

#[test]
fn index_arithmetic_that_is_repeated_stays_short() {
    let doubled = places(200, |b, _, x| b.add(x, x));
    let chosen = places(200, |b, _, x| {
        let (next, negative) = (b.add(x, x), b.multiply(x, x));
        let less = b.compare(Compare::Less, next, negative);
        b.select(less, next, negative)
    });
    let scalars = places(100, |b, i, x| {
        let id = b.program_id((i % 3) as u8);
        let id = b.multiply(id, id);
        let id = b.splat(id, &[128]);
        let (low, high) = (b.multiply(x, id), b.add(x, id));
        b.add(low, high)
    });
    let converted = places(100, |b, _, x| {
        let narrow = b.cast(Cast::Signed, x, Scalar::I32);
        let wide = b.cast(Cast::Signed, narrow, Scalar::I64);
        b.add(wide, x)
    });
    for kernel in [doubled, chosen, scalars, converted] {
        let verified = verify(&kernel).expect("verified");
        for target in [Target::metal(32), Target::metal(128), Target::cuda(128)] {
            let source = compile(verified, &target).expect("written");
            assert!(source.text.len() < 1 << 20, "{} bytes", source.text.len());
        }
    }
}
