//! The gradient of an embedding's table.

use super::{Reduce, vendor};
use crate::entry::{Case, Entry, Input};
use crate::error::Result;
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, call, check_dense, expect_inputs, expect_shape, fill_view};
use crate::operator::{Meta, Operator};
use crate::operators::gather::Embedding;
use crate::operators::gather::{check_rows, expect_indices, index, indices, rows, wrap};
use crate::operators::indexed::{self, Named, Other};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::vendor::try_vendor;
use crate::view::{View, shape_of};
use openmps_host::by_type;
use openmps_host::native::gather::Indices;
use openmps_host::native::scatter;
use openmps_tile::DType::{I32, I64};
use openmps_tile::{Number, dtype};

/// The gradient of an embedding's table; inputs: index, gradient of the rows.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingGradient {
    /// How many rows the table has.
    pub rows: usize,
    /// The index whose rows do not count.
    pub padding: Option<i64>,
}

impl EmbeddingGradient {
    /// Whether the device has done it.
    fn on_device(&self, queue: &Queue, inputs: &[View], out: &View, padding: Option<i64>) -> Result<bool> {
        let (index, gradient) = (&inputs[0], &inputs[1]);
        let seen = indexed::check(queue, self.name(), || check_rows(index, self.rows))?;
        if seen && try_vendor(queue, self.name(), || vendor::table(padding, inputs, out))? {
            return Ok(true);
        }
        let named = Named::slices(out, 0, index);
        if !indexed::takes(queue, &named, out.dtype, Reduce::Add) {
            return Ok(false);
        }
        queue.fill(out, 0)?;
        indexed::put(queue, self.name(), &named, Reduce::Add, &Other::of(gradient))?;
        if let Some(padding) = padding {
            queue.fill(&out.narrowed(0, padding as usize, 1, 1), 0)?;
        }
        Ok(true)
    }
}

impl Operator for EmbeddingGradient {
    fn name(&self) -> &'static str {
        "embedding_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        expect_indices(self.name(), &inputs[0])?;
        let width = inputs[1].shape.last().copied().unwrap_or(1);
        expect_shape(self.name(), "gradient", &inputs[1].shape, &[&inputs[0].shape[..], &[width]].concat())?;
        Ok(vec![Meta { dtype: inputs[1].dtype, shape: shape_of(&[self.rows, width])? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let padding = self.padding.filter(|padding| (0..self.rows as i64).contains(padding));
        if !queue.is_host() && self.on_device(queue, inputs, &outputs[0], padding)? {
            return Ok(());
        }
        call(queue, self.name(), || {
            let (index, gradient) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            let indices: Indices = indices(&index, &inputs[0]);
            indices.check_from(0, self.rows)?;
            fill_view(&outputs[0], Number::Integer(0));
            let rows = rows(&outputs[0], 0);
            // SAFETY: dense tensors of the checked shapes.
            unsafe {
                by_type!(inputs[1].dtype, T => {
                    scatter::add_rows::<T>(outputs[0].address, gradient.address, rows, indices)?
                });
                if let Some(padding) = padding {
                    scatter::clear_numbered(outputs[0].address, rows.row, &[padding as usize]);
                }
            }
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (index, dy) = (b.inputs[0], b.dy()?);
        Ok(vec![None, Some(b.one(Embedding { padding: self.padding }, &[index, dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let width = *inputs[1].shape.last().expect("checked by infer");
        let mut out = Array::from_fn(&[self.rows, width], inputs[1].dtype, |_| 0.0);
        for (flat, value) in inputs[1].data.iter().enumerate() {
            let row = inputs[0].data[flat / width];
            if self.padding != Some(row as i64) {
                out.data[wrap(row, self.rows) * width + flat % width] += value;
            }
        }
        vec![out]
    }
}

/// For the list of operators.
pub static EMBEDDING_GRADIENT: Entry = Entry {
    name: "embedding_gradient",
    summary: "The gradient of an embedding's table.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |padding, index: Input, gradient: &[usize]| {
            Case::new(EmbeddingGradient { rows: 7, padding }, vec![index, Input::new(gradient)])
        };
        vec![
            case(None, index(&[2, 3], I64, &[0, 6, 3]), &[2, 3, 5]),
            case(Some(3), index(&[4], I32, &[3, 6, 3, 6]), &[4, 16]),
        ]
    },
    tolerance: 4.0,
};
