//! Appending operations: each method infers the types of the results from its operands, as Triton's operations define them.

use crate::attribute::{Attribute, Number, named};
use crate::context::{BlockId, Context, OperationId, ValueId};
use crate::location::Location;
use crate::types::{Float, Type, list};
use crate::{Built, Refused};

/// Where the next operation goes: before one of a block, or to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The block.
    pub block: BlockId,
    /// The operation before which the next one goes.
    pub before: Option<OperationId>,
}

/// Appends operations to a context, each at the current point and with the current location.
#[derive(Debug, Default)]
pub struct Builder {
    /// Where the next operation goes; nowhere at first.
    pub point: Option<Point>,
    /// The location of the next operation.
    pub location: Location,
}

type Attributes = Vec<(String, Attribute)>;

fn axis_attribute(axis: usize) -> Attributes {
    vec![named("axis", Attribute::Integer(axis as i64))]
}

impl Builder {
    /// The next operation becomes the first one of a block.
    pub fn at_start(&mut self, context: &Context, block: BlockId) {
        self.point = Some(Point { block, before: context.block(block).operations.first().copied() });
    }

    /// The next operation becomes the last one of a block.
    pub fn at_end(&mut self, block: BlockId) {
        self.point = Some(Point { block, before: None });
    }

    /// Adds an operation; without a point it stands nowhere.
    pub fn emit(
        &self,
        context: &mut Context,
        name: &'static str,
        operands: &[ValueId],
        results: &[Type],
        attributes: Attributes,
        regions: usize,
    ) -> OperationId {
        let operation = context.create(name, operands, results, attributes, regions, self.location.clone());
        if let Some(Point { block, before }) = self.point {
            let operations = &context.block(block).operations;
            let index = before.and_then(|before| operations.iter().position(|&other| other == before));
            context.place(operation, block, index.unwrap_or(operations.len()));
        }
        operation
    }

    /// Adds an operation with one result.
    pub fn value(
        &self,
        context: &mut Context,
        name: &'static str,
        operands: &[ValueId],
        ty: Type,
        attributes: Attributes,
    ) -> ValueId {
        let operation = self.emit(context, name, operands, &[ty], attributes, 0);
        context.operation(operation).results[0]
    }

    /// An operation whose result has the type of its first operand; all operands have one type.
    pub fn alike(&self, context: &mut Context, name: &'static str, operands: &[ValueId]) -> Built<ValueId> {
        let ty = context.type_of(operands[0]).clone();
        match operands.iter().map(|&operand| context.type_of(operand)).find(|other| **other != ty) {
            Some(other) => Err(Refused(format!("{name}: operands of {ty} and {other}"))),
            None => Ok(self.value(context, name, operands, ty, Vec::new())),
        }
    }

    /// A conversion to a type.
    pub fn convert(&self, context: &mut Context, name: &'static str, x: ValueId, to: Type) -> ValueId {
        self.value(context, name, &[x], to, Vec::new())
    }

    /// An integer of another width; the same value where the width is the same.
    pub fn convert_integer(&self, context: &mut Context, x: ValueId, to: Type, signed: bool) -> ValueId {
        let bits = |ty: &Type| ty.integer_bits().unwrap_or(0);
        let (from, into) = (bits(context.type_of(x)), bits(&to));
        let name = match (into.cmp(&from), signed) {
            // A conversion to the same type is an operation too, as in MLIR's own builder.
            (std::cmp::Ordering::Equal, _) => "arith.bitcast",
            (std::cmp::Ordering::Less, _) => "arith.trunci",
            (_, true) => "arith.extsi",
            (_, false) => "arith.extui",
        };
        self.convert(context, name, x, to)
    }

    /// A number in every element of a type.
    pub fn constant(&self, context: &mut Context, number: Number, ty: Type) -> ValueId {
        self.value(context, "arith.constant", &[], ty, vec![named("value", Attribute::Number(number))])
    }

    /// Zero, of any type of numbers.
    pub fn zero(&self, context: &mut Context, ty: Type) -> ValueId {
        let number = if ty.float().is_some() { Number::Float(0.0) } else { Number::Integer(0) };
        self.constant(context, number, ty)
    }

