//! The store of everything that one compilation makes: operations, the regions and blocks in them, and values, named by numbers.

use crate::attribute::{Attribute, Number};
use crate::location::Location;
use crate::types::Type;

macro_rules! numbers {
    ($($name:ident $what:literal),*) => {$(
        #[doc = concat!("The number of ", $what, " of a [`Context`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The number itself.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

numbers!(OperationId "an operation", RegionId "a region", BlockId "a block", ValueId "a value");

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The name with its dialect, `arith.addi`.
    pub name: &'static str,
    /// What it computes with; the arguments of a branch too.
    pub operands: Vec<ValueId>,
    /// What it defines.
    pub results: Vec<ValueId>,
    /// Attributes in the order of their names' first use.
    pub attributes: Vec<(String, Attribute)>,
    /// Regions of its own.
    pub regions: Vec<RegionId>,
    /// Blocks that it goes on with.
    pub successors: Vec<BlockId>,
    /// Where it comes from.
    pub location: Location,
    /// The block that it stands in.
    pub block: Option<BlockId>,
}

impl Operation {
    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// An attribute that is a number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        if let Some(Attribute::Integer(integer)) = self.attribute(name) { Some(*integer) } else { None }
    }

    /// An attribute that names a function.
    pub fn symbol(&self, name: &str) -> Option<&str> {
        if let Some(Attribute::Symbol(symbol)) = self.attribute(name) { Some(symbol) } else { None }
    }

    /// Sets an attribute, in the place of one with this name.
    pub fn set(&mut self, name: &str, value: Attribute) {
        match self.attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((name.to_owned(), value)),
        }
    }

    /// Whether it ends its block.
    pub fn is_terminator(&self) -> bool {
        let name = self.name;
        name.ends_with(".return") || name.starts_with("cf.") || matches!(name, "scf.yield" | "scf.condition")
    }
}

/// A list of operations.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Its arguments.
    pub arguments: Vec<ValueId>,
    /// Its operations.
    pub operations: Vec<OperationId>,
    /// The region that it stands in.
    pub region: Option<RegionId>,
}

/// A list of blocks; the first one is where it begins.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its blocks.
    pub blocks: Vec<BlockId>,
    /// The operation that it belongs to.
    pub owner: OperationId,
}

/// What defines a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// A result of an operation.
    Result(OperationId, usize),
    /// An argument of a block.
    Argument(BlockId, usize),
}

/// A value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its type.
    pub ty: Type,
    /// Where it comes from, with the name of the variable that holds it.
    pub location: Location,
    /// What defines it.
    pub definition: Definition,
}

/// Everything that one compilation makes. What is taken out of a module stays here until the end, as all of it goes at once.
#[derive(Debug, Default)]
pub struct Context {
    operations: Vec<Operation>,
    regions: Vec<Region>,
    blocks: Vec<Block>,
    values: Vec<Value>,
}

impl Context {
    /// Nothing yet.
    pub fn new() -> Context {
        Context::default()
    }

    /// An operation.
    pub fn operation(&self, id: OperationId) -> &Operation {
        &self.operations[id.index()]
    }

    /// An operation, to be changed.
    pub fn operation_mut(&mut self, id: OperationId) -> &mut Operation {
        &mut self.operations[id.index()]
    }

    /// A region.
    pub fn region(&self, id: RegionId) -> &Region {
        &self.regions[id.index()]
    }

    /// A region, to be changed.
    pub fn region_mut(&mut self, id: RegionId) -> &mut Region {
        &mut self.regions[id.index()]
    }

