use super::{MAX_LOOP_DEPTH, MAX_TILE_ELEMENTS, verify};
use crate::kernel::*;
use crate::samples::{row_softmax, vector_add};
use crate::types::{Scalar::*, Type};
use crate::{Builder, Scalar};
use std::sync::atomic::{AtomicUsize, Ordering};

fn tile(scalar: Scalar, dims: &[usize]) -> Type {
    Type::tile(scalar, dims)
}

/// How many parameters were named.
static NAMES: AtomicUsize = AtomicUsize::new(0);

/// A value of the type, whatever it is.
fn any(b: &mut Builder, ty: Type) -> Value {
    let (scalar, dims) = (ty.with_dims(&[]), ty.dims);
    let parameter = b.parameter(format!("p{}", NAMES.fetch_add(1, Ordering::Relaxed)), scalar);
    if dims.is_empty() { parameter } else { b.splat(parameter, &dims) }
}

fn message(kernel: &Kernel) -> String {
    verify(kernel).map_or_else(|error| error.to_string(), |_| "verified".to_owned())
}

#[test]
fn kernels_of_the_language_pass() {
    assert_eq!(message(&vector_add(1024)), "verified");
    assert_eq!(message(&row_softmax(1000)), "verified");
    assert_eq!(message(&Builder::new("empty").finish()), "verified");
}

/// Each test is a kernel that breaks one rule and what is said about it.
macro_rules! broken {
    ($($name:ident: |$b:ident| $build:block => $message:expr;)+) => {
        $(#[test]
        fn $name() {
            let mut builder = Builder::new("k");
            let $b = &mut builder;
            $build;
            assert_eq!(message(&builder.finish()), format!("kernel `k`, {}", $message));
        })+
    };
}