    /// A comparison of two values of one type.
    pub fn compare(
        &self,
        context: &mut Context,
        name: &'static str,
        predicate: &'static str,
        [x, y]: [ValueId; 2],
    ) -> Built<ValueId> {
        let (ty, other) = (context.type_of(x).clone(), context.type_of(y));
        if ty != *other {
            return Err(Refused(format!("{name}: operands of {ty} and {other}")));
        }
        let attributes = vec![named("predicate", Attribute::Word(predicate))];
        Ok(self.value(context, name, &[x, y], ty.with_element(Type::TRUTH), attributes))
    }

    /// The number of the program along an axis of the grid, or how many there are.
    pub fn program(&self, context: &mut Context, name: &'static str, axis: i64) -> Built<ValueId> {
        let word = usize::try_from(axis).ok().and_then(|axis| ["x", "y", "z"].get(axis).copied());
        let word = word.ok_or_else(|| Refused(format!("{name}: the grid has no axis {axis}")))?;
        Ok(self.value(context, name, &[], Type::I32, vec![named("axis", Attribute::Word(word))]))
    }

    /// The integers from one number to before another.
    pub fn range(&self, context: &mut Context, ty: Type, start: i64, end: i64) -> ValueId {
        let attributes = vec![named("end", Attribute::Integer(end)), named("start", Attribute::Integer(start))];
        self.value(context, "tt.make_range", &[], ty, attributes)
    }

    /// The same elements in a larger shape.
    pub fn broadcast(&self, context: &mut Context, x: ValueId, shape: Vec<i64>) -> ValueId {
        let ty = Type::Tensor(shape, Box::new(context.type_of(x).element().clone()));
        if *context.type_of(x) == ty { x } else { self.spread(context, "tt.broadcast", x, ty) }
    }

    /// One value in every element of a type.
    pub fn splat(&self, context: &mut Context, x: ValueId, ty: Type) -> ValueId {
        self.spread(context, "tt.splat", x, ty)
    }

    /// An operation that repeats or picks elements, of which a constant is a constant again.
    fn spread(&self, context: &mut Context, name: &'static str, x: ValueId, ty: Type) -> ValueId {
        match context.number(x) {
            Some(number) => self.constant(context, number, ty),
            None => self.value(context, name, &[x], ty, Vec::new()),
        }
    }

    /// One more dimension of size 1.
    pub fn expand_dims(&self, context: &mut Context, x: ValueId, axis: usize) -> Built<ValueId> {
        let mut shape = context.type_of(x).shape().to_vec();
        if axis > shape.len() {
            return Err(Refused(format!("tt.expand_dims: no axis {axis} for {}", context.type_of(x))));
        }
        shape.insert(axis, 1);
        let ty = Type::shaped(shape, context.type_of(x).element().clone());
        Ok(self.value(context, "tt.expand_dims", &[x], ty, axis_attribute(axis)))
    }

    /// The same elements in another shape, in any order where that is allowed.
    pub fn reshape(&self, context: &mut Context, x: ValueId, shape: Vec<i64>, any_order: bool) -> Built<ValueId> {
        let from = context.type_of(x);
        if from.shape().iter().product::<i64>() != shape.iter().product::<i64>() {
            return Err(Refused(format!("tt.reshape: {from} has not as many elements as {shape:?}")));
        }
        let ty = Type::shaped(shape, from.element().clone());
        let attributes = if any_order { vec![named("allow_reorder", Attribute::Unit)] } else { Vec::new() };
        Ok(self.value(context, "tt.reshape", &[x], ty, attributes))
    }

    /// The axes in another order.
    pub fn transpose(&self, context: &mut Context, x: ValueId, order: &[i64]) -> Built<ValueId> {
        let ty = context.type_of(x);
        let size = |&axis: &i64| usize::try_from(axis).ok().and_then(|axis| ty.shape().get(axis).copied());
        let shape: Option<Vec<i64>> = order.iter().map(size).collect();
        let shape = shape.filter(|shape| shape.len() == ty.shape().len());
        let shape = shape.ok_or_else(|| Refused(format!("tt.trans: the order {order:?} for {ty}")))?;
        let ty = Type::shaped(shape, ty.element().clone());
        Ok(self.value(context, "tt.trans", &[x], ty, vec![named("order", Attribute::Array(order.to_vec()))]))
    }

    /// Two tensors as neighbours along a new last axis.
    pub fn join(&self, context: &mut Context, x: ValueId, y: ValueId) -> ValueId {
        let ty = context.type_of(x);
        let shape = ty.shape().iter().copied().chain([2]).collect();
        let ty = Type::shaped(shape, ty.element().clone());
        self.value(context, "tt.join", &[x, y], ty, Vec::new())
    }

