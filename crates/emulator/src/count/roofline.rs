//! The least time that a GPU of Apple's could need for what was counted. Nothing here was measured by openmps.

use super::Counters;

/// Fused multiplications and additions of a product of two matrices of 8 by 8, added to a third.
const OF_A_PRODUCT: u64 = 8 * 8 * 8;
/// Operations on floats of a core in a clock, fused or not.
const A_CLOCK: f64 = 128.0;
/// Clocks that a core's threadgroup memory is taken to need for one pass of 32 banks of 4 bytes. Apple publishes no figure.
const CLOCKS_A_PASS: f64 = 1.0;

/// A GPU by its published figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// Its name; the smallest of its generation that has all cores.
    pub name: &'static str,
    /// Cores.
    pub cores: u32,
    /// Clock in GHz: Apple publishes none. That of M1 was measured by others, the rest are approximate.
    pub clock: f64,
    /// Memory bandwidth in GB/s, as Apple's specifications say.
    pub bandwidth: f64,
}

/// The table: docs/emulator.md names the sources.
pub const GPUS: [Gpu; 5] = [
    Gpu { name: "M1", cores: 8, clock: 1.278, bandwidth: 68.25 },
    Gpu { name: "M2", cores: 10, clock: 1.398, bandwidth: 102.4 },
    Gpu { name: "M3", cores: 10, clock: 1.38, bandwidth: 102.4 },
    Gpu { name: "M4", cores: 10, clock: 1.47, bandwidth: 120.0 },
    Gpu { name: "M5", cores: 10, clock: 1.62, bandwidth: 153.6 },
];

impl Gpu {
    /// Floating-point operations a second: 128 fused multiplications and additions a core and clock.
    pub fn operations(&self) -> f64 {
        2.0 * A_CLOCK * self.clocks()
    }

    /// Clocks a second of all cores.
    fn clocks(&self) -> f64 {
        f64::from(self.cores) * self.clock * 1e9
    }

    /// Seconds of the slowest of three: the footprint at the memory's bandwidth, operations on floats and matrix products at the arithmetic's
    /// rate, the passes of threadgroup memory at one a core and clock. Operations on integers are not counted, so this is a lower bound.
    pub fn seconds(&self, counters: &Counters) -> f64 {
        let memory = counters.footprint as f64 / (self.bandwidth * 1e9);
        let operations = counters.matrix_multiplications * OF_A_PRODUCT + counters.float_operations;
        let arithmetic = operations as f64 / (A_CLOCK * self.clocks());
        let passes = (counters.threadgroup_loads.passes + counters.threadgroup_stores.passes) as f64;
        let banks = passes * CLOCKS_A_PASS / self.clocks();
        memory.max(arithmetic).max(banks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_part_decides() {
        let m1 = GPUS[0];
        let moved = Counters { footprint: 68_250_000, ..Counters::default() };
        assert!((m1.seconds(&moved) - 1e-3).abs() < 1e-9);
        let multiplied = Counters { matrix_multiplications: 1 << 22, ..moved };
        assert!((m1.seconds(&multiplied) - (1_u64 << 32) as f64 / m1.operations()).abs() < 1e-12);
        let computed = Counters { float_operations: 1 << 31, ..multiplied };
        assert!((m1.seconds(&computed) - 2.0 * m1.seconds(&multiplied)).abs() < 1e-12);
        assert!((m1.operations() - 2.617e12).abs() < 1e9);
    }
}
