//! Compiled texts and their kernels.

use crate::compile;
use crate::error::{Error, Result};
use crate::image::{Entry, Extent, Image, Images};
use crate::options::Options;
use crate::prelude::PRIMITIVES;
use crate::preprocess::{SOURCE, preprocess};
use crate::rewrite::rewrite;
use crate::source::Kernel;
use std::ops::Range;
use std::sync::Arc;

/// A compiled text: Metal's MTLLibrary.
#[derive(Clone)]
pub struct Library {
    kernels: Arc<Vec<Kernel>>,
    /// Function constants without value: index and name.
    unset: Arc<Vec<(u32, String)>>,
    images: Arc<Images>,
}

/// A kernel of a library: Metal's MTLComputePipelineState.
#[derive(Clone)]
pub struct Function {
    pub(crate) kernel: Kernel,
    pub(crate) images: Arc<Images>,
    /// Of each parameter.
    pub(crate) extents: Vec<Extent>,
    /// Threadgroup memory declared in the body: addresses in the file.
    pub(crate) declared: Vec<Range<usize>>,
}

impl Library {
    /// Compiles Metal Shading Language text, or finds it compiled on disk.
    ///
    /// # Errors
    /// [`Error::NoCompiler`] without clang; [`Error::Compile`] with its diagnostics, whose lines are the text's;
    /// [`Error::AddressSpace`] and [`Error::Signature`] for what only Apple's compiler refuses or the emulator does not cover.
    pub fn compile(text: &str) -> Result<Library> {
        Library::compile_with(text, &Options::default())
    }

    /// Compiles text with values of function constants, folders to include from, and so on.
    ///
    /// # Errors
    /// Those of [`Library::compile`].
    pub fn compile_with(text: &str, options: &Options) -> Result<Library> {
        check_headers(text)?;
        let mut unit = rewrite(&preprocess(text, options)?, &options.constants)?;
        if !options.kernels.is_empty() {
            unit.kernels.retain(|kernel| options.kernels.contains(&kernel.name));
        }
        let object = compile::shared_object(&unit, options)?;
        let (kernels, unset) = (Arc::new(unit.kernels), Arc::new(unit.unset));
        Ok(Library { kernels, unset, images: Arc::new(Images::load(object, options.counted)?) })
    }

    /// Whether dispatches are counted: [`Options::counted`].
    pub fn is_counted(&self) -> bool {
        self.images.counted
    }

    /// Names of the kernels, in the text's order.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// A kernel by its name.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`] with the names there are; [`Error::UnsetConstants`] where the text has function constants without value.
    pub fn function(&self, name: &str) -> Result<Function> {
        let Some(kernel) = self.kernels.iter().find(|kernel| kernel.name == name) else {
            let known: Vec<&str> = self.function_names().collect();
            return Err(Error::UnknownFunction { name: name.to_owned(), known: known.join(", ") });
        };
        if !self.unset.is_empty() {
            let constants: Vec<String> = self.unset.iter().map(|(index, name)| format!("{index} ({name})")).collect();
            return Err(Error::UnsetConstants { kernel: name.to_owned(), constants: constants.join(", ") });
        }
        let image = self.images.take()?;
        let extents = image.extents(name, kernel.parameters.len());
        self.images.give_back(image);
        Ok(Function {
            kernel: kernel.clone(),
            images: self.images.clone(),
            extents: extents?,
            declared: self.images.declared(kernel),
        })
    }
}

/// The stand-in library is there whatever a text includes; Apple's performance primitives are only where they are asked for.
fn check_headers(text: &str) -> Result<()> {
    let line = text.lines().position(|line| line.contains("mpp::") || line.contains("namespace mpp"));
    match line {
        Some(line) if !text.contains(PRIMITIVES) => {
            let diagnostics = format!("{SOURCE}:{}: error: mpp is in <{PRIMITIVES}>, which is not included", line + 1);
            Err(Error::Compile { diagnostics })
        }
        _ => Ok(()),
    }
}

impl Function {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// Bytes of threadgroup memory that the kernel declares in its body: Metal's staticThreadgroupMemoryLength. What the compiler found
    /// unused does not count.
    pub fn declared_threadgroup_memory(&self) -> usize {
        self.declared.iter().map(|range| range.len().next_multiple_of(16)).sum()
    }

    pub(crate) fn entry(&self, image: &Image) -> Result<Entry> {
        image.entry(&self.kernel.name)
    }
}