    /// The two halves of a last axis of size 2.
    pub fn split(&self, context: &mut Context, x: ValueId) -> Built<Vec<ValueId>> {
        let ty = context.type_of(x);
        let Some((2, shape)) = ty.shape().split_last() else {
            return Err(Refused(format!("tt.split: the last axis of {ty} has not two elements")));
        };
        let half = Type::shaped(shape.to_vec(), ty.element().clone());
        let operation = self.emit(context, "tt.split", &[x], &[half.clone(), half], Vec::new(), 0);
        Ok(context.operation(operation).results.clone())
    }

    /// One tensor behind another.
    pub fn concatenate(&self, context: &mut Context, x: ValueId, y: ValueId) -> Built<ValueId> {
        let ([first], [second]) = (context.type_of(x).shape(), context.type_of(y).shape()) else {
            return Err(Refused("tt.cat: of tensors of one dimension only".to_owned()));
        };
        let ty = Type::shaped(vec![first + second], context.type_of(x).element().clone());
        Ok(self.value(context, "tt.cat", &[x, y], ty, Vec::new()))
    }

    /// The only element of a tensor.
    pub fn unsplat(&self, context: &mut Context, x: ValueId) -> ValueId {
        let ty = context.type_of(x).element().clone();
        self.spread(context, "tt.unsplat", x, ty)
    }

    /// Elements at indices along an axis.
    pub fn gather(&self, context: &mut Context, x: ValueId, indices: ValueId, axis: usize) -> ValueId {
        let ty = context.type_of(indices).with_element(context.type_of(x).element().clone());
        self.value(context, "tt.gather", &[x, indices], ty, axis_attribute(axis))
    }

    /// How often each number occurs.
    pub fn histogram(&self, context: &mut Context, x: ValueId, bins: i64, mask: Option<ValueId>) -> ValueId {
        let operands: Vec<ValueId> = [x].into_iter().chain(mask).collect();
        self.value(context, "tt.histogram", &operands, Type::shaped(vec![bins], Type::I32), Vec::new())
    }

    /// What stands at addresses.
    pub fn load(
        &self,
        context: &mut Context,
        operands: &[ValueId],
        policy: Option<Attribute>,
        is_volatile: bool,
    ) -> Built<ValueId> {
        let pointer = context.type_of(operands[0]);
        let ty = pointer.pointee().ok_or_else(|| Refused(format!("tt.load: of {pointer}, which is no address")))?;
        let mut attributes: Attributes = policy.into_iter().map(|policy| named("cachePolicy", policy)).collect();
        if is_volatile {
            attributes.push(named("isVolatile", Attribute::Truth(true)));
        }
        Ok(self.value(context, "tt.load", operands, ty, attributes))
    }

    /// Writes to addresses.
    pub fn store(&self, context: &mut Context, operands: &[ValueId], policy: Option<Attribute>) -> Built<()> {
        let (pointer, value) = (context.type_of(operands[0]), context.type_of(operands[1]));
        if pointer.pointee().as_ref() != Some(value) {
            return Err(Refused(format!("tt.store: of {value} through {pointer}")));
        }
        let attributes = policy.into_iter().map(|policy| named("cachePolicy", policy)).collect();
        self.emit(context, "tt.store", operands, &[], attributes, 0);
        Ok(())
    }

    /// A product of matrices and a sum.
    pub fn dot(&self, context: &mut Context, operands: [ValueId; 3], precision: &'static str, sums: i64) -> ValueId {
        let ty = context.type_of(operands[2]).clone();
        let mut attributes = Vec::new();
        if precision != "ieee" {
            attributes.push(named("inputPrecision", Attribute::Word(precision)));
        }
        if sums != 0 {
            attributes.push(named("maxNumImpreciseAcc", Attribute::Integer(sums)));
        }
        self.value(context, "tt.dot", &operands, ty, attributes)
    }

    /// A combination along an axis, whose region is still empty.
    pub fn reduce(&self, context: &mut Context, operands: &[ValueId], axis: usize) -> Built<OperationId> {
        let reduced = |ty: Type| {
            let mut shape = ty.shape().to_vec();
            if axis >= shape.len() {
                return Err(Refused(format!("tt.reduce: no axis {axis} for {ty}")));
            }
            shape.remove(axis);
            Ok(Type::shaped(shape, ty.element().clone()))
        };
        let types: Vec<Type> = context.types_of(operands).into_iter().map(reduced).collect::<Built<_>>()?;
        Ok(self.emit(context, "tt.reduce", operands, &types, axis_attribute(axis), 1))
    }

