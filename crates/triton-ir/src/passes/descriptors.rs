//! Descriptors of tensors become what they describe: an address, sizes, strides. What reads and writes through one reads and writes through
//! pointers, behind a mask of the indices that are inside.
//!
//! A parameter that is a descriptor becomes several, in the order in which a launch passes them: the address, sizes and strides as `i64`, whether
//! elements outside are NaN, and whether float32 is rounded to tf32, which nothing here does.

use crate::attribute::{Attribute, Number};
use crate::build::{Builder, function_type};
use crate::context::{BlockId, Context, OperationId, ValueId};
use crate::types::{Sign, Space, Type};
use crate::{Built, Refused};
use std::collections::HashMap;

const I64: Type = Type::Integer(64);

/// The parts of a descriptor, by the value that it was.
type Parts = HashMap<ValueId, Vec<ValueId>>;

/// Rewrites all functions of a module. Calls must be inlined where descriptors are passed.
pub fn rewrite_descriptors(context: &mut Context, module: OperationId) -> Built<()> {
    for function in context.functions(module).to_vec() {
        let (parameters, results) = function_type(context, function);
        let (parameters, results) = (parts_of(parameters), results.to_vec());
        context.operation_mut(function).set("function_type", Attribute::Type(Type::Function(parameters, results)));
        let mut parts = Parts::new();
        for block in context.region(context.operation(function).regions[0]).blocks.clone() {
            let moved = arguments(context, block, &mut parts);
            rename_hints(context, function, &moved);
            in_block(context, block, &mut parts)?;
        }
    }
    Ok(())
}

/// Types with those of a descriptor's parts in the place of the descriptor's.
fn parts_of(types: &[Type]) -> Vec<Type> {
    let mut all = Vec::new();
    for ty in types {
        let Type::Descriptor(block, _) = ty else {
            all.push(ty.clone());
            continue;
        };
        all.push(Type::Pointer(Box::new(block.element().clone()), Space::Global));
        all.extend(std::iter::repeat_n(I64, 2 * block.shape().len()));
        all.extend([Type::TRUTH, Type::TRUTH]);
    }
    all
}

/// Values with a descriptor's parts in its place.
fn flattened(values: &[ValueId], parts: &Parts) -> Vec<ValueId> {
    values.iter().flat_map(|value| parts.get(value).cloned().unwrap_or_else(|| vec![*value])).collect()
}

/// Gives a block the parts of its arguments as arguments; the new index of each old one.
fn arguments(context: &mut Context, block: BlockId, parts: &mut Parts) -> Vec<usize> {
    let old = std::mem::take(&mut context.block_mut(block).arguments);
    let mut moved = Vec::new();
    for value in old {
        moved.push(context.block(block).arguments.len());
        let (ty, location) = (context.type_of(value).clone(), context.value(value).location.clone());
        let is_descriptor = matches!(ty, Type::Descriptor(..));
        let types = parts_of(&[ty]);
        let new: Vec<ValueId> = types.into_iter().map(|ty| context.add_argument(block, ty, location.clone())).collect();
        if is_descriptor {
            parts.insert(value, new);
        } else {
            context.replace_uses(value, new[0]);
        }
    }
    moved
}

/// Hints on a function's parameters follow them.
fn rename_hints(context: &mut Context, function: OperationId, moved: &[usize]) {
    for (name, _) in &mut context.operation_mut(function).attributes {
        let Some((index, hint)) = name.strip_prefix("arg").and_then(|rest| rest.split_once(':')) else { continue };
        if let Some(&index) = index.parse::<usize>().ok().and_then(|index| moved.get(index)) {
            *name = crate::print::argument_attribute(index, hint);
        }
    }
}

fn in_block(context: &mut Context, block: BlockId, parts: &mut Parts) -> Built<()> {
    let mut builder = Builder::default();
    for id in std::mem::take(&mut context.block_mut(block).operations) {
        builder.location = context.operation(id).location.clone();
        builder.at_end(block);
        let access = Access { context, builder: &builder, parts };
        match access.context.operation(id).name {
            "tt.make_tensor_descriptor" => access.made(id),
            "tt.descriptor_load" => access.load(id),
            "tt.descriptor_store" => access.store(id),
            "tt.descriptor_reduce" => access.reduce(id)?,
            "tt.descriptor_gather" => access.gather(id),
            "tt.descriptor_scatter" => access.scatter(id),
            _ => passed_on(context, &builder, id, block, parts)?,
        }
    }
    Ok(())
}