broken! {
    tile_parameter: |b| { b.parameter("p", tile(F32, &[4])) }
        => "parameter `p`: the parameter has type tensor<4xf32>, expected a scalar";
    duplicate_parameter: |b| { b.parameter("p", Type::scalar(F32)); b.parameter("p", Type::scalar(F32)) }
        => "parameter `p`: another parameter has this name";
    pointer_to_truth_values: |b| { b.parameter("p", Type::pointer(I1)) }
        => "parameter `p`: %0 has type !tt.ptr<i1>, expected pointers to what has an address";
    empty_tile: |b| { b.constant(0.0, &tile(F32, &[4, 0])) }
        => "instruction 0 (arith.constant): %0 has type tensor<4x0xf32>, expected 1 to 1048576 elements";
    huge_tile: |b| { b.constant(0.0, &tile(F32, &[MAX_TILE_ELEMENTS, 2])) }
        => "instruction 0 (arith.constant): %0 has type tensor<1048576x2xf32>, expected 1 to 1048576 elements";
    overflowing_tile: |b| { b.constant(0.0, &tile(F32, &[usize::MAX, 3])) }
        => format!("instruction 0 (arith.constant): %0 has type tensor<{}x3xf32>, expected 1 to 1048576 elements", usize::MAX);
    unknown_operand: |b| { b.emit(Operation::Unary(Unary::Exp), &[Value(7)], Type::scalar(F32)) }
        => "instruction 0 (math.exp): %7 has no type, the kernel has types of 1 values";
    undefined_operand: |b| { b.emit(Operation::Unary(Unary::Exp), &[Value(0)], Type::scalar(F32)) }
        => "instruction 0 (math.exp): %0 is not defined here";
    too_few_operands: |b| { let x = any(b, Type::scalar(F32)); b.emit(Operation::Binary(Binary::Add), &[x], Type::scalar(F32)) }
        => "instruction 0 (arith.add): 1 operands, expected 2";
    too_many_operands: |b| {
        let x = any(b, Type::pointer(F32));
        b.emit(Operation::Load, &[x; 4], Type::scalar(F32))
    } => "instruction 0 (tt.load): 4 operands, expected 1 to 3";
    result_of_a_store: |b| {
        let (pointer, x) = (any(b, Type::pointer(F32)), any(b, Type::scalar(F32)));
        b.emit(Operation::Store, &[pointer, x], Type::scalar(F32))
    } => "instruction 0 (tt.store): 1 results, expected 0";

    constant_pointer: |b| { b.constant(0.0, &Type::pointer(F32)) }
        => "instruction 0 (arith.constant): the result has type !tt.ptr<f32>, expected integers, floats or i1";
    constant_beyond_i8: |b| { b.integer(256, I8) } => "instruction 0 (arith.constant): the constant 256 is not of type i8";
    constant_below_i8: |b| { b.integer(-129, I8) } => "instruction 0 (arith.constant): the constant -129 is not of type i8";
    constant_beyond_i1: |b| { b.integer(2, I1) } => "instruction 0 (arith.constant): the constant 2 is not of type i1";
    integer_of_float_type: |b| { b.integer(1, F32) } => "instruction 0 (arith.constant): the constant 1 is not of type f32";
    float_of_integer_type: |b| { b.emit(Operation::Constant(Number::Float(1.0)), &[], Type::scalar(I32)) }
        => "instruction 0 (arith.constant): the constant 1.0 is not of type i32";
    program_axis: |b| { b.emit(Operation::ProgramId(3), &[], Type::scalar(I32)) }
        => "instruction 0 (tt.get_program_id): axis 3, expected one below 3";
    program_type: |b| { b.emit(Operation::ProgramCount(0), &[], Type::scalar(I64)) }
        => "instruction 0 (tt.get_num_programs): the result has type i64, expected i32";
    range_type: |b| { b.emit(Operation::Range { start: 0 }, &[], tile(I64, &[4])) }
        => "instruction 0 (tt.make_range): the result has type tensor<4xi64>, expected an i32 tile of one dimension";
    range_size: |b| { b.emit(Operation::Range { start: i32::MAX - 2 }, &[], tile(I32, &[4])) }
        => "instruction 0 (tt.make_range): the range 2147483645.. of 4 elements leaves i32";

    splat_of_a_tile: |b| { let x = any(b, tile(F32, &[4])); b.emit(Operation::Splat, &[x], tile(F32, &[4])) }
        => "instruction 1 (tt.splat): the operand has type tensor<4xf32>, expected a scalar";
    splat_to_a_scalar: |b| { let x = any(b, Type::scalar(F32)); b.splat(x, &[]) }
        => "instruction 0 (tt.splat): the result has type f32, expected a tile";
    splat_of_another_type: |b| { let x = any(b, Type::scalar(F32)); b.emit(Operation::Splat, &[x], tile(F64, &[4])) }
        => "instruction 0 (tt.splat): the result has type tensor<4xf64>, expected tensor<4xf32>";
    expand_dims_axis: |b| { let x = any(b, tile(F32, &[4])); b.expand_dims(x, 2) }
        => "instruction 1 (tt.expand_dims): axis 2, expected one below 2";
    expand_dims_of_a_scalar: |b| { let x = any(b, Type::scalar(F32)); b.expand_dims(x, 0) }
        => "instruction 0 (tt.expand_dims): the operand has type f32, expected a tile";
    expand_dims_result: |b| {
        let x = any(b, tile(F32, &[4]));
        b.emit(Operation::ExpandDims { axis: 0 }, &[x], tile(F32, &[4, 1]))
    } => "instruction 1 (tt.expand_dims): the result has type tensor<4x1xf32>, expected tensor<1x4xf32>";
    expand_dims_rank: |b| { let x = any(b, tile(F32, &[1; 12])); b.expand_dims(x, 0) }
        => "instruction 1 (tt.expand_dims): the operand has type tensor<1x1x1x1x1x1x1x1x1x1x1x1xf32>, expected at most 11 dimensions";
    broadcast_of_more_than_one: |b| { let x = any(b, tile(F32, &[4, 1])); b.broadcast(x, &[8, 2]) }
        => "instruction 1 (tt.broadcast): the result has type tensor<8x2xf32>, expected tensor<4x1xf32> with dimensions of size 1 repeated";
    broadcast_rank: |b| { let x = any(b, tile(F32, &[1])); b.broadcast(x, &[1, 2]) }
        => "instruction 1 (tt.broadcast): the result has type tensor<1x2xf32>, expected tensor<1xf32> with dimensions of size 1 repeated";
    reshape_count: |b| { let x = any(b, tile(F32, &[4])); b.emit(Operation::Reshape, &[x], tile(F32, &[2, 3])) }
        => "instruction 1 (tt.reshape): the result has type tensor<2x3xf32>, expected 4 elements of f32";
    reduce_axis: |b| { let x = any(b, tile(F32, &[4])); b.reduce(Combine::Sum, x, 1) }
        => "instruction 1 (tt.reduce): axis 1, expected one below 1";
    reduce_of_a_scalar: |b| { let x = any(b, Type::scalar(F32)); b.reduce(Combine::Sum, x, 0) }
        => "instruction 0 (tt.reduce): the operand has type f32, expected a tile";
    reduce_type: |b| { let x = any(b, tile(I1, &[4])); b.reduce(Combine::Sum, x, 0) }
        => "instruction 1 (tt.reduce): the operand has type tensor<4xi1>, expected integers or floats";
    reduce_bits_of_floats: |b| { let x = any(b, tile(F32, &[4])); b.reduce(Combine::And, x, 0) }
        => "instruction 1 (tt.reduce): the operand has type tensor<4xf32>, expected integers or i1";
    reduce_result: |b| {
        let x = any(b, tile(F32, &[4, 8]));
        b.emit(Operation::Reduce { axis: 0, combine: Combine::Sum }, &[x], tile(F32, &[4]))
    } => "instruction 1 (tt.reduce): the result has type tensor<4xf32>, expected tensor<8xf32>";

    add_to_a_number: |b| { let x = any(b, Type::scalar(I64)); b.add_pointer(x, x) }
        => "instruction 0 (tt.addptr): operand 0 has type i64, expected pointers";
    offset_type: |b| { let (x, y) = (any(b, Type::pointer(F32)), any(b, Type::scalar(F32))); b.add_pointer(x, y) }
        => "instruction 0 (tt.addptr): the offset has type f32, expected i32 or i64";
    offset_dims: |b| { let (x, y) = (any(b, Type::pointer(F32)), any(b, tile(I32, &[4]))); b.emit(Operation::AddPointer, &[x, y], Type::pointer(F32)) }
        => "instruction 1 (tt.addptr): the offset has type tensor<4xi32>, expected the dimensions of !tt.ptr<f32>";
    load_from_a_number: |b| { let x = any(b, Type::scalar(F32)); b.load(x, None, None) }
        => "instruction 0 (tt.load): operand 0 has type f32, expected pointers";
    load_mask_dims: |b| { let (x, mask) = (any(b, tile_of_pointers(4)), any(b, tile(I1, &[2]))); b.load(x, Some(mask), None) }
        => "instruction 2 (tt.load): the mask has type tensor<2xi1>, expected tensor<4xi1>";
    load_mask_type: |b| { let (x, mask) = (any(b, Type::pointer(F32)), any(b, Type::scalar(I8))); b.load(x, Some(mask), None) }
        => "instruction 0 (tt.load): the mask has type i8, expected i1";
    load_other: |b| {
        let (x, mask, other) = (any(b, Type::pointer(F32)), any(b, Type::scalar(I1)), any(b, Type::scalar(F64)));
        b.load(x, Some(mask), Some(other))
    } => "instruction 0 (tt.load): what masked-off elements are has type f64, expected f32";
    load_result: |b| { let x = any(b, Type::pointer(F32)); b.emit(Operation::Load, &[x], Type::scalar(I32)) }
        => "instruction 0 (tt.load): the result has type i32, expected f32";
    store_to_a_number: |b| { let x = any(b, Type::scalar(I64)); b.store(x, x, None) }
        => "instruction 0 (tt.store): operand 0 has type i64, expected pointers";
    store_type: |b| { let (x, y) = (any(b, Type::pointer(F32)), any(b, Type::scalar(F16))); b.store(x, y, None) }
        => "instruction 0 (tt.store): the stored value has type f16, expected f32";
    store_mask: |b| {
        let (x, y, mask) = (any(b, Type::pointer(F32)), any(b, Type::scalar(F32)), any(b, tile(I1, &[1])));
        b.store(x, y, Some(mask))
    } => "instruction 1 (tt.store): the mask has type tensor<1xi1>, expected i1";

    exp_of_integers: |b| { let x = any(b, Type::scalar(I32)); b.exp(x) }
        => "instruction 0 (math.exp): the operand has type i32, expected floats";
    negated_truth: |b| { let x = any(b, Type::scalar(I1)); b.negate(x) }
        => "instruction 0 (arith.negate): the operand has type i1, expected integers or floats";
    complement_of_floats: |b| { let x = any(b, Type::scalar(F32)); b.not(x) }
        => "instruction 0 (arith.not): the operand has type f32, expected integers or i1";
    unary_result: |b| { let x = any(b, Type::scalar(F32)); b.emit(Operation::Unary(Unary::Exp), &[x], Type::scalar(F64)) }
        => "instruction 0 (math.exp): the result has type f64, expected f32";
    sum_of_pointers: |b| { let x = any(b, Type::pointer(F32)); b.add(x, x) }
        => "instruction 0 (arith.add): operand 0 has type !tt.ptr<f32>, expected integers or floats";
    different_operands: |b| { let (x, y) = (any(b, Type::scalar(F32)), any(b, Type::scalar(F64))); b.add(x, y) }
        => "instruction 0 (arith.add): operand 1 has type f64, expected f32";
    different_dims: |b| { let (x, y) = (any(b, tile(F32, &[4])), any(b, tile(F32, &[4, 1]))); b.add(x, y) }
        => "instruction 2 (arith.add): operand 1 has type tensor<4x1xf32>, expected tensor<4xf32>";
    unsigned_floats: |b| { let x = any(b, Type::scalar(F32)); b.binary(Binary::DivideUnsigned, x, x) }
        => "instruction 0 (arith.divui): operand 0 has type f32, expected integers";
    shifted_truth: |b| { let x = any(b, Type::scalar(I1)); b.binary(Binary::ShiftLeft, x, x) }
        => "instruction 0 (arith.shli): operand 0 has type i1, expected integers";
    power_of_integers: |b| { let x = any(b, Type::scalar(I32)); b.binary(Binary::Power, x, x) }
        => "instruction 0 (math.powf): operand 0 has type i32, expected floats";
    and_of_floats: |b| { let x = any(b, Type::scalar(F32)); b.and(x, x) }
        => "instruction 0 (arith.andi): operand 0 has type f32, expected integers or i1";
    binary_result: |b| { let x = any(b, Type::scalar(F32)); b.emit(Operation::Binary(Binary::Add), &[x, x], Type::scalar(I32)) }
        => "instruction 0 (arith.add): the result has type i32, expected f32";
    ordered_truth: |b| { let x = any(b, Type::scalar(I1)); b.compare(Compare::Less, x, x) }
        => "instruction 0 (arith.cmp): operand 0 has type i1, expected integers or floats";
    unsigned_comparison_of_floats: |b| { let x = any(b, Type::scalar(F32)); b.compare(Compare::LessUnsigned, x, x) }
        => "instruction 0 (arith.cmp): operand 0 has type f32, expected integers";
    compare_different: |b| { let (x, y) = (any(b, Type::scalar(I32)), any(b, Type::scalar(I64))); b.compare(Compare::Equal, x, y) }
        => "instruction 0 (arith.cmp): operand 1 has type i64, expected i32";
    compare_result: |b| { let x = any(b, Type::scalar(F32)); b.emit(Operation::Compare(Compare::Less), &[x, x], Type::scalar(F32)) }
        => "instruction 0 (arith.cmp): the result has type f32, expected i1";
    select_condition: |b| { let (c, x) = (any(b, Type::scalar(I1)), any(b, tile(F32, &[4]))); b.select(c, x, x) }
        => "instruction 1 (arith.select): the condition has type i1, expected tensor<4xi1>";
    select_different: |b| {
        let (c, x, y) = (any(b, Type::scalar(I1)), any(b, Type::scalar(F32)), any(b, Type::scalar(F64)));
        b.select(c, x, y)
    } => "instruction 0 (arith.select): operand 2 has type f64, expected f32";
    select_result: |b| {
        let (c, x) = (any(b, Type::scalar(I1)), any(b, Type::scalar(F32)));
        b.emit(Operation::Select, &[c, x, x], Type::scalar(I1))
    } => "instruction 0 (arith.select): the result has type i1, expected f32";
    cast_of_pointers: |b| { let x = any(b, Type::pointer(F32)); b.cast(Cast::Bits, x, I64) }
        => "instruction 0 (tt.bitcast): the operand has type !tt.ptr<f32>, expected integers, floats or i1";
    cast_dims: |b| { let x = any(b, tile(F32, &[4])); b.emit(Operation::Cast(Cast::Float), &[x], tile(F64, &[2])) }
        => "instruction 1 (arith.fpcast): the result has type tensor<2xf64>, expected tensor<4xf64>";

    for_bounds_of_floats: |b| { let x = any(b, Type::scalar(F32)); b.for_loop([x; 3], &[], |_, _, _| vec![]) }
        => "instruction 0 (scf.for): the lower bound has type f32, expected an integer";
    for_bounds_differ: |b| {
        let (x, y) = (any(b, Type::scalar(I32)), any(b, Type::scalar(I64)));
        b.for_loop([x, x, y], &[], |_, _, _| vec![])
    } => "instruction 0 (scf.for): the step has type i64, expected i32";
    yield_count: |b| {
        let x = any(b, Type::scalar(I32));
        b.for_loop([x; 3], &[x], |_, _, _| vec![])
    } => "instruction 0/0 (scf.yield): 0 operands, expected 1";
    yield_type: |b| {
        let (x, y) = (any(b, Type::scalar(I32)), any(b, Type::scalar(F32)));
        b.for_loop([x; 3], &[y], |_, i, _| vec![i])
    } => "instruction 0/0 (scf.yield): yielded value 0 has type i32, expected f32";
    out_of_scope: |b| {
        let x = any(b, Type::scalar(I32));
        let mut inner = x;
        b.for_loop([x; 3], &[], |b, i, _| { inner = b.negate(i); vec![] });
        b.negate(inner)
    } => "instruction 1 (arith.negate): %2 is not defined here";
    induction_variable_out_of_scope: |b| {
        let x = any(b, Type::scalar(I32));
        let mut inner = x;
        b.for_loop([x; 3], &[], |_, i, _| { inner = i; vec![] });
        b.negate(inner)
    } => "instruction 1 (arith.negate): %1 is not defined here";
}

