//! Which of Apple's ways computes an operator: own kernels, MPS or MPSGraph. One table, read from the top; the first row that fits decides,
//! and own kernels compute whatever no row takes. `OPENMPS_METAL_ENGINE=kernels|mps|mpsgraph` forces one wherever it can.
//!
//! The figures behind the table are other people's, measured on Macs: about 1 us for a dispatch of an own kernel, 15 to 20 us for an MPSGraph
//! run. They are to be measured again on a Mac; only this file changes then.

use crate::interface::Properties;
use openmps_tile::DType;

/// What computes an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Kernels of openmps, in the Metal Shading Language.
    Kernels,
    /// Metal Performance Shaders.
    Mps,
    /// MPSGraph.
    MpsGraph,
}

impl Engine {
    /// The engine of a name in `OPENMPS_METAL_ENGINE`.
    pub fn named(name: &str) -> Option<Engine> {
        match name.trim() {
            "kernels" => Some(Engine::Kernels),
            "mps" => Some(Engine::Mps),
            "mpsgraph" => Some(Engine::MpsGraph),
            _ => None,
        }
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Kernels => "kernels",
            Engine::Mps => "mps",
            Engine::MpsGraph => "mpsgraph",
        }
    }

    /// The one that the environment forces.
    pub fn forced() -> Option<Engine> {
        openmps_settings::METAL_ENGINE.get().and_then(Engine::named)
    }
}

/// A family of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Family {
    Elementwise,
    Reduction,
    Softmax,
    Normalisation,
    MatrixProduct,
    MatrixVector,
    Convolution,
    DepthwiseConvolution,
    ConvolutionTranspose,
    Pooling,
    Resize,
    Gather,
    Scatter,
    Attention,
    TopK,
    Random,
    Decomposition,
}

/// One use of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The family.
    pub family: Family,
    /// The operands' element type.
    pub dtype: DType,
    /// Multiplications and additions, or elements touched where there are none.
    pub work: u64,
    /// The innermost length: columns of a matrix, the length of a row.
    pub columns: usize,
    /// Whether every operand begins at its buffer's first byte.
    pub at_begin: bool,
}

/// One row: the operators that an engine takes.
struct Row {
    family: Family,
    dtypes: &'static [DType],
    /// From this much work on.
    work: u64,
    /// Up to this many columns.
    columns: usize,
    engine: Engine,
}

const SINGLE: &[DType] = &[DType::F32];
const HALF_SINGLE: &[DType] = &[DType::F32, DType::F16];
const ALL_FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
const ANY: usize = usize::MAX;

const fn row(family: Family, dtypes: &'static [DType], work: u64, columns: usize, engine: Engine) -> Row {
    Row { family, dtypes, work, columns, engine }
}

/// The table. Elementwise, reductions, normalisation, gather and scatter have no row: a dispatch of an own kernel costs a tenth of an MPSGraph
/// run, and the kernel is bound by memory all the same.
const TABLE: &[Row] = &[
    row(Family::MatrixProduct, HALF_SINGLE, 1 << 16, ANY, Engine::Mps),
    row(Family::MatrixProduct, ALL_FLOATS, 1 << 22, ANY, Engine::MpsGraph),
    row(Family::MatrixVector, HALF_SINGLE, 1 << 22, ANY, Engine::Mps),
    row(Family::Softmax, HALF_SINGLE, 1 << 20, 4096, Engine::Mps),
    row(Family::Convolution, ALL_FLOATS, 1 << 20, ANY, Engine::MpsGraph),
    row(Family::DepthwiseConvolution, ALL_FLOATS, 1 << 22, ANY, Engine::MpsGraph),
    row(Family::ConvolutionTranspose, ALL_FLOATS, 1 << 20, ANY, Engine::MpsGraph),
    row(Family::Attention, ALL_FLOATS, 1 << 20, ANY, Engine::MpsGraph),
    row(Family::Decomposition, SINGLE, 1 << 15, ANY, Engine::Mps),
];

/// What each engine can compute at all.
const ABLE: &[(Engine, &[Family], &[DType])] = &[
    (Engine::Mps, &[Family::MatrixProduct, Family::MatrixVector, Family::Softmax, Family::TopK], HALF_SINGLE),
    (Engine::Mps, &[Family::Decomposition, Family::Random], SINGLE),
    (
        Engine::MpsGraph,
        &[
            Family::Elementwise,
            Family::Reduction,
            Family::Softmax,
            Family::Normalisation,
            Family::MatrixProduct,
            Family::MatrixVector,
            Family::Convolution,
            Family::DepthwiseConvolution,
            Family::ConvolutionTranspose,
            Family::Pooling,
            Family::Resize,
            Family::Gather,
            Family::Scatter,
            Family::Attention,
        ],
        ALL_FLOATS,
    ),
];

