//! Operators as calls of the vendor's libraries (MPS, MPSGraph). A device that has none, or whose table says own kernels, takes nothing, and
//! the operator runs its own kernel. What a library would read otherwise than the operator says is not handed over.

use crate::error::{Error, Result};
use crate::queue::Queue;
use crate::view::View;
use openmps_runtime::vendor::graph::{Binary, Builder, Operation, Tensor as Node};
use openmps_runtime::vendor::{Family, Matrices, Tensor, VendorCall};
use openmps_tile::DType;

/// Whether one of the vendor's libraries has taken the call.
#[inline]
pub(crate) fn try_vendor(
    queue: &Queue,
    operator: &'static str,
    call: impl FnOnce() -> Option<VendorCall>,
) -> Result<bool> {
    // SAFETY: views name live memory, which frontends keep until the queue's commands have ended.
    unsafe { queue.try_vendor(operator, call) }.map_err(|source| Error::Device { operator, source })
}

/// An MPSGraph in the making, with the operands' memory. Views may have their axes in any order, as long as nothing lies between elements.
pub(crate) struct VendorGraph {
    builder: Builder,
    inputs: Vec<Tensor>,
}

impl VendorGraph {
    /// A graph with an input for each view, and the nodes that are the views.
    pub fn new(views: &[&View]) -> Option<(VendorGraph, Vec<Node>)> {
        let mut builder = Builder::new();
        let places: Vec<MemoryOrder> = views.iter().map(|view| MemoryOrder::of(view)).collect::<Option<_>>()?;
        let mut nodes = Vec::with_capacity(views.len());
        for (view, place) in views.iter().zip(&places) {
            nodes.push(builder.input(view.dtype, &place.shape).ok()?);
        }
        for (node, place) in nodes.iter_mut().zip(&places).filter(|(_, place)| !place.in_order()) {
            *node = builder.add(Operation::Transpose(place.axes_of_view()), &[*node]).ok()?;
        }
        let inputs = views.iter().zip(places).map(|(view, place)| place.tensor(view)).collect();
        Some((VendorGraph { builder, inputs }, nodes))
    }

    /// A further operation.
    pub fn add(&mut self, operation: Operation, inputs: &[Node]) -> Option<Node> {
        self.builder.add(operation, inputs).ok()
    }

    /// The sum of two tensors, broadcast against each other.
    pub fn sum(&mut self, x: Node, y: Node) -> Option<Node> {
        self.add(Operation::Binary(Binary::Addition), &[x, y])
    }

    /// An operation with a number: `x` first.
    pub fn with_number(&mut self, binary: Binary, x: Node, number: f64) -> Option<Node> {
        let dtype = self.builder.type_of(x).dtype;
        let constant = self.add(Operation::Constant { bits: number.to_bits(), shape: vec![1], dtype }, &[])?;
        self.add(Operation::Binary(binary), &[x, constant])
    }

    /// A tensor in another shape, where it has another.
    pub fn reshaped(&mut self, x: Node, shape: &[usize]) -> Option<Node> {
        if self.builder.type_of(x).shape == shape {
            Some(x)
        } else {
            self.add(Operation::Reshape(shape.to_vec()), &[x])
        }
    }

    /// A vector as a factor or addend of each channel of NCHW images.
    pub fn along_channels(&mut self, x: Node) -> Option<Node> {
        let channels = self.builder.type_of(x).shape.iter().product();
        self.reshaped(x, &[1, channels, 1, 1])
    }

    /// Another element type.
    pub fn cast(&mut self, x: Node, dtype: DType) -> Option<Node> {
        if self.builder.type_of(x).dtype == dtype { Some(x) } else { self.add(Operation::Cast(dtype), &[x]) }
    }

    /// The call with one result. `work` counts multiplications and additions, or elements.
    pub fn finish(self, family: Family, work: usize, result: Node, out: &View) -> Option<VendorCall> {
        self.finish_all(family, work, &[(result, out)])
    }

    /// The call with its results in views.
    pub fn finish_all(mut self, family: Family, work: usize, results: &[(Node, &View)]) -> Option<VendorCall> {
        let (mut nodes, mut outputs) = (Vec::new(), Vec::new());
        for (node, view) in results {
            let place = MemoryOrder::of(view)?;
            let node = self.reshaped(*node, &view.shape)?;
            let ordered = if place.in_order() {
                Some(node)
            } else {
                self.add(Operation::Transpose(place.order.clone()), &[node])
            };
            nodes.push(ordered?);
            outputs.push(place.tensor(view));
        }
        if nodes.iter().zip(&outputs).any(|(&node, out)| self.builder.type_of(node).dtype != out.dtype) {
            return None;
        }
        let graph = self.builder.finish(&nodes).ok()?;
        let columns = outputs.first()?.shape.last().copied().unwrap_or(1);
        Some(VendorCall::Graph { family, work: work as u64, columns, graph, inputs: self.inputs, outputs })
    }
}

