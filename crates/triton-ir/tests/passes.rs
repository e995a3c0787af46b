//! Small modules through each pass, and their text through the kernel language's parser.

use openmps_tile::{HostMemory, interpret, verify};
use openmps_triton_ir::attribute::Number;
use openmps_triton_ir::print::{Origins, print};
use openmps_triton_ir::{Attribute, Builder, Context, Float, OperationId, Sign, Space, Type, ValueId, passes};

/// A module with one kernel whose body is being written.
struct Draft {
    context: Context,
    builder: Builder,
    module: OperationId,
    parameters: Vec<ValueId>,
}

impl Draft {
    fn new(parameters: &[Type]) -> Draft {
        let (mut context, builder) = (Context::new(), Builder::default());
        let module = builder.module(&mut context);
        let mut draft = Draft { context, builder, module, parameters: Vec::new() };
        draft.parameters = draft.function("kernel", parameters, &[], "public");
        draft
    }

    /// Begins a function; its parameters.
    fn function(
        &mut self,
        name: &str,
        parameters: &[Type],
        results: &[Type],
        visibility: &'static str,
    ) -> Vec<ValueId> {
        let ty = Type::Function(parameters.to_vec(), results.to_vec());
        let function = self.builder.function(&mut self.context, self.module, name, ty, visibility, false);
        let regions = [self.module, function].map(|operation| self.context.operation(operation).regions[0]);
        let body = self.context.region(regions[0]).blocks[0];
        self.context.append(function, body);
        let entry = self.context.append_block(regions[1], parameters);
        self.builder.at_end(entry);
        self.context.block(entry).arguments.clone()
    }

    fn integer(&mut self, number: i64, bits: u32) -> ValueId {
        self.builder.constant(&mut self.context, Number::Integer(number), Type::Integer(bits))
    }

    fn alike(&mut self, name: &'static str, operands: &[ValueId]) -> ValueId {
        self.builder.alike(&mut self.context, name, operands).expect("operands of one type")
    }

    fn end(&mut self, values: &[ValueId]) {
        self.builder.emit(&mut self.context, "tt.return", values, &[], Vec::new(), 0);
    }

    fn store(&mut self, pointer: ValueId, value: ValueId) {
        self.builder.store(&mut self.context, &[pointer, value], None).expect("a pointer to the value's type");
    }

    /// Lines of the kernel's body, without their indentation.
    fn text(&self) -> Vec<String> {
        assert_eq!(openmps_triton_ir::verify(&self.context, self.module), Ok(()));
        print(&self.context, self.module, Origins::LeftOut).lines().map(|line| line.trim().to_owned()).collect()
    }
}

fn pointer(to: Type) -> Type {
    Type::Pointer(Box::new(to), Space::Global)
}

#[test]
fn what_is_known_is_not_computed() {
    let expected = [
        ("arith.addi", 2_147_483_647, 1, "-2147483648"),
        ("arith.subi", 3, 5, "-2"),
        ("arith.muli", 65_536, 65_536, "0"),
        ("arith.divsi", -7, 2, "-3"),
        ("arith.remsi", -7, 2, "-1"),
        ("arith.andi", 12, 10, "8"),
        ("arith.xori", 12, 10, "6"),
        ("arith.minsi", -1, 1, "-1"),
        ("arith.shli", 1, 31, "-2147483648"),
        ("arith.shrsi", -8, 1, "-4"),
    ];
    for (name, x, y, result) in expected {
        let mut draft = Draft::new(&[pointer(Type::I32)]);
        let (x, y) = (draft.integer(x, 32), draft.integer(y, 32));
        let value = draft.alike(name, &[x, y]);
        draft.store(draft.parameters[0], value);
        draft.end(&[]);
        passes::simplify(&mut draft.context, draft.module);
        passes::drop_unused_operations(&mut draft.context, draft.module);
        let text = draft.text();
        assert_eq!(text[2], format!("%c{result}_i32 = arith.constant {result} : i32"), "{name}: {text:#?}");
        assert!(text[3].starts_with("tt.store"), "{name}: {text:#?}");
    }
}

#[test]
fn what_is_not_defined_is_left_to_the_device() {
    for (name, x, y) in [("arith.divsi", 1, 0), ("arith.remsi", 1, 0), ("arith.shli", 1, 32), ("arith.divui", -1, 2)] {
        let mut draft = Draft::new(&[pointer(Type::I32)]);
        let (x, y) = (draft.integer(x, 32), draft.integer(y, 32));
        let value = draft.alike(name, &[x, y]);
        draft.store(draft.parameters[0], value);
        draft.end(&[]);
        passes::simplify(&mut draft.context, draft.module);
        assert!(draft.text().iter().any(|line| line.contains(name)), "{name}");
    }
}

#[test]
fn what_is_the_same_is_computed_once_and_calls_are_inlined() {
    let mut draft = Draft::new(&[pointer(Type::I32), Type::I32]);
    let kernel = draft.builder.point;
    let [x] = draft.function("twice", &[Type::I32], &[Type::I32], "private")[..] else { panic!("one parameter") };
    let double = draft.alike("arith.addi", &[x, x]);
    draft.end(&[double]);
    draft.builder.point = kernel;
    let function = draft.context.function(draft.module, "twice").expect("the function");
    let results = [0, 1].map(|_| {
        let argument = draft.parameters[1];
        let call = draft.builder.call(&mut draft.context, function, &[argument]).expect("a call");
        draft.context.operation(call).results[0]
    });
    let product = draft.alike("arith.muli", &results);
    draft.store(draft.parameters[0], product);
    draft.end(&[]);
    passes::inline(&mut draft.context, draft.module);
    passes::drop_unused_functions(&mut draft.context, draft.module);
    passes::simplify(&mut draft.context, draft.module);
    let expected = [
        "module {",
        "tt.func public @kernel(%arg0: !tt.ptr<i32>, %arg1: i32) attributes {noinline = false} {",
        "%0 = arith.addi %arg1, %arg1 : i32",
        "%1 = arith.muli %0, %0 : i32",
        "tt.store %arg0, %1 : !tt.ptr<i32>",
        "tt.return",
    ];
    assert_eq!(draft.text()[..expected.len()], expected);
}

