//! Lowers networks of exchanges between the elements of a tile.

use super::{Lowered, Lowering, refuse};
use crate::plan::call::Places;
use crate::plan::cube::{Exchange, Network};
use crate::plan::operand::Operand;
use crate::plan::value::Planned;
use crate::vector::exchange::{ExchangeFunction, OrderFunction, Ordering, Parity, exchange, order};
use openmps_tile::interpret::element;
use openmps_tile::kernel::Number;
use openmps_tile::{Cast, Value};
use std::sync::Arc;

/// A step with all that it needs.
enum Step {
    Places(ExchangeFunction, usize),
    Order(OrderFunction, Ordering),
}

impl Lowering<'_> {
    /// A tile of 0 and 1 that is known.
    pub(super) fn parity(&mut self, parity: Parity, result: Value) -> Lowered<Planned> {
        let (count, scalar) = (self.extents_of(result).len(), self.scalar_of(result));
        let one = element::constant(if scalar.is_float() { Number::Float(1.0) } else { Number::Integer(1) }, scalar);
        let bits = |i: usize| if parity.holds(i) { one } else { 0 };
        let elements: Vec<u8> =
            (0..count).flat_map(|i| bits(i).to_le_bytes().into_iter().take(scalar.size())).collect();
        let work = Arc::new(move |places: &Places| {
            // SAFETY: the result has as many bytes.
            unsafe { elements.as_ptr().copy_to_nonoverlapping(places.writes[0], elements.len()) };
            Ok(())
        });
        Ok(self.emit_call("parity", Vec::new(), result, 0.02, work))
    }

    /// The first step takes the source's elements to the result, where the others work.
    pub(super) fn network(&mut self, network: &Network, result: Value) -> Lowered<Planned> {
        let (count, size) = (self.extents_of(result).len(), self.element_size(result));
        let source = self.dense(network.source)?;
        if let Operand::Uniform(_) = source {
            // Equal elements may be anywhere.
            return self.cast(Cast::Bits, network.source, result);
        }
        let mut steps = Vec::new();
        for step in &network.steps {
            steps.push(match *step {
                Exchange::Places(bits) => Step::Places(exchange(size), bits),
                Exchange::Order { bit, keeps_greater, compare, scalar } => {
                    let Some(function) = order(compare, scalar) else { return refuse(compare.text()) };
                    Step::Order(function, Ordering::new(bit, keeps_greater, size))
                }
            });
        }
        let ns = 0.05 + 0.2 * steps.len() as f64;
        let work = Arc::new(move |places: &Places| {
            let (mut from, to) = (places.reads[0], places.writes[0]);
            // SAFETY: both tiles have `count` elements, a power of two above every bit.
            unsafe {
                if steps.is_empty() {
                    from.copy_to_nonoverlapping(to, count * size);
                }
                for step in &steps {
                    match step {
                        Step::Places(function, bits) => function(to, from, count, *bits),
                        Step::Order(function, ordering) => function(to, from, count, ordering),
                    }
                    from = to.cast_const();
                }
            }
            Ok(())
        });
        Ok(self.emit_call("exchange", vec![source], result, ns, work))
    }
}
