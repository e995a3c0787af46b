//! What a kernel is made of: values in static single assignment, instructions, blocks. Operations bear TTIR's names.
//!
//! A tile has at least one dimension and 1 to [`MAX_TILE_ELEMENTS`](crate::verify::MAX_TILE_ELEMENTS) elements. Integers
//! do not include i1 unless it is named, and nothing points to i1. Elements may be undefined (see [`Operation::Load`]).

use crate::types::{Dims, Scalar, Type};

/// A value: the result of an instruction, a parameter, or a block's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A kernel: one program, run once for every point of a grid.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name in errors, traces and generated text.
    pub name: String,
    /// Its parameters: pointers into device memory, numbers and truth values; scalars with different names.
    pub parameters: Vec<Parameter>,
    /// The type of each [`Value`].
    pub types: Vec<Type>,
    /// What it does; a block without arguments.
    pub body: Block,
    /// Lines of the program that the kernel was made from, as `file:line:column`; instructions name them by index.
    pub lines: Vec<String>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name in generated text.
    pub name: String,
    /// The value that stands for it.
    pub value: Value,
    /// What divides the number, or the address in bytes, in every launch (`tt.divisibility`); 1 where nothing is known. Devices refuse
    /// others.
    pub divisibility: u32,
}

/// Instructions in order, with the values that enter.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Values defined at entry: a loop's induction variable and carried values, a combination's two sides.
    pub arguments: Vec<Value>,
    /// The instructions.
    pub instructions: Vec<Instruction>,
}

impl Block {
    /// What the last instruction hands on: what a loop's block yields, a branch's results.
    pub fn ends(&self) -> &[Value] {
        self.instructions.last().map_or(&[], |last| &last.operands)
    }
}

/// One operation with its operands and results.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The operation.
    pub operation: Operation,
    /// What it reads.
    pub operands: Vec<Value>,
    /// What it defines.
    pub results: Vec<Value>,
    /// The blocks it contains: a loop's, the two of a condition, a reduction's.
    pub blocks: Vec<Block>,
    /// The line that it was made from, by its index in the kernel's lines.
    pub line: Option<u32>,
}

/// A value that a loop carries: its names at entry, in the block, where the block yields it, and as the loop's result.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// What it is before the first iteration.
    pub initial: Value,
    /// What the block reads.
    pub argument: Value,
    /// What the block hands to the next iteration.
    pub next: Value,
    /// What it is after the last iteration.
    pub result: Value,
}