/// The engine for one use of an operator on a device; `forced` wins where that engine can.
pub fn choose(question: &Question, device: &Properties, forced: Option<Engine>) -> Engine {
    match forced {
        Some(engine) if able(engine, question, device) => engine,
        Some(_) => Engine::Kernels,
        None => {
            let fits = |row: &&Row| {
                row.family == question.family
                    && row.dtypes.contains(&question.dtype)
                    && question.work >= row.work
                    && question.columns <= row.columns
                    && able(row.engine, question, device)
            };
            TABLE.iter().find(fits).map_or(Engine::Kernels, |row| row.engine)
        }
    }
}

fn able(engine: Engine, question: &Question, device: &Properties) -> bool {
    if engine == Engine::Kernels {
        return true;
    }
    let listed = |(of, families, dtypes): &(Engine, &[Family], &[DType])| {
        *of == engine && families.contains(&question.family) && dtypes.contains(&question.dtype)
    };
    let there = match engine {
        Engine::MpsGraph => {
            (question.at_begin || device.tensor_offsets)
                && (question.family != Family::Attention || device.attention)
                && (question.dtype != DType::BF16 || device.bfloat)
        }
        _ => true,
    };
    device.mps && there && ABLE.iter().any(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder;

    fn question(family: Family, dtype: DType, work: u64) -> Question {
        Question { family, dtype, work, columns: 512, at_begin: true }
    }

    fn chosen(question: &Question) -> Engine {
        choose(question, &recorder::properties(), None)
    }

    #[test]
    fn the_table_decides_by_shape_and_type() {
        assert_eq!(chosen(&question(Family::Elementwise, DType::F32, 1 << 30)), Engine::Kernels);
        assert_eq!(chosen(&question(Family::MatrixProduct, DType::F32, 1 << 30)), Engine::Mps);
        assert_eq!(chosen(&question(Family::MatrixProduct, DType::F32, 100)), Engine::Kernels);
        assert_eq!(chosen(&question(Family::MatrixProduct, DType::BF16, 1 << 30)), Engine::MpsGraph);
        assert_eq!(chosen(&question(Family::MatrixProduct, DType::I32, 1 << 30)), Engine::Kernels);
        assert_eq!(chosen(&question(Family::Convolution, DType::F16, 1 << 30)), Engine::MpsGraph);
        let wide = Question { columns: 1 << 16, ..question(Family::Softmax, DType::F32, 1 << 30) };
        assert_eq!(chosen(&wide), Engine::Kernels);
    }

    #[test]
    fn what_a_device_lacks_is_not_chosen() {
        let attention = question(Family::Attention, DType::F16, 1 << 30);
        assert_eq!(chosen(&attention), Engine::MpsGraph);
        let old = Properties { attention: false, tensor_offsets: false, bfloat: false, ..recorder::properties() };
        assert_eq!(choose(&attention, &old, None), Engine::Kernels);
        let inside = Question { at_begin: false, ..question(Family::Convolution, DType::F32, 1 << 30) };
        assert_eq!(choose(&inside, &old, None), Engine::Kernels);
        assert_eq!(chosen(&inside), Engine::MpsGraph);
        let bfloat = question(Family::Convolution, DType::BF16, 1 << 30);
        assert_eq!(choose(&bfloat, &old, None), Engine::Kernels);
        let without = Properties { mps: false, ..recorder::properties() };
        assert_eq!(choose(&question(Family::MatrixProduct, DType::F32, 1 << 30), &without, None), Engine::Kernels);
    }

    #[test]
    fn an_engine_is_forced_where_it_can() {
        let add = question(Family::Elementwise, DType::F32, 4);
        let device = recorder::properties();
        assert_eq!(choose(&add, &device, Some(Engine::MpsGraph)), Engine::MpsGraph);
        assert_eq!(choose(&add, &device, Some(Engine::Mps)), Engine::Kernels);
        let product = question(Family::MatrixProduct, DType::F32, 1 << 30);
        assert_eq!(choose(&product, &device, Some(Engine::Kernels)), Engine::Kernels);
        assert_eq!(Engine::named(" mpsgraph "), Some(Engine::MpsGraph));
        assert_eq!(Engine::named("cuda"), None);
    }

    #[test]
    fn every_row_is_of_an_engine_that_can() {
        for row in TABLE {
            for &dtype in row.dtypes {
                let question = Question { family: row.family, dtype, work: row.work, columns: 1, at_begin: true };
                assert!(able(row.engine, &question, &recorder::properties()), "{:?} {dtype}", row.family);
            }
        }
    }
}