/// What only passes descriptors on: loops, conditions, their ends.
fn passed_on(
    context: &mut Context,
    builder: &Builder,
    id: OperationId,
    block: BlockId,
    parts: &mut Parts,
) -> Built<()> {
    let operation = context.operation(id).clone();
    let has_descriptor =
        |values: &[ValueId]| values.iter().any(|&value| matches!(context.type_of(value), Type::Descriptor(..)));
    let (is_given, is_made) = (has_descriptor(&operation.operands), has_descriptor(&operation.results));
    let is_known = operation.name.starts_with("scf.") || operation.name.starts_with("cf.");
    if (is_given || is_made) && !is_known {
        return Err(Refused(format!("{}: of a descriptor of a tensor", operation.name)));
    }
    let operands = flattened(&operation.operands, parts);
    context.operation_mut(id).operands = operands.clone();
    let mut kept = id;
    if is_made {
        let types = parts_of(&context.types_of(&operation.results));
        kept = builder.emit(context, operation.name, &operands, &types, operation.attributes, 0);
        for &region in &operation.regions {
            context.region_mut(region).owner = kept;
        }
        context.operation_mut(kept).regions = operation.regions;
        let mut new = context.operation(kept).results.clone().into_iter();
        for old in operation.results {
            let count = parts_of(std::slice::from_ref(context.type_of(old))).len();
            let of_one: Vec<ValueId> = new.by_ref().take(count).collect();
            if matches!(context.type_of(old), Type::Descriptor(..)) {
                parts.insert(old, of_one);
            } else {
                context.replace_uses(old, of_one[0]);
            }
        }
    } else {
        context.append(id, block);
    }
    for region in context.operation(kept).regions.clone() {
        for inner in context.region(region).blocks.clone() {
            arguments(context, inner, parts);
            in_block(context, inner, parts)?;
        }
    }
    Ok(())
}

/// An operation on a descriptor, which is written out.
struct Access<'a> {
    context: &'a mut Context,
    builder: &'a Builder,
    parts: &'a mut Parts,
}

/// Where a block's elements are.
struct Places {
    pointers: ValueId,
    mask: ValueId,
}

