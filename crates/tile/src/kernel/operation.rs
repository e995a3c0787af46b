//! What instructions do. Operations bear TTIR's names.

use super::{Atomic, Binary, Cast, Combine, Compare, Unary};
use crate::number::Number;
use crate::types::Dims;

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
    /// `tt.assert`: booleans that must hold. Where one does not, the interpreter and the host stop with the message; a GPU goes on.
    Assert {
        /// What is said where it does not hold.
        message: Box<str>,
    },
    /// `tt.print`: writes the elements of its operands, a line each. The interpreter and the host write to standard output, programs in
    /// the order of the grid.
    Print(Print),
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

/// How `tt.print` writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Print {
    /// What stands before each element.
    pub prefix: Box<str>,
    /// Whether elements are written as the digits of their bits to base 16.
    pub is_hexadecimal: bool,
    /// Of each operand, whether it is an integer with a sign.
    pub signed: Box<[bool]>,
}

impl Operation {
    /// Whether it computes each element of its result from the same element of its operands, and nothing else.
    pub fn is_elementwise(&self) -> bool {
        use Operation::*;
        matches!(self, Unary(_) | Binary(_) | Compare(_) | Select | Cast(_) | MultiplyAdd)
    }
}