fn tile_of_pointers(size: usize) -> Type {
    Type::pointer(F32).with_dims(&[size])
}

/// A kernel with one loop that carries one value.
fn looping() -> Kernel {
    let mut b = Builder::new("k");
    let (bound, x) = (b.parameter("bound", Type::scalar(I32)), b.parameter("x", Type::scalar(F32)));
    b.for_loop([bound; 3], &[x], |b, _, carried| vec![b.negate(carried[0])]);
    b.finish()
}

/// Each test is what is done to that kernel and what is said about it.
macro_rules! broken_loop {
    ($($name:ident: |$kernel:ident, $instruction:ident| $change:block => $message:expr;)+) => {
        $(#[test]
        fn $name() {
            let mut $kernel = looping();
            #[allow(unused_mut, unused_variables)]
            let mut $instruction = &mut $kernel.body.instructions[0];
            $change;
            assert_eq!(message(&$kernel), format!("kernel `k`, {}", $message));
        })+
    };
}

broken_loop! {
    body_with_arguments: |kernel, x| { kernel.body.arguments.push(Value(0)) }
        => "the kernel: 1 block arguments, expected 0";
    loop_without_block: |kernel, x| { x.blocks.clear() } => "instruction 0 (scf.for): 0 blocks, expected 1";
    blocks_of_another_operation: |kernel, x| {
        let block = Block::default();
        x.blocks[0].instructions[0].blocks.push(block)
    } => "instruction 0/0 (arith.negate): 1 blocks, expected 0";
    loop_results: |kernel, x| { x.results.clear() } => "instruction 0 (scf.for): 0 results, expected 1";
    loop_result_type: |kernel, x| { kernel.types[5] = Type::scalar(F64) }
        => "instruction 0 (scf.for): result 0 has type f64, expected f32";
    block_arguments: |kernel, x| { x.blocks[0].arguments.truncate(1) }
        => "instruction 0 (scf.for): 1 block arguments, expected 2";
    block_argument_type: |kernel, x| { kernel.types[2] = Type::scalar(I64) }
        => "instruction 0 (scf.for): block argument 0 has type i64, expected i32";
    empty_block: |kernel, x| { x.blocks[0].instructions.clear() }
        => "instruction 0 (scf.for): the block does not end in scf.yield, or scf.condition where a loop asks";
    missing_yield: |kernel, x| { x.blocks[0].instructions.truncate(1) }
        => "instruction 0/0 (arith.negate): the block does not end in scf.yield, or scf.condition where a loop asks";
    early_yield: |kernel, x| {
        let last = x.blocks[0].instructions[1].clone();
        x.blocks[0].instructions.insert(1, last)
    } => "instruction 0/1 (scf.yield): scf.yield or scf.condition stands elsewhere than at the end of a block that asks for it";
    yield_of_the_kernel: |kernel, x| {
        let last = Instruction { operands: vec![], ..x.blocks[0].instructions[1].clone() };
        kernel.body.instructions.push(last)
    } => "instruction 1 (scf.yield): scf.yield or scf.condition stands elsewhere than at the end of a block that asks for it";
    defined_twice: |kernel, x| { x.blocks[0].instructions[0].results[0] = Value(3) }
        => "instruction 0/0 (arith.negate): %3 is defined already";
    defined_again_after_its_scope: |kernel, x| { let inner = x.blocks[0].instructions[0].results[0]; x.results[0] = inner }
        => "instruction 0 (scf.for): %4 is defined already";
    result_read_inside: |kernel, x| { x.blocks[0].instructions[0].operands[0] = Value(5) }
        => "instruction 0/0 (arith.negate): %5 is not defined here";
    unknown_result: |kernel, x| { x.results[0] = Value(99) }
        => "instruction 0 (scf.for): %99 has no type, the kernel has types of 6 values";
}