/// How a view's elements lie: its axes, the outermost in memory first, and their lengths.
struct MemoryOrder {
    order: Vec<usize>,
    shape: Vec<usize>,
}

impl MemoryOrder {
    /// None where something lies between elements, where they repeat, or where there are none.
    fn of(view: &View) -> Option<MemoryOrder> {
        if view.is_empty() || view.rank() == 0 {
            return None;
        }
        let mut order: Vec<usize> = (0..view.rank()).collect();
        if !view.is_dense() {
            order.sort_by_key(|&axis| (view.shape[axis] != 1, std::cmp::Reverse(view.strides[axis])));
        }
        let mut expected = 1;
        for &axis in order.iter().rev().filter(|&&axis| view.shape[axis] != 1) {
            if view.strides[axis] != expected {
                return None;
            }
            expected *= view.shape[axis] as isize;
        }
        let shape = order.iter().map(|&axis| view.shape[axis]).collect();
        Some(MemoryOrder { order, shape })
    }

    fn in_order(&self) -> bool {
        self.order.is_sorted()
    }

    /// For each axis of the view, its place in memory.
    fn axes_of_view(&self) -> Vec<usize> {
        let mut axes = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(place, &axis)| axes[axis] = place);
        axes
    }

    fn tensor(&self, view: &View) -> Tensor {
        Tensor { address: view.address, dtype: view.dtype, shape: self.shape.clone() }
    }
}

/// Matrices with these steps (rows, columns) in elements, and whether they have to be read transposed. None where rows have gaps.
pub(crate) fn matrices(
    (address, dtype): (usize, DType),
    [count, rows, columns]: [usize; 3],
    [by_matrix, by_row, by_column]: [isize; 3],
) -> Option<(Matrices, bool)> {
    let fits = |across: isize, length: usize| across >= length as isize;
    let (transposed, rows, columns, step) = if (by_column == 1 || columns == 1) && (fits(by_row, columns) || rows == 1)
    {
        (false, rows, columns, by_row.max(columns as isize))
    } else if (by_row == 1 || rows == 1) && (fits(by_column, rows) || columns == 1) {
        (true, columns, rows, by_column.max(rows as isize))
    } else {
        return None;
    };
    let matrix_step = if count == 1 { step * rows as isize } else { by_matrix };
    if matrix_step < step * rows as isize {
        return None;
    }
    let (row_step, matrix_step) = (step as usize, matrix_step as usize);
    Some((Matrices { address, dtype, matrices: count, rows, columns, row_step, matrix_step }, transposed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(dims: &[usize], strides: &[isize]) -> View {
        View::strided(4096, DType::F32, dims, strides).unwrap()
    }

    #[test]
    fn axes_in_any_order_are_found_and_gaps_refused() {
        let place = MemoryOrder::of(&view(&[2, 3, 4], &[1, 8, 2])).unwrap();
        assert_eq!((place.order.clone(), place.shape.clone()), (vec![1, 2, 0], vec![3, 4, 2]));
        assert_eq!(place.axes_of_view(), [2, 0, 1]);
        assert!(MemoryOrder::of(&view(&[2, 3], &[3, 1])).unwrap().in_order());
        assert!(MemoryOrder::of(&view(&[1, 3], &[77, 1])).unwrap().in_order());
        for strides in [[4, 1], [0, 1], [6, 2], [-3, 1]] {
            assert!(MemoryOrder::of(&view(&[2, 3], &strides)).is_none(), "{strides:?}");
        }
        assert!(MemoryOrder::of(&view(&[0, 3], &[3, 1])).is_none());
    }

    #[test]
    fn matrices_are_rows_or_columns() {
        let at = (4096, DType::F32);
        let (rows, transposed) = matrices(at, [2, 3, 4], [20, 5, 1]).unwrap();
        assert_eq!((rows.row_step, rows.matrix_step, transposed), (5, 20, false));
        let (columns, transposed) = matrices(at, [1, 3, 4], [0, 1, 3]).unwrap();
        assert_eq!((columns.rows, columns.columns, columns.row_step, transposed), (4, 3, 3, true));
        assert!(matrices(at, [1, 3, 4], [0, 8, 2]).is_none());
        assert!(matrices(at, [2, 3, 4], [0, 4, 1]).is_none(), "one matrix twice");
    }
}
