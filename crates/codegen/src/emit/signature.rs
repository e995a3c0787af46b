//! What stands around the body: helpers, the structure of numbers, the function's parameters, threadgroup memory.

use super::{Emitter, Result};
use crate::dialect::Dialect;
use crate::helpers;
use crate::{Parameter, Source, names};
use openmps_tile::{Element, Scalar, Type};
use std::fmt::Write;

/// The index, offset or size of each parameter, and the bytes of all numbers.
fn places(types: &[&Type]) -> (Vec<Parameter>, usize) {
    let (mut buffers, mut end) = (0, 0_usize);
    let place = |ty: &&Type| match ty.element {
        Element::Pointer(_) => {
            buffers += 1;
            Parameter::Buffer(buffers - 1)
        }
        Element::Scalar(scalar) => {
            let (offset, size) = (end.next_multiple_of(scalar.size()), scalar.size());
            end = offset + size;
            Parameter::Number { offset, size }
        }
    };
    let parameters: Vec<Parameter> = types.iter().map(place).collect();
    // The structure is as long as its alignment says, which is that of its largest member.
    let align = types.iter().filter_map(|ty| ty.number()).map(Scalar::size).max().unwrap_or(1);
    (parameters, end.next_multiple_of(align))
}

impl Emitter<'_> {
    /// Makes the numbers among the parameters known, as they are held in registers.
    pub(super) fn scalars_of_parameters(&mut self) {
        let dialect = self.target.dialect;
        for (parameter, name) in self.kernel.parameters.iter().zip(self.parameters.clone()) {
            let text = match self.kernel.type_of(parameter.value).number() {
                None => name,
                Some(scalar) => {
                    let place = if dialect == Dialect::Metal { format!("numbers.{name}") } else { name };
                    match scalar {
                        Scalar::I1 => format!("({place} != 0)"),
                        scalar => dialect.widen(scalar, &place),
                    }
                }
            };
            self.scalars.insert(parameter.value, text);
        }
    }

    /// The whole text.
    pub(super) fn source(self) -> Result<Source> {
        let dialect = self.target.dialect;
        let entry = names::entry(&self.kernel.name);
        let types: Vec<&Type> = self.kernel.parameters.iter().map(|parameter| self.type_of(parameter.value)).collect();
        let (parameters, numbers_size) = places(&types);
        let buffers = parameters.iter().filter(|parameter| matches!(parameter, Parameter::Buffer(_))).count();
        let bound = buffers + usize::from(numbers_size > 0 && dialect == Dialect::Metal);
        let limits = &self.target.limits;
        if bound > limits.buffers {
            return Err(self.limit("buffers", bound, limits.buffers));
        }
        if numbers_size > limits.numbers {
            return Err(self.limit("bytes of numbers", numbers_size, limits.numbers));
        }
        let mut text = dialect.preamble(self.tensors).to_owned();
        for helper in helpers::with_dependencies(&self.helpers) {
            let _ = write!(text, "\n{}", helper.text(dialect));
        }
        text.push('\n');
        match dialect {
            Dialect::Metal => self.metal_head(&mut text, &entry, &types, &parameters, numbers_size),
            Dialect::Cuda => self.cuda_head(&mut text, &entry, &types),
        }
        if self.scratch > 0 {
            let words = self.scratch.div_ceil(16);
            let _ = writeln!(text, "  {}uint4 scratch[{words}];", self.keywords().threadgroup);
        }
        text.push_str(&self.text);
        text.push_str("}\n");
        let threadgroup_memory = self.scratch.next_multiple_of(16);
        let threads = self.target.threads;
        let (coherent, tensors) = (self.coherent, self.tensors);
        Ok(Source { text, entry, threads, threadgroup_memory, parameters, numbers_size, coherent, tensors })
    }

    fn metal_head(
        &self,
        text: &mut String,
        entry: &str,
        types: &[&Type],
        parameters: &[Parameter],
        numbers_size: usize,
    ) {
        let dialect = self.target.dialect;
        let named = || self.parameters.iter().zip(types).zip(parameters);
        if numbers_size > 0 {
            let _ = writeln!(text, "struct {entry}_numbers {{");
            for ((name, ty), _) in named() {
                if let Some(scalar) = ty.number() {
                    let _ = writeln!(text, "  {} {name};", dialect.storage(scalar));
                }
            }
            text.push_str("};\n\n");
        }
        let _ = writeln!(text, "kernel void {entry}(");
        let mut buffers = 0;
        for ((name, ty), parameter) in named() {
            if let (Parameter::Buffer(index), Some(target)) = (parameter, ty.target()) {
                let _ = writeln!(text, "    {}{}* {name} [[buffer({index})]],", self.device(), dialect.storage(target));
                buffers += 1;
            }
        }
        if numbers_size > 0 {
            let _ = writeln!(text, "    constant {entry}_numbers& numbers [[buffer({buffers})]],");
        }
        text.push_str("    uint3 program [[threadgroup_position_in_grid]],\n");
        text.push_str("    uint3 programs [[threadgroups_per_grid]],\n");
        text.push_str("    uint thread_index [[thread_index_in_threadgroup]]) {\n");
    }

    fn cuda_head(&self, text: &mut String, entry: &str, types: &[&Type]) {
        let dialect = self.target.dialect;
        let parameter = |(name, ty): (&String, &&Type)| match ty.element {
            Element::Pointer(target) => format!("{}* {name}", dialect.storage(target)),
            Element::Scalar(scalar) => format!("{} {name}", dialect.storage(scalar)),
        };
        let list: Vec<String> = self.parameters.iter().zip(types).map(parameter).collect();
        let bounds = match (self.target.threads, self.target.residents) {
            (threads, 1) => threads.to_string(),
            (threads, residents) => format!("{threads}, {residents}"),
        };
        let _ =
            writeln!(text, "extern \"C\" __global__ void __launch_bounds__({bounds}) {entry}({}) {{", list.join(", "));
        text.push_str("  const uint thread_index = threadIdx.x;\n");
    }
}
