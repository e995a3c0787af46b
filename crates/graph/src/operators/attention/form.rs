//! What kernels of attention share: what a kernel is written for, its parameters, and where its keys begin.

use super::parts::OfRows;
use crate::program::Key;
use crate::tiles::{Access, Matrix, Order, moved};
use crate::view::View;
use openmps_host::native::attention::Attention;
use openmps_tile::{Builder, DType, Scalar, Type, Unary, Value};

pub(super) const OPERATOR: &str = "attention";

/// Queries of a block at most: fewer where queries and sums of a row take much of a simdgroup's registers.
const ROWS: usize = 64;
const ROWS_OF_LONG_HEADS: usize = 32;
const LONG_HEAD: usize = 128;

/// Bytes of a block of keys, and of one of values, and how many keys there are at most.
const BLOCK_BYTES: usize = 8 << 10;
const KEYS: usize = 64;

/// The smallest side of a tile: that of a matrix unit.
const SMALLEST: usize = 16;

/// What the kernel depends on.
pub(super) struct Form {
    pub dtype: DType,
    /// Elements of a tile's queries, and of its values: powers of two.
    pub depth: usize,
    pub columns: usize,
    /// Queries and keys of a block.
    pub rows: usize,
    pub keys: usize,
    /// How the keys lie, as columns.
    pub order: Order,
    /// How all but the mask are read and written.
    pub access: Access,
    pub mask: bool,
    pub causal: bool,
    pub window: bool,
    pub soft_cap: bool,
    pub walk: Walk,
}

/// Which keys a program walks.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Walk {
    /// All that its queries see.
    Whole,
    /// A part of them; what comes of it is put together later.
    Part,
    /// A part of them for one query of each head.
    PartOfOne,
}

impl Form {
    pub fn of(sizes: &Attention, [q, k, v]: [&View; 3], out: &View, mask: bool) -> Form {
        let (depth, columns) = (padded(sizes.depth), padded(sizes.columns));
        let most = if depth.max(columns) > LONG_HEAD { ROWS_OF_LONG_HEADS } else { ROWS };
        let rows = sizes.rows.next_power_of_two().clamp(SMALLEST, most);
        let keys = (BLOCK_BYTES / (depth.max(columns) * k.dtype.size())).clamp(SMALLEST, KEYS);
        let order = Order::of([k.strides[3], k.strides[2]]);
        let tensors = [q, k, v, out];
        let across: Vec<isize> = tensors.iter().flat_map(|view| view.strides[..3].to_vec()).collect();
        let access = match tensors.iter().all(|view| view.strides[3] == 1) {
            true => Access::of(k.dtype, &tensors.map(|view| view.address), &across, &[sizes.depth, sizes.columns]),
            false => Access::Elements,
        };
        let (causal, window, soft_cap) = (sizes.causal, sizes.window.is_some(), sizes.soft_cap.is_some());
        let walk = Walk::Whole;
        Form { dtype: k.dtype, depth, columns, rows, keys, order, access, mask, causal, window, soft_cap, walk }
    }

    pub fn key(&self) -> Key {
        let flags = [self.mask, self.causal, self.window, self.soft_cap].map(usize::from);
        let how = [&[self.order as usize, self.access as usize, self.walk as usize][..], &flags[..]].concat();
        let numbers = [&[self.depth, self.columns, self.rows][..], &how[..]].concat();
        Key::Other(OPERATOR, vec![self.dtype], numbers)
    }
}

pub(super) fn padded(size: usize) -> usize {
    size.next_power_of_two().max(SMALLEST)
}

/// The matrices of this program's batch and head, and the sizes.
pub(super) struct Parameters {
    pub q: Matrix,
    /// Each column is a key.
    pub k: Matrix,
    pub v: Matrix,
    pub mask: Option<Matrix>,
    pub out: Matrix,
    pub rows: Value,
    pub keys: Value,
    pub depth: Value,
    pub columns: Value,
    pub scale: Value,
    pub window: Option<Value>,
    pub soft_cap: Option<Value>,
    /// Of a part: where the numbers of its rows go, and its first key and the one behind its last.
    pub part: Option<(OfRows, [Value; 2])>,
}