#[test]
fn what_does_not_change_leaves_the_loop_but_divisions() {
    let mut draft = Draft::new(&[pointer(Type::I32), Type::I32]);
    let bounds = [0, 10, 1].map(|number| draft.integer(number, 32));
    let loop_ = draft.builder.for_loop(&mut draft.context, bounds, &[]);
    let outside = draft.builder.point;
    let body = draft.context.region(draft.context.operation(loop_).regions[0]).blocks[0];
    let index = draft.context.block(body).arguments[0];
    draft.builder.at_end(body);
    let n = draft.parameters[1];
    let square = draft.alike("arith.muli", &[n, n]);
    let quotient = draft.alike("arith.divsi", &[square, n]);
    let sum = draft.alike("arith.addi", &[quotient, index]);
    draft.store(draft.parameters[0], sum);
    draft.builder.point = outside;
    draft.end(&[]);
    passes::hoist(&mut draft.context, draft.module);
    let text = draft.text();
    let at = |what: &str| text.iter().position(|line| line.contains(what)).expect(what);
    assert!(at("muli") < at("scf.for") && at("scf.for") < at("divsi") && at("divsi") < at("addi"), "{text:#?}");
}

#[test]
fn blocks_behind_a_return_go() {
    let mut draft = Draft::new(&[pointer(Type::I32)]);
    let region = draft.context.block(draft.builder.point.expect("a point").block).region.expect("a function");
    draft.end(&[]);
    let dead = draft.context.append_block(region, &[]);
    draft.builder.at_end(dead);
    draft.end(&[]);
    passes::drop_unreachable_blocks(&mut draft.context, draft.module);
    assert!(!draft.text().iter().any(|line| line.starts_with("^bb")));
}

#[test]
fn a_sum_begins_a_product() {
    let block = Type::shaped(vec![16, 16], Type::Float(Float::F32));
    let mut draft = Draft::new(&[Type::I32]);
    let zero = draft.builder.zero(&mut draft.context, block.clone());
    let x = draft.builder.constant(&mut draft.context, Number::Float(1.0), block.clone());
    let sum = draft.builder.constant(&mut draft.context, Number::Float(2.0), block);
    let product = draft.builder.dot(&mut draft.context, [x, x, zero], "ieee", 0);
    draft.alike("arith.addf", &[sum, product]);
    draft.end(&[]);
    passes::sum_into_products(&mut draft.context, draft.module);
    let text = draft.text();
    assert!(text.iter().any(|line| line.contains("tt.dot %cst_0, %cst_0, %cst_1 :")), "{text:#?}");
}

#[test]
fn a_descriptor_is_read_inside_and_zero_outside() {
    let (single, wide) = (Type::Float(Float::F32), Type::Integer(64));
    let block = Type::shaped(vec![4, 4], single.clone());
    let descriptor = Type::Descriptor(Box::new(block.clone()), Sign::Signed);
    let mut draft = Draft::new(&[descriptor, pointer(single.clone())]);
    let [source, target] = draft.parameters[..] else { panic!("two parameters") };
    let offsets = [1, 2].map(|offset| draft.integer(offset, 32));
    let rank = vec![("rank".to_owned(), Attribute::Integer(2))];
    let operands = [source, offsets[0], offsets[1]];
    let loaded = draft.builder.value(&mut draft.context, "tt.descriptor_load", &operands, block, rank);
    let flat = draft.builder.reshape(&mut draft.context, loaded, vec![16], false).expect("as many elements");
    let range = draft.builder.range(&mut draft.context, Type::shaped(vec![16], Type::I32), 0, 16);
    let pointers = Type::shaped(vec![16], pointer(single));
    let targets = draft.builder.splat(&mut draft.context, target, pointers.clone());
    let targets = draft.builder.value(&mut draft.context, "tt.addptr", &[targets, range], pointers, Vec::new());
    draft.store(targets, flat);
    draft.end(&[]);
    passes::rewrite_descriptors(&mut draft.context, draft.module).expect("rewritten");
    passes::simplify(&mut draft.context, draft.module);
    passes::hoist(&mut draft.context, draft.module);
    passes::drop_unused_operations(&mut draft.context, draft.module);
    let kernel = openmps_tile::parse(&print(&draft.context, draft.module, Origins::Written)).expect("read");
    let verified = verify(&kernel).expect("verified");
    assert_eq!(kernel.parameters.len(), 1 + 2 + 2 + 2 + 1, "address, sizes, strides, flags, target: {wide}");
    // A tensor of 3 x 5 in rows of 6.
    let x: Vec<f32> = (0..18).map(|i| i as f32).collect();
    let mut out = vec![-1.0f32; 16];
    let mut memory = HostMemory::new();
    let arguments = [memory.register_read_only(&x), 3, 5, 6, 1, 0, 0, memory.register(&mut out)];
    interpret(verified, [1, 1, 1], &arguments, &mut memory).expect("runs");
    drop(memory);
    #[rustfmt::skip]
    assert_eq!(out, [8.0, 9.0, 10.0, 0.0, 14.0, 15.0, 16.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}