    /// Combinations of all elements up to each one along an axis, whose region is still empty.
    pub fn scan(&self, context: &mut Context, operands: &[ValueId], axis: usize, reverse: bool) -> OperationId {
        let types = context.types_of(operands);
        let mut attributes = axis_attribute(axis);
        attributes.push(named("reverse", Attribute::Truth(reverse)));
        self.emit(context, "tt.scan", operands, &types, attributes, 1)
    }

    /// A loop over integers; its block has the integer and what is carried as arguments.
    pub fn for_loop(&self, context: &mut Context, bounds: [ValueId; 3], initial: &[ValueId]) -> OperationId {
        let operands = [&bounds[..], initial].concat();
        let carried = context.types_of(initial);
        let operation = self.emit(context, "scf.for", &operands, &carried, Vec::new(), 1);
        let arguments = [&context.types_of(&bounds[..1])[..], &carried].concat();
        context.append_block(context.operation(operation).regions[0], &arguments);
        operation
    }

    /// A condition with one or two blocks.
    pub fn if_else(&self, context: &mut Context, results: &[Type], condition: ValueId, has_else: bool) -> OperationId {
        let operation = self.emit(context, "scf.if", &[condition], results, Vec::new(), 2);
        let [on_true, on_false] = context.operation(operation).regions[..] else { unreachable!("two regions") };
        context.append_block(on_true, &[]);
        if has_else {
            context.append_block(on_false, &[]);
        }
        operation
    }

    /// A module without functions, which stands nowhere.
    pub fn module(&self, context: &mut Context) -> OperationId {
        let module = context.create("builtin.module", &[], &[], Vec::new(), 1, self.location.clone());
        context.append_block(context.operation(module).regions[0], &[]);
        module
    }

    /// A function of a module: the one of this name, or a new one that stands nowhere yet.
    pub fn function(
        &self,
        context: &mut Context,
        module: OperationId,
        name: &str,
        ty: Type,
        visibility: &'static str,
        noinline: bool,
    ) -> OperationId {
        if let Some(function) = context.function(module, name) {
            return function;
        }
        let attributes = vec![
            named("sym_name", Attribute::Symbol(name.to_owned())),
            named("function_type", Attribute::Type(ty)),
            named("sym_visibility", Attribute::Word(visibility)),
            named("noinline", Attribute::Truth(noinline)),
        ];
        context.create("tt.func", &[], &[], attributes, 1, self.location.clone())
    }

    /// A call.
    pub fn call(&self, context: &mut Context, function: OperationId, arguments: &[ValueId]) -> Built<OperationId> {
        let (parameters, results) = function_type(context, function);
        let results = results.to_vec();
        let name = context.operation(function).symbol("sym_name").unwrap_or_default().to_owned();
        let given = context.types_of(arguments);
        if parameters != given {
            return Err(Refused(format!("tt.call: @{name} of ({}), given ({})", list(parameters), list(&given))));
        }
        Ok(self.emit(context, "tt.call", arguments, &results, vec![named("callee", Attribute::Symbol(name))], 0))
    }

    /// A floating-point number of another width, rounded where the new one is narrower.
    pub fn convert_float(
        &self,
        context: &mut Context,
        x: ValueId,
        to: Type,
        rounding: Option<&'static str>,
    ) -> ValueId {
        let attributes = rounding.into_iter().map(|word| named("rounding", Attribute::Word(word))).collect();
        self.value(context, "tt.fp_to_fp", &[x], to, attributes)
    }
}

/// Types of a function's parameters and results.
pub fn function_type(context: &Context, function: OperationId) -> (&[Type], &[Type]) {
    match context.operation(function).attribute("function_type") {
        Some(Attribute::Type(Type::Function(parameters, results))) => (parameters, results),
        _ => (&[], &[]),
    }
}

/// All bits set.
pub fn all_ones(ty: &Type) -> Number {
    match ty.float() {
        Some(Float::F64) => Number::Float(f64::from_bits(u64::MAX)),
        Some(_) => Number::Float(f64::NAN),
        None => Number::Integer(-1),
    }
}