impl Parameters {
    /// A product of queries and keys as scores, before a mask.
    pub fn scaled_and_capped(&self, b: &mut Builder, product: Value) -> Value {
        let scale = b.splat_like(self.scale, product);
        let scores = b.multiply(product, scale);
        let Some(cap) = self.soft_cap else { return scores };
        let cap = b.splat_like(cap, scores);
        let part = b.divide(scores, cap);
        let tangent = b.unary(Unary::Tanh, part);
        b.multiply(tangent, cap)
    }
}

pub(super) fn parameters(b: &mut Builder, form: &Form) -> Parameters {
    let names = ["q", "k", "v", "mask", "out"].into_iter().filter(|&name| form.mask || name != "mask");
    let names: Vec<&str> = names.collect();
    let access = |name: &str| if name == "mask" { Access::Elements } else { form.access };
    let dtype = |name: &str| if name == "out" && form.walk != Walk::Whole { form.dtype.compute() } else { form.dtype };
    let pointers: Vec<Value> = names.iter().map(|name| access(name).pointer(b, name, dtype(name))).collect();
    let strides: Vec<[Value; 4]> = names
        .iter()
        .map(|name| {
            let across = [0, 1, 2].map(|d| access(name).number(b, &format!("{name}_stride{d}"), form.dtype));
            [across[0], across[1], across[2], access(name).along(b, &format!("{name}_stride3"))]
        })
        .collect();
    let [group, rows, keys] = ["group", "rows", "keys"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let [depth, columns] = ["depth", "columns"].map(|name| form.access.number(b, name, form.dtype));
    let number = Type::scalar(form.dtype.compute().into());
    let scale = b.parameter("scale", number.clone());
    let window = form.window.then(|| b.parameter("window", Type::scalar(Scalar::I64)));
    let soft_cap = form.soft_cap.then(|| b.parameter("soft_cap", number));
    let (head, batch) = (b.program_id(1), b.program_id(2));
    let key_head = b.divide(head, group);
    let mut matrix = |i: usize, head: Value| {
        let [of_batch, of_head, row, column] = strides[i];
        Matrix { pointer: moved(b, pointers[i], [(batch, of_batch), (head, of_head)]), strides: [row, column] }
    };
    let (q, keys_by_row, v) = (matrix(0, head), matrix(1, key_head), matrix(2, key_head));
    let [row, column] = keys_by_row.strides;
    let k = Matrix { strides: [column, row], ..keys_by_row };
    let mask = form.mask.then(|| matrix(3, head));
    let mut out = matrix(names.len() - 1, head);
    let part = (form.walk != Walk::Whole).then(|| {
        let number = b.program_id(0);
        let of_rows = OfRows::parameter(b, form.dtype.compute(), [batch, head, number]);
        let of_part = form.access.number(b, "part_stride", form.dtype);
        let length = b.parameter("part_keys", Type::scalar(Scalar::I64));
        out.pointer = moved(b, out.pointer, [(number, of_part)]);
        let begin = b.multiply(number, length);
        let behind = b.add(begin, length);
        (of_rows, [begin, b.minimum(behind, keys)])
    });
    Parameters { q, k, v, mask, out, rows, keys, depth, columns, scale, window, soft_cap, part }
}

/// The beginning of the block of keys in which the block's first query begins to see.
pub(super) fn first_seen(b: &mut Builder, form: &Form, p: &Parameters, first: Value, window: Value) -> Value {
    let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
    let before = b.subtract(p.keys, p.rows);
    let behind = b.add(first, before);
    let behind = b.add(behind, one);
    let begin = b.subtract(behind, window);
    let begin = b.maximum(begin, zero);
    let keys = b.integer(form.keys as i64, Scalar::I64);
    let number = b.divide(begin, keys);
    b.multiply(number, keys)
}