impl Instruction {
    /// The values that a loop over a range carries.
    pub fn carried(&self) -> impl Iterator<Item = Carried> {
        let block = self.blocks.first().filter(|_| self.operation == Operation::For);
        let (arguments, next) = block.map_or((&[][..], &[][..]), |block| (&block.arguments[1..], block.ends()));
        let initial = self.operands.get(3..).unwrap_or_default();
        let names = initial.iter().zip(arguments).zip(next.iter().zip(&self.results));
        names.map(|((&initial, &argument), (&next, &result))| Carried { initial, argument, next, result })
    }
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// `arith.constant`: a number, the same in every element of the result. An integer fits its type with or without a sign (-128 to 255
    /// for i8, 0 or 1 for i1); a float rounds to its type, beyond its range to infinity.
    Constant(Number),
    /// `tt.get_program_id`: this program's place on the axis of the grid, i32.
    ProgramId(u8),
    /// `tt.get_num_programs`: the grid's size on the axis, i32.
    ProgramCount(u8),
    /// `tt.make_range`: `start, start + 1, ..` as an i32 tile of one dimension, none of it beyond i32.
    Range {
        /// The first element.
        start: i32,
    },
    /// `tt.splat`: a scalar in every element of a tile.
    Splat,
    /// `tt.expand_dims`: a new dimension of size 1.
    ExpandDims {
        /// Where the new dimension stands.
        axis: usize,
    },
    /// `tt.broadcast`: dimensions of size 1 repeated.
    Broadcast,
    /// `tt.reshape`: the same elements in row-major order with other dimensions.
    Reshape,
    /// `tt.trans`: dimensions in another order; `order[i]` is the operand's dimension that becomes dimension `i`.
    Permute {
        /// Each dimension of the operand once.
        order: Dims,
    },
    /// `tt.join`: two tiles of one type, as neighbours along a new last dimension of size 2.
    Join,
    /// `tt.split`: the two halves of a tile whose last dimension is 2; the inverse of a join.
    Split,
    /// `tt.cat`: the elements of two tiles of one type, along the first dimension.
    Concatenate,
    /// `tt.unsplat`: the element of a tile that has only one.
    Unsplat,
    /// `tt.gather`: a tile, then i32 or i64 indices along an axis; the result has the dimensions of the indices. An index outside the axis
    /// gives any element of the tile; the interpreter calls it an error.
    Gather {
        /// The axis that the indices are along.
        axis: usize,
    },
    /// `tt.histogram`: how many elements of an i32 tile of one dimension have each value from 0 on, as i32; others are not counted. A mask
    /// says which elements count.
    Histogram,
    /// `tt.addptr`: pointers, then as many i32 or i64, signed: by how many elements they move. Addresses wrap.
    AddPointer,
    /// `tt.load`: pointers, then optionally a mask, then optionally what masked-off elements are (else undefined). Nothing is read where
    /// the mask is false.
    ///
    /// An operation on an undefined element gives an undefined one, but for a select that does not choose it. A kernel is wrong if it
    /// stores an undefined element, or if one decides an address that is accessed, a mask or a loop's bounds.
    Load,
    /// `tt.store`: pointers, values, then optionally a mask. Nothing is written where the mask is false.
    Store,
    /// `tt.atomic_rmw`: pointers, values, then optionally a mask. Each element in memory is combined with the value at once, whatever
    /// other programs do; the result is what was there before, undefined where the mask is false. Elements of one tile that share an
    /// address are combined one after the other.
    Atomic(Atomic),
    /// `tt.atomic_cas`: pointers, expected values, new values. Where memory holds the expected bits it gets the new value, at once; the result
    /// is what was there before.
    CompareSwap,
    /// `tt.int_to_ptr`: addresses from i64.
    IntegerToPointer,
    /// `tt.ptr_to_int`: addresses as i64.
    PointerToInteger,
    /// `math.fma`: `x * y + z` of floats, rounded once.
    MultiplyAdd,
    /// `ttg.barrier`: what the program has stored so far is there for its later loads, whichever thread does them. The interpreter and the
    /// host run a program in order anyway.
    Barrier,
    /// `tt.assert`: truth values that must hold. Where one does not, the interpreter and the host stop with the message; a GPU goes on.
    Assert {
        /// What is said where it does not hold.
        message: Box<str>,
    },
    /// An operation on one operand, element by element.
    Unary(Unary),
    /// An operation on two operands of one type, element by element.
    Binary(Binary),
    /// A comparison of two operands of one number type; the result is i1.
    Compare(Compare),
    /// `arith.select`: condition, value where true, value where false; the condition has the dimensions of the values.
    Select,
    /// A conversion to the result's number type.
    Cast(Cast),
    /// `tt.reduce` with a named combination along an axis of a tile; the axis disappears, and the result of the last one is a scalar.
    /// The order is not specified, nor is the precision of intermediate sums and products of floats, which is at least the type's.
    /// The sign of a zero result may differ for the same reason. The interpreter combines in the order of the axis and rounds to the
    /// type each time.
    Reduce {
        /// The axis that disappears.
        axis: usize,
        /// How two elements become one.
        combine: Combine,
    },
    /// `tt.reduce` of one or more tiles of the same dimensions by the operations of a block: its arguments are an element of each tile
    /// combined so far, then the next element of each; it yields the combined ones. The combination is taken to be associative and
    /// commutative. The axis disappears.
    ReduceBlock {
        /// The axis that disappears.
        axis: usize,
    },
    /// `tt.scan`: as [`Operation::ReduceBlock`], but each place along the axis keeps what is combined up to it. The combination is taken to
    /// be associative.
    Scan {
        /// The axis that is walked.
        axis: usize,
        /// From the last element to the first.
        reverse: bool,
    },
    /// `tt.dot`: the matrix product of an m x k and a k x n tile of one type, added to an m x n tile: f32 for operands of f16, bf16
    /// and f32, f64 for f64, i32 for i8. With a third dimension in front, a batch of products.
    ///
    /// Neither the order of the sums is specified nor whether a product is rounded before it is added. The interpreter goes along k and
    /// rounds each sum once.
    Dot,
    /// `scf.for`: lower, upper, step, then initial carried values; the block gets the induction variable and the carried ones.
    ///
    /// Bounds, step and induction variable are signed integers of one type, the step at least 1; carried values may have any type. The
    /// results are the last carried values, the initial ones when the lower bound is not below the upper.
    For,
    /// `scf.if`: a scalar i1, then two blocks, one for true and one for false; the results are what the block that ran yields.
    If,
    /// `scf.while`: initial carried values. The first block gets them and ends in a condition; while that holds, the second block gets what
    /// it passes on and yields the next carried values. The results are what the condition passed on at last.
    While,
    /// `scf.condition`: a scalar i1, then the values to pass on; ends the first block of `scf.while`.
    Condition,
    /// `scf.yield`: the carried values of the next iteration, a condition's results, the combined elements; ends such a block.
    Yield,
}

