//! Rotary embeddings: pairs of columns turned by angles that depend on a row's place.

use super::microsoft::refuse;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, size_of, wrong};
use crate::program::Operation;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::gather::Gather;
use openmps::operators::operators::rope::Rope;

pub(super) const TABLE: Table = &[("RotaryEmbedding", rotary), ("com.microsoft.RotaryEmbedding", by_places)];

/// Cosines and sines are given for each row, or by the place that each row has.
fn rotary(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let places = lowering.optional(operation, 3)?;
    of_input(lowering, operation, [1, 2], places)
}

/// Places are the second input: one for each row, or that of the first row of all batches.
fn by_places(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    refuse(operation, &["is_packed_batching"])?;
    if operation.float("scale", 1.0)? != 1.0 {
        return Err(wrong(operation, "scaled places"));
    }
    let (x, mut places) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    if lowering.shape(&places)?.len() == 1 {
        let shape = lowering.shape(&x)?;
        let rows = shape.get(shape.len().wrapping_sub(2)).copied().unwrap_or(0);
        let row = lowering.counted(rows, lowering.data_type(&places)?)?;
        places = lowering.binary(Binary::Add, &places, &row)?;
        places = lowering.reshape(&places, &[1, rows])?;
    }
    of_input(lowering, operation, [2, 3], Some(places))
}

fn of_input(
    lowering: &mut Lowering,
    operation: &Operation,
    tables: [usize; 2],
    places: Option<Value>,
) -> Result<Vec<Value>> {
    let given = lowering.input(operation, 0)?;
    let shape = lowering.shape(&given)?;
    let tables = lowering.angles(operation, tables, places.as_ref())?;
    let asked = size_of(operation, operation.integer("rotary_embedding_dim", 0)?)?;
    let half = lowering.shape(&tables[0])?.last().copied().unwrap_or(0);
    if asked != 0 && asked != 2 * half {
        return Err(wrong(operation, format!("{asked} columns by tables of {half}")));
    }
    let heads = match (operation.integer("num_heads", 0)?, &shape[..]) {
        // Heads that are all turned have twice a table's columns.
        (0, [_, _, width]) if asked == 0 && half > 0 => width / (2 * half),
        (heads, _) => size_of(operation, heads)?,
    };
    let x = lowering.heads_first(operation, &given, heads)?;
    let y = lowering.turned(operation, &x, tables, operation.flag("interleaved", false)?)?;
    Ok(vec![if shape.len() == 3 { lowering.heads_joined(operation, &y)? } else { y }])
}

impl Lowering<'_> {
    /// The inputs that are tables of cosines and sines; their rows at these places.
    pub(super) fn angles(
        &mut self,
        operation: &Operation,
        tables: [usize; 2],
        places: Option<&Value>,
    ) -> Result<[Value; 2]> {
        let mut rows = |at: usize| {
            let table = self.input(operation, at)?;
            match places {
                Some(places) => self.one(Gather { axis: 0 }, &[table, places.clone()]),
                None => Ok(table),
            }
        };
        Ok([rows(tables[0])?, rows(tables[1])?])
    }

    /// `[batch, heads, rows, depth]` with its first columns turned, as many as tables of `[rows, half of them]`, or one for each batch, have angles for.
    pub(super) fn turned(
        &mut self,
        operation: &Operation,
        x: &Value,
        tables: [Value; 2],
        interleaved: bool,
    ) -> Result<Value> {
        let depth = self.shape(x)?.last().copied().unwrap_or(0);
        let half = self.shape(&tables[0])?.last().copied().unwrap_or(0);
        if 2 * half > depth {
            return Err(wrong(operation, format!("{depth} columns by tables of {half}")));
        }
        let mut inputs = vec![if 2 * half < depth { self.narrow(x, 3, 0, 2 * half)? } else { x.clone() }];
        for table in tables {
            let shared = self.shape(&table)?.first() == Some(&1) && self.shape(&table)?.len() == 3;
            let table = if shared { self.without(&table, &[0])? } else { table };
            inputs.push(self.cast(&table, self.data_type(x)?)?);
        }
        let y = self.one(Rope { interleaved, inverse: false }, &inputs)?;
        if 2 * half == depth {
            return Ok(y);
        }
        let rest = self.narrow(x, 3, 2 * half, depth)?;
        self.concat(&[y, rest], 3)
    }
}
