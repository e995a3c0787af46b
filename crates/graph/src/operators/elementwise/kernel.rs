//! The tile kernel of an elementwise operator for one layout.

use super::expression::{Expr, Scope};
use super::form::Layout;
use super::row::{Operand, Row};
use crate::tiles;
use openmps_tile::{Builder, DType, Kernel, Scalar, Type, Value};

/// A kernel of numbers and of tensors that are read element by element.
pub(super) struct Signature<'a> {
    /// The kernel's name, which traces and Metal's text carry.
    pub name: &'a str,
    /// Element types of the inputs.
    pub inputs: &'a [DType],
    /// The output's element type.
    pub output: DType,
    /// Names and types of the numbers.
    pub scalars: Vec<(String, Scalar)>,
}

/// Builds the kernel of one operator.
pub(super) fn build(row: &Row, inputs: &[DType], output: DType, layout: &Layout) -> Kernel {
    let ty = scalar_type(row.compute(inputs));
    let scalars = row.scalars.iter().map(|&name| (name.to_owned(), ty)).collect();
    build_with(Signature { name: row.name, inputs, output, scalars }, layout, |b, loaded, scalars| {
        let operands: Vec<_> = loaded.iter().copied().zip(inputs.iter().copied()).collect();
        formula(b, row, &operands, scalars, output)
    })
}

/// Builds a kernel that sets every element to a number.
pub(super) fn fill(name: &str, output: DType, layout: &Layout) -> Kernel {
    let scalars = vec![("value".to_owned(), Scalar::from(output))];
    let dims: Vec<usize> = layout.rows.into_iter().chain([layout.columns]).collect();
    build_with(Signature { name, inputs: &[], output, scalars }, layout, |b, _, scalars| b.splat(scalars[0], &dims))
}

/// Builds a kernel whose result `body` makes of the loaded inputs and of the numbers.
///
/// Parameters: a pointer for each input and the output; the operator's scalars; the sizes of the outer dimensions, the
/// rows (when there are any) and the columns; then for each tensor its strides in the same order, in elements.
/// Grid: blocks of columns, blocks of rows, outer index.
pub(super) fn build_with(
    signature: Signature,
    layout: &Layout,
    body: impl FnOnce(&mut Builder, &[Value], &[Value]) -> Value,
) -> Kernel {
    let mut b = Builder::new(signature.name);
    let inputs = signature.inputs;
    let pointers: Vec<Value> = inputs
        .iter()
        .chain([&signature.output])
        .enumerate()
        .map(|(i, &dtype)| {
            let name = if i == inputs.len() { "out".to_owned() } else { format!("x{i}") };
            b.parameter(name, Type::pointer(dtype.into()))
        })
        .collect();
    let scalars: Vec<Value> =
        signature.scalars.into_iter().map(|(name, ty)| b.parameter(name, Type::scalar(ty))).collect();
    let dimensions = layout.outer + usize::from(layout.rows.is_some()) + 1;
    let index = Type::scalar(Scalar::I64);
    let sizes: Vec<Value> = (0..dimensions).map(|d| b.parameter(format!("size{d}"), index.clone())).collect();
    let strides: Vec<Vec<Value>> = (0..pointers.len())
        .map(|t| (0..dimensions).map(|d| b.parameter(format!("stride{t}_{d}"), index.clone())).collect())
        .collect();

    let places = Places::new(&mut b, layout, &sizes);
    let pointers: Vec<Value> =
        pointers.iter().zip(&strides).map(|(&pointer, strides)| places.pointer(&mut b, pointer, strides)).collect();
    let loaded: Vec<Value> =
        pointers[..inputs.len()].iter().map(|&pointer| b.load(pointer, Some(places.mask), None)).collect();
    let result = body(&mut b, &loaded, &scalars);
    b.store(pointers[inputs.len()], result, Some(places.mask));
    b.finish()
}

