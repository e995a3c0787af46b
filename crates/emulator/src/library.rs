//! Compiled texts and their kernels.

use crate::compile;
use crate::error::{Error, Result};
use crate::image::{Entry, Image, Images};
use crate::source::{self, Kernel};
use std::ops::Range;
use std::sync::Arc;

/// A compiled text: Metal's MTLLibrary.
#[derive(Clone)]
pub struct Library {
    kernels: Arc<Vec<Kernel>>,
    images: Arc<Images>,
}

/// A kernel of a library: Metal's MTLComputePipelineState.
#[derive(Clone)]
pub struct Function {
    pub(crate) kernel: Kernel,
    pub(crate) images: Arc<Images>,
    /// Size and alignment of what each parameter points to.
    pub(crate) sizes: Vec<(usize, usize)>,
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
        let kernels = source::kernels(text)?;
        let object = compile::shared_object(text, &kernels)?;
        Ok(Library { kernels: Arc::new(kernels), images: Arc::new(Images::load(object)?) })
    }

    /// Names of the kernels, in the text's order.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// A kernel by its name.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`] with the names there are.
    pub fn function(&self, name: &str) -> Result<Function> {
        let Some(kernel) = self.kernels.iter().find(|kernel| kernel.name == name) else {
            let known: Vec<&str> = self.function_names().collect();
            return Err(Error::UnknownFunction { name: name.to_owned(), known: known.join(", ") });
        };
        let image = self.images.take()?;
        let sizes = image.sizes(name, kernel.parameters.len());
        self.images.give_back(image);
        Ok(Function {
            kernel: kernel.clone(),
            images: self.images.clone(),
            sizes: sizes?,
            declared: self.images.declared(name),
        })
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