    /// A block.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// A block, to be changed.
    pub fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index()]
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// A value, to be changed.
    pub fn value_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.values[id.index()]
    }

    /// The type of a value.
    pub fn type_of(&self, id: ValueId) -> &Type {
        &self.value(id).ty
    }

    /// Types of values.
    pub fn types_of(&self, values: &[ValueId]) -> Vec<Type> {
        values.iter().map(|&value| self.type_of(value).clone()).collect()
    }

    /// The operation that defines a value.
    pub fn defining(&self, id: ValueId) -> Option<OperationId> {
        match self.value(id).definition {
            Definition::Result(operation, _) => Some(operation),
            Definition::Argument(..) => None,
        }
    }

    /// The number that is every element of a value.
    pub fn number(&self, value: ValueId) -> Option<Number> {
        let operation = self.operation(self.defining(value)?);
        match operation.attribute("value") {
            Some(Attribute::Number(number)) if operation.name == "arith.constant" => Some(*number),
            _ => None,
        }
    }

    /// A block that stands in no region yet.
    pub fn new_block(&mut self) -> BlockId {
        self.blocks.push(Block::default());
        BlockId(self.blocks.len() as u32 - 1)
    }

    /// A block at the end of a region, with arguments of these types.
    pub fn append_block(&mut self, region: RegionId, arguments: &[Type]) -> BlockId {
        let block = self.new_block();
        for ty in arguments {
            self.add_argument(block, ty.clone(), Location::Unknown);
        }
        self.place_block(region, block);
        block
    }

    /// Puts a block at the end of a region.
    pub fn place_block(&mut self, region: RegionId, block: BlockId) {
        self.block_mut(block).region = Some(region);
        self.region_mut(region).blocks.push(block);
    }

    /// Takes a block out of its region.
    pub fn remove_block(&mut self, block: BlockId) {
        if let Some(region) = self.block_mut(block).region.take() {
            self.region_mut(region).blocks.retain(|&other| other != block);
        }
    }

    /// One more argument of a block.
    pub fn add_argument(&mut self, block: BlockId, ty: Type, location: Location) -> ValueId {
        let index = self.block(block).arguments.len();
        let value = self.new_value(Value { ty, location, definition: Definition::Argument(block, index) });
        self.block_mut(block).arguments.push(value);
        value
    }

    /// An operation that stands in no block yet, with empty regions.
    pub fn create(
        &mut self,
        name: &'static str,
        operands: &[ValueId],
        results: &[Type],
        attributes: Vec<(String, Attribute)>,
        regions: usize,
        location: Location,
    ) -> OperationId {
        let id = OperationId(self.operations.len() as u32);
        let defines = |index| Definition::Result(id, index);
        let results = results.iter().enumerate().map(|(index, ty)| {
            let value = Value { ty: ty.clone(), location: location.clone(), definition: defines(index) };
            self.values.push(value);
            ValueId(self.values.len() as u32 - 1)
        });
        let results = results.collect();
        let regions = (0..regions).map(|_| {
            self.regions.push(Region { blocks: Vec::new(), owner: id });
            RegionId(self.regions.len() as u32 - 1)
        });
        let regions = regions.collect();
        let operands = operands.to_vec();
        let (successors, block) = (Vec::new(), None);
        self.operations.push(Operation { name, operands, results, attributes, regions, successors, location, block });
        id
    }

    /// Puts an operation into a block, before the one at an index.
    pub fn place(&mut self, operation: OperationId, block: BlockId, index: usize) {
        self.operation_mut(operation).block = Some(block);
        self.block_mut(block).operations.insert(index, operation);
    }

    /// Puts an operation at the end of a block.
    pub fn append(&mut self, operation: OperationId, block: BlockId) {
        self.place(operation, block, self.block(block).operations.len());
    }

    /// Lets everything that uses a value use another one.
    pub fn replace_uses(&mut self, from: ValueId, to: ValueId) {
        for operation in &mut self.operations {
            operation.operands.iter_mut().filter(|operand| **operand == from).for_each(|operand| *operand = to);
        }
    }

    /// The functions of a module, in their order.
    pub fn functions(&self, module: OperationId) -> &[OperationId] {
        let body = self.region(self.operation(module).regions[0]).blocks[0];
        &self.block(body).operations
    }

    /// The function of a name.
    pub fn function(&self, module: OperationId, name: &str) -> Option<OperationId> {
        let named = |&&function: &&OperationId| self.operation(function).symbol("sym_name") == Some(name);
        self.functions(module).iter().find(named).copied()
    }

    /// Everything inside of an operation and itself, from outside to inside.
    pub fn walk(&self, operation: OperationId, visit: &mut dyn FnMut(OperationId)) {
        visit(operation);
        for &region in &self.operation(operation).regions {
            for &block in &self.region(region).blocks {
                for &inner in &self.block(block).operations {
                    self.walk(inner, visit);
                }
            }
        }
    }

    fn new_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }
}