/// An operator's formula on tiles as they lie in memory; the result is of the output's type.
pub(super) fn formula(
    b: &mut Builder,
    row: &Row,
    operands: &[(Value, DType)],
    scalars: &[Value],
    output: DType,
) -> Value {
    let dtypes: Vec<DType> = operands.iter().map(|(_, dtype)| *dtype).collect();
    let compute = row.compute(&dtypes);
    let dims = b.type_of(operands[0].0).dims.clone();
    // The scope owns the builder while the formula is written.
    let scope = Scope::new(std::mem::replace(b, Builder::new("")), is_signed(compute));
    let result = {
        let operands: Vec<_> = operands
            .iter()
            .enumerate()
            .map(|(i, &(value, dtype))| {
                let x = scope.expr(value);
                match row.operands.get(i) {
                    Some(Operand::Truth) => x.truth(),
                    _ if dtype == DType::Bool && compute == DType::Bool => x.truth(),
                    _ => x.cast(is_signed(dtype), compute.into(), is_signed(compute)),
                }
            })
            .collect();
        let scalars: Vec<_> = scalars
            .iter()
            .map(|&value| {
                let scalar = scope.expr(value).cast(true, compute.into(), is_signed(compute));
                scope.splat(scalar, &dims)
            })
            .collect();
        let result = (row.expression)(&operands, &scalars);
        convert(result, compute, output).value()
    };
    *b = scope.into_builder();
    result
}

/// The type in which a number is passed to a formula that is computed in `compute`.
pub(super) fn scalar_type(compute: DType) -> Scalar {
    if compute.is_float() { Scalar::from(compute) } else { Scalar::I64 }
}

fn is_signed(dtype: DType) -> bool {
    !matches!(dtype, DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

/// The formula's result in the output's type; as a boolean it is compared with zero.
fn convert(result: Expr<'_>, compute: DType, output: DType) -> Expr<'_> {
    let result = if output == DType::Bool { result.truth() } else { result };
    // As in C on the machines of today: the low bits of a larger integer, of which kernels convert to the short types themselves.
    if output == DType::U32 && compute.is_float() {
        return result.cast(true, Scalar::I64, true).cast(true, output.into(), is_signed(output));
    }
    result.cast(is_signed(compute), output.into(), is_signed(output))
}

/// Where the elements of one tile are.
struct Places {
    /// The tile's dimensions.
    dims: Vec<usize>,
    /// Index along each dimension that the kernel walks: scalars, then a column tile, then a row tile.
    outer: Vec<Value>,
    rows: Option<Value>,
    columns: Value,
    mask: Value,
}

impl Places {
    fn new(b: &mut Builder, layout: &Layout, sizes: &[Value]) -> Places {
        let dims: Vec<usize> = layout.rows.into_iter().chain([layout.columns]).collect();
        let (column_index, mut mask) = tiles::of_program(b, 0, layout.columns, sizes[sizes.len() - 1]);
        let mut columns = column_index;
        let mut rows = None;
        if let Some(count) = layout.rows {
            let (row_index, row_mask) = tiles::of_program(b, 1, count, sizes[layout.outer]);
            let (row_index, row_mask) = (b.expand_dims(row_index, 1), b.expand_dims(row_mask, 1));
            let row_mask = b.broadcast(row_mask, &dims);
            rows = Some(b.broadcast(row_index, &dims));
            let (column_index, column_mask) = (b.expand_dims(columns, 0), b.expand_dims(mask, 0));
            columns = b.broadcast(column_index, &dims);
            let column_mask = b.broadcast(column_mask, &dims);
            mask = b.and(row_mask, column_mask);
        }
        let outer = tiles::unravelled(b, 2, &sizes[..layout.outer]);
        Places { dims, outer, rows, columns, mask }
    }

    /// The tile of pointers into a tensor with these strides.
    fn pointer(&self, b: &mut Builder, pointer: Value, strides: &[Value]) -> Value {
        let pointer = tiles::moved(b, pointer, self.outer.iter().copied().zip(strides.iter().copied()));
        let inner = &strides[self.outer.len()..];
        let stride = b.splat(inner[inner.len() - 1], &self.dims);
        let mut offset = b.multiply(self.columns, stride);
        if let Some(rows) = self.rows {
            let stride = b.splat(inner[0], &self.dims);
            let by_row = b.multiply(rows, stride);
            offset = b.add(by_row, offset);
        }
        b.add_pointer(pointer, offset)
    }
}