impl Access<'_> {
    fn operands(&self, id: OperationId) -> Vec<ValueId> {
        self.context.operation(id).operands.clone()
    }

    fn result(&self, id: OperationId) -> ValueId {
        self.context.operation(id).results[0]
    }

    fn plain(&mut self, name: &'static str, operands: &[ValueId], ty: Type) -> ValueId {
        self.builder.value(self.context, name, operands, ty, Vec::new())
    }

    fn splat(&mut self, x: ValueId, shape: &[i64]) -> ValueId {
        let ty = Type::shaped(shape.to_vec(), self.context.type_of(x).element().clone());
        if shape.is_empty() { x } else { self.builder.splat(self.context, x, ty) }
    }

    fn wide(&mut self, x: ValueId) -> ValueId {
        let ty = self.context.type_of(x).with_element(I64);
        if *self.context.type_of(x) == ty { x } else { self.plain("arith.extsi", &[x], ty) }
    }

    /// A new descriptor is what it is made of.
    fn made(mut self, id: OperationId) {
        let operands = self.operands(id);
        let mut of_it = vec![operands[0]];
        for &number in &operands[1..] {
            of_it.push(self.wide(number));
        }
        let is_nan = self.context.operation(id).integer("padding") == Some(2);
        for truth in [is_nan, false] {
            let number = Number::Integer(truth.into());
            of_it.push(self.builder.constant(self.context, number, Type::TRUTH));
        }
        let descriptor = self.result(id);
        self.parts.insert(descriptor, of_it);
    }

    /// The block of a descriptor, and its parts.
    fn descriptor(&self, descriptor: ValueId) -> (Type, Sign, Vec<ValueId>) {
        let parts = self.parts.get(&descriptor).cloned().unwrap_or_default();
        match self.context.type_of(descriptor) {
            Type::Descriptor(block, sign) => ((**block).clone(), *sign, parts),
            other => (other.clone(), Sign::Signed, parts),
        }
    }

    /// Indices from an offset on, as many as the block has along an axis.
    fn indices(&mut self, offset: ValueId, size: i64) -> ValueId {
        let range = self.builder.range(self.context, Type::shaped(vec![size], Type::I32), 0, size);
        let range = self.wide(range);
        let offset = self.wide(offset);
        let offset = self.splat(offset, &[size]);
        let ty = self.context.type_of(range).clone();
        self.plain("arith.addi", &[offset, range], ty)
    }

    /// Pointers to the elements at indices along each axis, and which of them are inside.
    fn places(&mut self, shape: &[i64], indices: &[ValueId], parts: &[ValueId]) -> Places {
        let rank = shape.len();
        let (sizes, strides) = (&parts[1..=rank], &parts[rank + 1..=2 * rank]);
        let (mut pointers, mut mask) = (self.splat(parts[0], shape), None);
        for (axis, &index) in indices.iter().enumerate() {
            let along = self.along(index, axis, rank);
            let narrow = self.context.type_of(along).shape().to_vec();
            let ty = self.context.type_of(along).clone();
            let stride = self.splat(strides[axis], &narrow);
            let offset = self.plain("arith.muli", &[along, stride], ty.clone());
            let offset = self.builder.broadcast(self.context, offset, shape.to_vec());
            let pointer_type = self.context.type_of(pointers).clone();
            pointers = self.plain("tt.addptr", &[pointers, offset], pointer_type);
            let zero = self.builder.zero(self.context, ty);
            let size = self.splat(sizes[axis], &narrow);
            let truth = Type::shaped(narrow, Type::TRUTH);
            let [from, to] = [("sge", zero), ("slt", size)].map(|(predicate, limit)| {
                let predicate = vec![("predicate".to_owned(), Attribute::Word(predicate))];
                self.builder.value(self.context, "arith.cmpi", &[along, limit], truth.clone(), predicate)
            });
            let inside = self.plain("arith.andi", &[from, to], truth);
            let inside = self.builder.broadcast(self.context, inside, shape.to_vec());
            mask = Some(match mask {
                Some(mask) => self.plain("arith.andi", &[mask, inside], Type::shaped(shape.to_vec(), Type::TRUTH)),
                None => inside,
            });
        }
        let mask = mask.unwrap_or_else(|| self.builder.constant(self.context, Number::Integer(1), Type::TRUTH));
        Places { pointers, mask }
    }

    /// Indices along one axis of a block of so many, with size 1 along the others.
    fn along(&mut self, index: ValueId, axis: usize, rank: usize) -> ValueId {
        let size = self.context.type_of(index).shape().first().copied().unwrap_or(1);
        let shape: Vec<i64> = (0..rank).map(|other| if other == axis { size } else { 1 }).collect();
        if rank == 1 {
            return index;
        }
        let ty = Type::shaped(shape, self.context.type_of(index).element().clone());
        self.plain("tt.reshape", &[index], ty)
    }

    /// The places of a block at offsets.
    fn block_at(&mut self, block: &Type, offsets: &[ValueId], parts: &[ValueId]) -> Places {
        let shape = block.shape().to_vec();
        let mut indices = Vec::new();
        for (&offset, &size) in offsets.iter().zip(&shape) {
            indices.push(self.indices(offset, size));
        }
        self.places(&shape, &indices, parts)
    }

    /// The places of whole rows by their numbers, from a column on.
    fn rows_at(&mut self, shape: &[i64], rows: ValueId, column: ValueId, parts: &[ValueId]) -> Places {
        let rows = self.wide(rows);
        let columns = self.indices(column, shape[1]);
        self.places(shape, &[rows, columns], parts)
    }

    /// What stands outside: NaN where the descriptor says so, else zero.
    fn outside(&mut self, ty: &Type, is_nan: ValueId) -> ValueId {
        let zero = self.builder.zero(self.context, ty.clone());
        if ty.float().is_none() {
            return zero;
        }
        let nan = self.builder.constant(self.context, Number::Float(f64::NAN), ty.clone());
        self.plain("arith.select", &[is_nan, nan, zero], ty.clone())
    }

    /// Loads in the place of an operation, with its result.
    fn loaded(&mut self, id: OperationId, places: &Places, parts: &[ValueId]) {
        let result = self.result(id);
        let ty = self.context.type_of(places.pointers).pointee().unwrap_or(Type::None);
        let outside = self.outside(&ty, parts[parts.len() - 2]);
        let mut value = self.plain("tt.load", &[places.pointers, places.mask, outside], ty.clone());
        let expected = self.context.type_of(result).clone();
        if expected != ty {
            value = self.plain("tt.reshape", &[value], expected);
        }
        self.context.replace_uses(result, value);
    }

    fn load(mut self, id: OperationId) {
        let operands = self.operands(id);
        let (block, _, parts) = self.descriptor(operands[0]);
        let places = self.block_at(&block, &operands[1..], &parts);
        self.loaded(id, &places, &parts);
    }

    fn gather(mut self, id: OperationId) {
        let operands = self.operands(id);
        let (_, _, parts) = self.descriptor(operands[0]);
        let shape = self.context.type_of(self.result(id)).shape().to_vec();
        let places = self.rows_at(&shape, operands[1], operands[2], &parts);
        self.loaded(id, &places, &parts);
    }

    /// A block's value in the shape of the pointers to it.
    fn shaped(&mut self, value: ValueId, places: &Places) -> ValueId {
        let ty = self.context.type_of(places.pointers).pointee().unwrap_or(Type::None);
        if *self.context.type_of(value) == ty { value } else { self.plain("tt.reshape", &[value], ty) }
    }

    fn stored(&mut self, value: ValueId, places: &Places) {
        let value = self.shaped(value, places);
        let operands = [places.pointers, value, places.mask];
        self.builder.emit(self.context, "tt.store", &operands, &[], Vec::new(), 0);
    }

    fn store(mut self, id: OperationId) {
        let operands = self.operands(id);
        let (block, _, parts) = self.descriptor(operands[0]);
        let (&value, offsets) = operands[1..].split_last().expect("a store has a value");
        let places = self.block_at(&block, offsets, &parts);
        self.stored(value, &places);
    }

    fn scatter(mut self, id: OperationId) {
        let operands = self.operands(id);
        let (_, _, parts) = self.descriptor(operands[0]);
        let shape = self.context.type_of(operands[3]).shape().to_vec();
        let places = self.rows_at(&shape, operands[1], operands[2], &parts);
        self.stored(operands[3], &places);
    }

    fn reduce(mut self, id: OperationId) -> Built<()> {
        let operands = self.operands(id);
        let (block, sign, parts) = self.descriptor(operands[0]);
        let (&value, offsets) = operands[1..].split_last().expect("a reduction has a value");
        let kind = self.context.operation(id).attribute("kind").cloned();
        let is_float = block.float().is_some();
        let word = match kind {
            Some(Attribute::Word("add")) if is_float => "fadd",
            Some(Attribute::Word(word @ ("add" | "and" | "or" | "xor"))) if !is_float => word,
            Some(Attribute::Word("min")) if !is_float => {
                if sign == Sign::Signed {
                    "min"
                } else {
                    "umin"
                }
            }
            Some(Attribute::Word("max")) if !is_float => {
                if sign == Sign::Signed {
                    "max"
                } else {
                    "umax"
                }
            }
            other => return Err(Refused(format!("tt.descriptor_reduce: {other:?} of {}", block.element()))),
        };
        let places = self.block_at(&block, offsets, &parts);
        let value = self.shaped(value, &places);
        let words = [("atomic_rmw_op", word), ("sem", "acq_rel"), ("scope", "gpu")];
        let attributes = words.map(|(name, word)| (name.to_owned(), Attribute::Word(word))).to_vec();
        let ty = self.context.type_of(value).clone();
        self.builder.value(self.context, "tt.atomic_rmw", &[places.pointers, value, places.mask], ty, attributes);
        Ok(())
    }
}
