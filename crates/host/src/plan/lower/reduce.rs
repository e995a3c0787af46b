//! Lowers reductions, scans and products of matrices.

use super::{Lowered, Lowering, refuse};
use crate::level::bfloats_at_once;
use crate::native::piecewise::Elements;
use crate::plan::call::{Places, Written};
use crate::plan::fold::{Axis, Fold, FoldKind, FoldPart, rounds};
use crate::plan::operand::{Extent, Extents, Operand, Target, ViewKind, plain};
use crate::plan::product::ProductKind;
use crate::plan::step::Step;
use crate::plan::value::{Filled, Form, Planned, width_of};
use crate::vector::memory::copy_strided;
use crate::vector::sum_of_pairs::{self, PairSum};
use crate::vector::{binary, reduce};
use openmps_tile::{Cast, Combine, Instruction, Scalar, Value};
use std::sync::Arc;

/// Bytes of rows that take longer to begin with than to combine.
const SHORT_ROW: usize = 64;
/// So many of them are worth to be gathered.
const MANY_ROWS: usize = 16;

impl Lowering<'_> {
    pub(super) fn reduce(&mut self, combine: Combine, x: Value, axis: usize, result: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(x);
        if reduce::reduce(combine, scalar).is_none() {
            return self.through_single(result, &[x], |lowering, wide| {
                lowering.reduce_data(combine, wide[0], Scalar::F32, axis, x, result)
            });
        }
        let operand = self.data(x)?;
        self.reduce_data(combine, operand, scalar, axis, x, result)
    }

    fn reduce_data(
        &mut self,
        combine: Combine,
        source: Operand,
        scalar: Scalar,
        axis: usize,
        x: Value,
        result: Value,
    ) -> Lowered<Planned> {
        let (Some(function), Some(identity)) = (reduce::reduce(combine, scalar), reduce::identity(combine, scalar))
        else {
            return refuse(format!("a {} of {}", combine.text(), scalar.name()));
        };
        let (size, rank, full) = (scalar.size(), self.kernel.dims_of(x).len(), self.extents_of(x));
        let is_single_sum = combine == Combine::Sum && scalar == Scalar::F32;
        // Sums begin as 0 anyway.
        let source = match self.form_of(source) {
            Some(Form::ZeroAnd(x)) if is_single_sum => x,
            _ => source,
        };
        let (source, extents) = match self.without_rest(source, identity, size) {
            Some(part) if rank <= 2 || axis + 1 == rank => part,
            _ => (source, full),
        };
        if rank == 1 {
            let (destination, width) = (self.slot(), width_of(scalar));
            if let Some(Form::Product(factors)) = self.form_of(source).filter(|_| is_single_sum) {
                // The product itself is left out where nobody else reads it, and zeros outside of a part.
                let function = sum_of_pairs::sum_of_products();
                // What has been narrowed already is not widened again to where the factors are.
                let extents = match self.part_of_both(factors) {
                    Some(part) if extents.is_whole() => part,
                    _ => extents,
                };
                let kind = PairSum::Products;
                let step = Step::SumOfPairs { function, kind, destination, operands: factors, extents };
                self.emit_tile(step, &full, 0.2);
                return Ok(Planned::Uniform(destination));
            }
            let combine = (scalar == Scalar::F32).then_some(combine);
            let step = Step::ReduceAll { function, combine, destination, source, size, width, extents };
            self.emit_tile(step, &full, 0.15);
            return Ok(Planned::Uniform(destination));
        }
        let result = self.extents_of(result);
        let columns = binary::binary(combine.operation(), scalar);
        let target = self.target(&result, size);
        let is_short = extents == full && full.rows.full >= MANY_ROWS && full.columns.full * size <= SHORT_ROW;
        let step = match columns {
            Some(combine) if axis + 1 == rank && is_short => {
                let source = self.dense_operand(source, full, size);
                let axis = Axis::new(self.kernel.dims_of(x), axis);
                return Ok(self.reduce_short_rows((combine, size), source, axis, target, result));
            }
            _ if axis + 1 == rank => Step::ReduceRows { function, target, source, extents, result },
            Some(combine) if rank == 2 => Step::ReduceColumns { combine, identity, target, source, extents },
            Some(combine) => {
                return self.reduce_middle((function, combine, size), source, axis, x, target, result);
            }
            None => return refuse(format!("a {} of {} along axis {axis}", combine.text(), scalar.name())),
        };
        self.emit_tile(step, &full, 0.15);
        Ok(Planned::Data(plain(target.register)))
    }

    /// What lies behind one place of the axis is a row; the rows of each line along it become one. Where that is one element, the line is a row itself.
    fn reduce_middle(
        &mut self,
        (whole, combine, size): (reduce::ReduceFunction, binary::BinaryFunction, usize),
        source: Operand,
        axis: usize,
        x: Value,
        target: Target,
        result: Extents,
    ) -> Lowered<Planned> {
        let Axis { outer, length, inner } = Axis::new(self.kernel.dims_of(x), axis);
        let full = self.extents_of(x);
        let source = self.dense_operand(source, full, size);
        let shortest = if inner == 1 { length } else { inner };
        if shortest * size <= SHORT_ROW {
            return Ok(self.reduce_short_rows((combine, size), source, Axis { outer, length, inner }, target, result));
        }
        let work = Arc::new(move |places: &Places| {
            for o in 0..outer {
                // SAFETY: the tile has `outer * length * inner` elements of this size, the result `outer * inner`.
                unsafe {
                    let from = places.reads[0].add(o * length * inner * size);
                    let to = places.writes[0].add(o * inner * size);
                    if inner == 1 {
                        whole(to, from, length);
                        continue;
                    }
                    std::ptr::copy_nonoverlapping(from, to, inner * size);
                    for step in 1..length {
                        combine(to, to, false, from.add(step * inner * size), false, inner);
                    }
                }
            }
            Ok(())
        });
        let written = vec![Written::Tile(target, result)];
        self.emit_work("tt.reduce", vec![source], written, &full, 0.15, work);
        Ok(Planned::Data(plain(target.register)))
    }

    /// As above, where those rows are short: first ones are gathered, then second ones, so that all are combined in one run.
    fn reduce_short_rows(
        &mut self,
        (combine, size): (binary::BinaryFunction, usize),
        source: Operand,
        Axis { outer, length, inner }: Axis,
        target: Target,
        result: Extents,
    ) -> Planned {
        let (others, bytes) = (self.target(&result, size), inner * size);
        let work = Arc::new(move |places: &Places| {
            let [to, others] = [places.writes[0], places.writes[1]];
            // SAFETY: as above; what is gathered has as many elements as the result.
            unsafe {
                gather_rows(to, places.reads[0], bytes, (outer, length));
                for step in 1..length {
                    gather_rows(others, places.reads[0].add(step * bytes), bytes, (outer, length));
                    combine(to, to, false, others, false, outer * inner);
                }
            }
            Ok(())
        });
        let written = [target, others].map(|target| Written::Tile(target, result)).to_vec();
        self.emit_work("tt.reduce", vec![source], written, &Extents::full(outer * length, inner), 0.15, work);
        Planned::Data(plain(target.register))
    }

    /// What is left to reduce of a tile that holds the reduction's identity outside of a part.
    fn without_rest(&self, source: Operand, identity: [u8; 8], size: usize) -> Option<(Operand, Extents)> {
        let Operand::Register { register, view: ViewKind::Plain } = source else { return None };
        let Filled { inside, part, rest } = *self.filled.get(&register)?;
        let rest = self.literal(rest)?.to_le_bytes();
        (rest[..size] == identity[..size]).then_some((inside, part))
    }

    /// The part outside of which two tiles are 0.
    fn part_of_both(&self, tiles: [Operand; 2]) -> Option<Extents> {
        let [x, y] = tiles.map(|tile| self.without_rest(tile, [0; 8], size_of::<f32>()));
        let ((_, part), (_, other)) = (x?, y?);
        (part == other).then_some(part)
    }

    /// A reduction by a block (`scan` is none), or a scan (`scan` says whether it goes backwards).
    pub(super) fn by_block(&mut self, instruction: &Instruction, axis: usize, scan: Option<bool>) -> Lowered<()> {
        let (operands, block) = (&instruction.operands, &instruction.blocks[0]);
        let kind = scan.map_or(FoldKind::Reduce, |reverse| FoldKind::Scan { reverse });
        let axis = Axis::new(self.kernel.dims_of(operands[0]), axis);
        let rounds = rounds(axis, kind);
        let most = rounds.iter().map(|round| round.count).max().unwrap_or(1) * axis.lines();
        let pairs = self.slot();
        let lanes = Extents { rows: Extent { full: 1, clip: None }, columns: Extent { full: most, clip: Some(pairs) } };
        let mut parts = Vec::new();
        for (i, &x) in operands.iter().enumerate() {
            let size = self.element_size(x);
            let (full, data) = (self.extents_of(x), self.data(x)?);
            let source = self.dense_operand(data, full, size);
            // The sides are places in `work`, with no memory of their own.
            let (work, left, right) = (self.register(full.len() * size), self.register(0), self.register(0));
            self.planned.insert(block.arguments[i], Planned::Data(plain(left)));
            self.planned.insert(block.arguments[operands.len() + i], Planned::Data(plain(right)));
            let result = self.home(instruction.results[i]);
            parts.push((FoldPart { source, work, left, right, combined: result.1, result: result.0, size }, result.1));
        }
        let sides: Vec<_> = parts.iter().flat_map(|(part, _)| [part.left, part.right]).collect();
        let around = self.lanes.replace(lanes);
        let mut combined = Vec::new();
        let body = self.body(block, rounds.len() as f64, |lowering, ends| {
            for &end in ends {
                let operand = lowering.data(end)?;
                let is_side = matches!(operand, Operand::Register { register, .. } if sides.contains(&register));
                // A side is overwritten with what the round makes of it.
                combined.push(if is_side {
                    lowering.kept(operand, lanes, lowering.element_size(end))
                } else {
                    operand
                });
            }
            Ok(())
        });
        self.lanes = around;
        let body = body?;
        for ((part, home), (combined, &result)) in parts.iter_mut().zip(combined.into_iter().zip(&instruction.results))
        {
            part.combined = combined;
            let planned = self.as_planned(result, *home);
            self.planned.insert(result, planned);
        }
        let parts = parts.into_iter().map(|(part, _)| part).collect();
        let full = self.extents_of(operands[0]);
        let pieces = axis.pieces(kind);
        self.emit_tile(Step::Fold(Fold { parts, axis, kind, pieces, rounds, pairs, body }), &full, 2.0);
        Ok(())
    }

    /// Half factors are widened as they are packed, but for pairs of bfloat16 that the CPU multiplies itself.
    pub(super) fn dot(&mut self, operands: &[Value]) -> Lowered<Planned> {
        let (scalar, wide) = (self.scalar_of(operands[0]), self.scalar_of(operands[2]));
        let depth = self.extents_of(operands[0]).columns.full;
        let kind = match wide {
            Scalar::F64 => ProductKind::Double,
            Scalar::I32 => ProductKind::Integer,
            _ => ProductKind::Single(match scalar {
                Scalar::BF16 if bfloats_at_once().is_some_and(|terms| depth.is_multiple_of(terms)) => {
                    Elements::BfloatPairs
                }
                Scalar::BF16 => Elements::Bfloats,
                Scalar::F16 => Elements::Halves,
                _ => Elements::Singles,
            }),
        };
        let factor_type = if kind.takes_halves() { scalar } else { wide };
        let [x, y] = [self.factor(operands[0], scalar, factor_type)?, self.factor(operands[1], scalar, factor_type)?];
        let (sum, extents) = (self.data(operands[2])?, self.extents_of(operands[2]));
        let dims = self.kernel.dims_of(operands[0]);
        let batch = dims[..dims.len() - 2].iter().product();
        let target = self.target(&extents, wide.size());
        // So many multiplications a nanosecond.
        let ns = depth as f64
            / match kind {
                ProductKind::Integer => 20.0,
                ProductKind::Single(Elements::BfloatPairs) => 80.0,
                ProductKind::Single(_) | ProductKind::Double => 40.0,
            };
        self.emit_tile(Step::Dot { target, kind, x, y, sum, batch, depth, extents, pieces: None }, &extents, ns);
        Ok(Planned::Data(plain(target.register)))
    }

    /// A factor of a product, whose rows may be another tile's columns.
    fn factor(&mut self, x: Value, scalar: Scalar, wide: Scalar) -> Lowered<Operand> {
        let (turned, extents) = match self.get(x)? {
            Planned::Data(Operand::Register { register, view: ViewKind::Transposed }) => {
                let Extents { rows, columns } = self.extents_of(x);
                (Some(plain(register)), Extents { rows: columns, columns: rows })
            }
            _ => (None, self.extents_of(x)),
        };
        let data = match turned {
            Some(data) => data,
            None => self.data(x)?,
        };
        let is_widened = scalar != wide && wide.is_float();
        let data = if is_widened { self.convert(data, extents, Cast::Float, scalar, wide)? } else { data };
        Ok(match (turned, data) {
            (Some(_), Operand::Register { register, .. }) => Operand::Register { register, view: ViewKind::Transposed },
            _ => data,
        })
    }
}

/// Copies so many rows of `bytes` that lie a number of rows apart.
///
/// # Safety
/// All of them lie in valid memory that does not overlap.
unsafe fn gather_rows(to: *mut u8, from: *const u8, bytes: usize, (count, apart): (usize, usize)) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            2 | 4 | 8 => copy_strided(to, bytes as isize, from, (apart * bytes) as isize, bytes, count),
            16 => gather_fixed::<16>(to, from, (count, apart)),
            32 => gather_fixed::<32>(to, from, (count, apart)),
            64 => gather_fixed::<64>(to, from, (count, apart)),
            _ => (0..count).for_each(|i| {
                from.add(i * apart * bytes).copy_to_nonoverlapping(to.add(i * bytes), bytes);
            }),
        }
    }
}

/// # Safety
/// As for [`gather_rows`].
unsafe fn gather_fixed<const BYTES: usize>(to: *mut u8, from: *const u8, (count, apart): (usize, usize)) {
    let (to, from) = (to.cast::<[u8; BYTES]>(), from.cast::<[u8; BYTES]>());
    for i in 0..count {
        // SAFETY: the caller's promise; bytes have no alignment.
        unsafe { to.add(i).write(from.add(i * apart).read()) };
    }
}