#[test]
fn loops_nest_to_a_limit() {
    fn nest(b: &mut Builder, bound: Value, depth: usize) {
        if depth > 0 {
            b.for_loop([bound; 3], &[], |b, _, _| {
                nest(b, bound, depth - 1);
                vec![]
            });
        }
    }
    let nested = |depth| {
        let mut b = Builder::new("k");
        let bound = b.parameter("bound", Type::scalar(I32));
        nest(&mut b, bound, depth);
        message(&b.finish())
    };
    assert_eq!(nested(MAX_LOOP_DEPTH), "verified");
    assert!(nested(MAX_LOOP_DEPTH + 1).ends_with("(scf.for): more than 32 loops in each other"));
}

/// For each conversion, the pairs (from, to) that it is for; all others are refused.
#[test]
fn conversions_are_for_their_pairs() {
    const ALL: [Scalar; 9] = [I1, I8, I16, I32, I64, F16, BF16, F32, F64];
    let integers = [I8, I16, I32, I64];
    let fits = |cast, from: Scalar, to: Scalar| match cast {
        Cast::Signed => from != to && integers.contains(&from) && (to == I1 || integers.contains(&to)),
        Cast::Unsigned => !from.is_float() && integers.contains(&to) && from < to,
        Cast::SignedToFloat => integers.contains(&from) && to.is_float(),
        Cast::UnsignedToFloat => !from.is_float() && to.is_float(),
        Cast::FloatToSigned | Cast::FloatToUnsigned => from.is_float() && integers.contains(&to),
        Cast::Float => from != to && from.is_float() && to.is_float(),
        Cast::Bits => [(I16, F16), (I16, BF16), (F16, BF16), (I32, F32), (I64, F64)]
            .iter()
            .any(|&x| x == (from, to) || x == (to, from)),
    };
    for &cast in Cast::ALL {
        for from in ALL {
            for to in ALL {
                let mut b = Builder::new("k");
                let x = any(&mut b, Type::scalar(from));
                b.emit(Operation::Cast(cast), &[x], Type::scalar(to));
                let expected = match fits(cast, from, to) {
                    true => "verified".to_owned(),
                    false => {
                        let name = Operation::Cast(cast).name().into_owned();
                        format!(
                            "kernel `k`, instruction 0 ({name}): no conversion from {} to {}",
                            from.name(),
                            to.name()
                        )
                    }
                };
                assert_eq!(message(&b.finish()), expected);
            }
        }
    }
}