/// A constant of the kernel language.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// For integer types and truth values.
    Integer(i64),
    /// For floating-point types.
    Float(f64),
}

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every member.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name in printed text.
            pub const fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// Operations on one operand. Those on floats take any float type, `Negate` and `Absolute` integers as well, `Not` integers and i1.
    ///
    /// f16 and bf16 compute in f32 and round after each operation. The interpreter rounds functions correctly; devices may be off by a
    /// few units in the last place.
    Unary {
        /// `-x`, wrapping for integers.
        Negate = "negate",
        /// `|x|`, wrapping for integers: the smallest integer stays.
        Absolute = "abs",
        /// Bitwise complement, or logical negation of i1.
        Not = "not",
        /// `e^x`
        Exp = "math.exp",
        /// `2^x`
        Exp2 = "math.exp2",
        /// `e^x - 1`
        Expm1 = "math.expm1",
        /// Natural logarithm.
        Log = "math.log",
        /// Logarithm to base 2.
        Log2 = "math.log2",
        /// `log(1 + x)`
        Log1p = "math.log1p",
        /// Square root.
        Sqrt = "math.sqrt",
        /// `1 / sqrt(x)`
        Rsqrt = "math.rsqrt",
        /// Sine, in radians.
        Sin = "math.sin",
        /// Cosine, in radians.
        Cos = "math.cos",
        /// Tangent, in radians.
        Tan = "math.tan",
        /// Inverse sine.
        Asin = "math.asin",
        /// Inverse cosine.
        Acos = "math.acos",
        /// Inverse tangent.
        Atan = "math.atan",
        /// Hyperbolic sine.
        Sinh = "math.sinh",
        /// Hyperbolic cosine.
        Cosh = "math.cosh",
        /// Hyperbolic tangent.
        Tanh = "math.tanh",
        /// The error function.
        Erf = "math.erf",
        /// Largest integer not above.
        Floor = "math.floor",
        /// Smallest integer not below.
        Ceil = "math.ceil",
        /// Nearest integer, halves to even.
        Round = "math.roundeven",
        /// Towards zero.
        Truncate = "math.trunc",
    }
}

named! {
    /// Operations on two operands of one type, f16 and bf16 as in [`Unary`]. Without a sign in the name: floats, or integers of either sign.
    Binary {
        /// `x + y`, wrapping for integers.
        Add = "add",
        /// `x - y`, wrapping for integers.
        Subtract = "sub",
        /// `x * y`, wrapping for integers.
        Multiply = "mul",
        /// Float quotient, or signed integer quotient towards zero (0 where the divisor is 0), wrapping.
        Divide = "div",
        /// Unsigned integer quotient (0 where the divisor is 0).
        DivideUnsigned = "divui",
        /// Float or signed integer remainder with the sign of the dividend (0 where an integer divisor is 0).
        Remainder = "rem",
        /// Unsigned integer remainder (0 where the divisor is 0).
        RemainderUnsigned = "remui",
        /// The smaller; NaN when either is (`arith.minimumf`), signed for integers. Of two zeros it may be either; the interpreter's is the negative.
        Minimum = "minimum",
        /// The larger; NaN when either is (`arith.maximumf`), signed for integers. Of two zeros it may be either; the interpreter's is the positive.
        Maximum = "maximum",
        /// The smaller of two floats; the other where one is NaN (`arith.minnumf`). Of two zeros it may be either.
        MinimumNumber = "minnumf",
        /// The larger of two floats; the other where one is NaN (`arith.maxnumf`). Of two zeros it may be either.
        MaximumNumber = "maxnumf",
        /// The smaller of unsigned integers.
        MinimumUnsigned = "minui",
        /// The larger of unsigned integers.
        MaximumUnsigned = "maxui",
        /// `x^y` of floats.
        Power = "math.powf",
        /// The angle of the point (y, x).
        Atan2 = "math.atan2",
        /// The upper half of the product of unsigned integers.
        MultiplyHighUnsigned = "mulhiui",
        /// Bitwise and, of integers or i1.
        And = "andi",
        /// Bitwise or, of integers or i1.
        Or = "ori",
        /// Bitwise exclusive or, of integers or i1.
        Xor = "xori",
        /// Left shift; 0 when the distance, unsigned, is not below the width.
        ShiftLeft = "shli",
        /// Right shift that keeps the sign; only the sign is left when the distance, unsigned, is not below the width.
        ShiftRight = "shrsi",
        /// Right shift that fills with zeros; 0 when the distance, unsigned, is not below the width.
        ShiftRightUnsigned = "shrui",
    }
}

