//! Products of blocks with a scale each: factors of 8 bits, or of 4 bits, two in a byte.

use super::operations::Simple;
use super::small::{Small, power, shifted, widened_nibble};
use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Operation, Value};
use crate::types::Scalar;

/// What a factor of a scaled product is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Small(Small),
    /// Two floats of 4 bits in each byte, the first in the lower half.
    E2M1,
    /// A type of the language.
    Wide,
}

/// One side of a scaled product, as its operation names it.
struct Factor {
    value: Value,
    scale: Option<(Value, Option<Small>)>,
    form: Form,
    /// Whether two floats in a byte are neighbours along the depth.
    packed_along_depth: bool,
}

/// `tt.dot_scaled`: the factors with their scales as bfloat16, which holds every product of a number of 8 or 4 bits and a power of two; as
/// float32 where a factor is float16.
pub fn dot_scaled(b: &mut Builder, simple: &Simple) -> Result<Value, String> {
    let scales = simple.words.iter().filter(|word| **word == "scale").count();
    let (left_scaled, right_scaled) = (simple.before_star == 2, scales == 2 || scales == 1 && simple.before_star < 2);
    let mut operands = simple.operands.iter().copied().zip(simple.smalls.iter().copied());
    let mut next = || operands.next().ok_or_else(|| "an operand is missing".to_owned());
    let word = |name: &str| simple.words.iter().position(|word| *word == name).and_then(|at| simple.words.get(at + 1));
    let packed = |name: &str| !simple.attributes.contains(&format!("{name} = false"));
    let mut factor = |side: &str, is_scaled: bool| {
        let (value, small) = next()?;
        let scale = if is_scaled { Some(next()?) } else { None };
        let form = match (word(side).copied(), small) {
            (Some("e2m1"), _) => Form::E2M1,
            (_, Some(small)) => Form::Small(small),
            (Some("bf16" | "fp16"), None) => Form::Wide,
            (form, None) => return Err(format!("a factor of the form {form:?}")),
        };
        Ok(Factor { value, scale, form, packed_along_depth: packed(&format!("{side}_k_pack")) })
    };
    let (left, right) = (factor("lhs", left_scaled)?, factor("rhs", right_scaled)?);
    let (sum, _) = next()?;
    let is_half = |factor: &Factor| b.type_of(factor.value).number() == Some(Scalar::F16);
    let factors = if is_half(&left) || is_half(&right) { Scalar::F32 } else { Scalar::BF16 };
    let left = left.scaled(b, true, factors)?;
    let right = right.scaled(b, false, factors)?;
    Ok(b.dot(left, right, sum))
}

impl Factor {
    /// The factor times its scales.
    fn scaled(&self, b: &mut Builder, is_left: bool, to: Scalar) -> Result<Value, String> {
        let rank = b.type_of(self.value).dims.len();
        if rank < 2 {
            return Err("a factor of less than two dimensions".to_owned());
        }
        let depth = if is_left { rank - 1 } else { rank - 2 };
        let other = if is_left { rank - 2 } else { rank - 1 };
        let mut number = match self.form {
            Form::Small(small) => small.widened(b, self.value),
            Form::E2M1 => unpacked(b, self.value, if self.packed_along_depth { depth } else { other }),
            Form::Wide => b.cast(Cast::Float, self.value, Scalar::F32),
        };
        if let Some((scale, small)) = self.scale {
            let size = b.type_of(number).dims[depth];
            let scale = match small {
                Some(small) => small.widened(b, scale),
                None => power(b, scale),
            };
            let mut scale = repeated(b, scale, size)?;
            if !is_left {
                scale = transposed(b, scale);
            }
            if b.type_of(scale).dims != b.type_of(number).dims {
                return Err(format!("a scale of {} for a factor of {}", b.type_of(scale), b.type_of(number)));
            }
            number = b.binary(Binary::Multiply, number, scale);
        }
        Ok(b.cast(Cast::Float, number, to))
    }
}

/// Two floats of 4 bits in each byte as float32, neighbours along an axis.
fn unpacked(b: &mut Builder, bytes: Value, axis: usize) -> Value {
    let wide = b.cast(Cast::Unsigned, bytes, Scalar::I16);
    let high = shifted(b, Binary::ShiftRightUnsigned, wide, 4);
    let halves = [wide, high].map(|nibble| widened_nibble(b, nibble));
    let dims = b.type_of(bytes).dims.clone();
    let pairs: Vec<usize> = dims.iter().copied().chain([2]).collect();
    let ty = b.type_of(halves[0]).with_dims(&pairs);
    let joined = b.emit(Operation::Join, &halves, ty);
    // The two stand behind the axis along which they are neighbours.
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.insert(axis + 1, dims.len());
    let permuted: Vec<usize> = order.iter().map(|&axis| pairs[axis]).collect();
    let ty = b.type_of(joined).with_dims(&permuted);
    let joined = b.emit(Operation::Permute { order: order.into_iter().collect() }, &[joined], ty.clone());
    let mut whole = dims;
    whole[axis] *= 2;
    b.emit(Operation::Reshape, &[joined], ty.with_dims(&whole))
}

/// Each element along the last axis as often as `size` is a multiple of that axis.
fn repeated(b: &mut Builder, scale: Value, size: usize) -> Result<Value, String> {
    let ty = b.type_of(scale).clone();
    let (rank, groups) = (ty.dims.len(), ty.dims.last().copied().unwrap_or(1));
    if !size.is_multiple_of(groups) {
        return Err(format!("{groups} scales for a depth of {size}"));
    }
    let wide: Vec<usize> = ty.dims.iter().copied().chain([size / groups]).collect();
    let column = b.expand_dims(scale, rank);
    let wide = b.broadcast(column, &wide);
    let mut whole = ty.dims.clone();
    whole[rank - 1] = size;
    Ok(b.emit(Operation::Reshape, &[wide], ty.with_dims(&whole)))
}

fn transposed(b: &mut Builder, x: Value) -> Value {
    let ty = b.type_of(x).clone();
    let rank = ty.dims.len();
    let mut order: crate::types::Dims = (0..rank).collect();
    order.swap(rank - 1, rank - 2);
    let dims: Vec<usize> = order.iter().map(|&axis| ty.dims[axis]).collect();
    b.emit(Operation::Permute { order }, &[x], ty.with_dims(&dims))
}