named! {
    /// What an atomic operation does with the value in memory and the one given.
    Atomic {
        /// Integer sum, wrapping.
        Add = "add",
        /// Float sum.
        AddFloat = "fadd",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// The larger signed integer.
        Maximum = "max",
        /// The smaller signed integer.
        Minimum = "min",
        /// The larger unsigned integer.
        MaximumUnsigned = "umax",
        /// The smaller unsigned integer.
        MinimumUnsigned = "umin",
        /// The given value.
        Exchange = "exch",
    }
}

impl Atomic {
    /// The operation on what is in memory and what is given; none for an exchange.
    pub const fn operation(self) -> Option<Binary> {
        Some(match self {
            Atomic::Add | Atomic::AddFloat => Binary::Add,
            Atomic::And => Binary::And,
            Atomic::Or => Binary::Or,
            Atomic::Xor => Binary::Xor,
            Atomic::Maximum => Binary::Maximum,
            Atomic::Minimum => Binary::Minimum,
            Atomic::MaximumUnsigned => Binary::MaximumUnsigned,
            Atomic::MinimumUnsigned => Binary::MinimumUnsigned,
            Atomic::Exchange => return None,
        })
    }
}

named! {
    /// Comparisons. Ordered for floats (false with NaN) but for `NotEqual`; signed for integers but where said. i1 has `Equal` and `NotEqual`.
    Compare {
        /// `x == y`
        Equal = "eq",
        /// `x != y`, true with NaN.
        NotEqual = "ne",
        /// `x < y`
        Less = "lt",
        /// `x <= y`
        LessEqual = "le",
        /// `x > y`
        Greater = "gt",
        /// `x >= y`
        GreaterEqual = "ge",
        /// `x < y` of unsigned integers.
        LessUnsigned = "ult",
        /// `x <= y` of unsigned integers.
        LessEqualUnsigned = "ule",
        /// `x > y` of unsigned integers.
        GreaterUnsigned = "ugt",
        /// `x >= y` of unsigned integers.
        GreaterEqualUnsigned = "uge",
    }
}

named! {
    /// Conversions between different number types. i1 is converted from and to where said.
    Cast {
        /// Signed integer to a wider or narrower integer, or to i1: the lowest bits (`extsi`, `trunci`).
        Signed = "signed",
        /// Unsigned integer to a wider one, or truth value to any integer (`extui`).
        Unsigned = "extui",
        /// Signed integer to float (`sitofp`).
        SignedToFloat = "sitofp",
        /// Unsigned integer or truth value to float (`uitofp`).
        UnsignedToFloat = "uitofp",
        /// Float to signed integer towards zero; saturating, NaN to 0 (`fptosi`).
        FloatToSigned = "fptosi",
        /// Float to unsigned integer towards zero; saturating, NaN to 0 (`fptoui`).
        FloatToUnsigned = "fptoui",
        /// Float to float, to nearest even (`extf`, `truncf`); f64 becomes a half type by way of f32.
        Float = "fpcast",
        /// The same bits as another type of the same size (`tt.bitcast`).
        Bits = "bitcast",
    }
}

named! {
    /// How a reduction combines two elements; as the [`Binary`] of the like name.
    Combine {
        /// Sum.
        Sum = "sum",
        /// Product.
        Product = "product",
        /// The smallest; NaN when any is.
        Minimum = "min",
        /// The largest; NaN when any is.
        Maximum = "max",
        /// The smallest of floats that are not NaN; NaN when all are.
        MinimumNumber = "minnum",
        /// The largest of floats that are not NaN; NaN when all are.
        MaximumNumber = "maxnum",
        /// Bitwise and of integers; all of truth values.
        And = "and",
        /// Bitwise or of integers; any of truth values.
        Or = "or",
    }
}

impl Combine {
    /// The operation on two elements.
    pub const fn operation(self) -> Binary {
        match self {
            Combine::Sum => Binary::Add,
            Combine::Product => Binary::Multiply,
            Combine::Minimum => Binary::Minimum,
            Combine::Maximum => Binary::Maximum,
            Combine::MinimumNumber => Binary::MinimumNumber,
            Combine::MaximumNumber => Binary::MaximumNumber,
            Combine::And => Binary::And,
            Combine::Or => Binary::Or,
        }
    }
}

impl Kernel {
    /// The type of a value.
    pub fn type_of(&self, value: Value) -> &Type {
        &self.types[value.0 as usize]
    }

    /// Whether any of its values are numbers of this type, or point to some.
    pub fn has(&self, scalar: Scalar) -> bool {
        self.types.iter().any(|ty| ty.number().or(ty.target()) == Some(scalar))
    }

    /// The dimensions of a value.
    pub fn dims_of(&self, value: Value) -> &Dims {
        &self.type_of(value).dims
    }
}
