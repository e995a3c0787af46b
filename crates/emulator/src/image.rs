//! A compiled library in memory. Each operating system thread uses an image of its own, so that the threadgroup memory which kernels declare
//! in their bodies, and the frame, are its own.

use crate::cache;
use crate::compile::{entry_name, extents_name};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::source::Kernel;
use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// Runs the threads that have not started, from `Frame::next` to `Frame::end`.
pub(crate) type Entry = unsafe extern "C" fn();

/// How clang's names of `openmps::memory_of` begin.
const MEMORY: &str = "_ZN7openmps9memory_of";

pub(crate) struct Image {
    loaded: Loaded,
    frame: *mut Frame,
    /// Difference between addresses in memory and in the file.
    bias: usize,
}

// SAFETY: the frame belongs to the image, and an image is used by one thread at a time.
unsafe impl Send for Image {}

/// What is known of a parameter once its type is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes of what it points to.
    pub size: usize,
    pub alignment: usize,
    /// False where it depends on a function constant that is false.
    pub present: bool,
}

/// All images of one library.
pub(crate) struct Images {
    path: PathBuf,
    free: Mutex<Vec<Image>>,
    /// Declared threadgroup memory: symbol name and range of addresses in the file.
    variables: Vec<(String, Range<usize>)>,
    frame_address: usize,
    /// The addresses in the file of all that is loaded.
    loaded: Range<usize>,
    /// Whether the text tells its accesses.
    pub(crate) counted: bool,
}

impl Images {
    pub(crate) fn load(path: PathBuf, counted: bool) -> Result<Images> {
        let wrong = |reason: String| Error::Toolchain { program: path.display().to_string(), reason };
        let bytes = std::fs::read(&path).map_err(|error| wrong(error.to_string()))?;
        let file = object::File::parse(&*bytes).map_err(|error| wrong(error.to_string()))?;
        let (mut variables, mut frame_address) = (Vec::new(), None);
        for symbol in file.symbols() {
            let (name, begin) = (symbol.name().unwrap_or_default(), symbol.address() as usize);
            if name == "openmps_frame" {
                frame_address = Some(begin);
            } else if name.starts_with("_ZZ") || name.starts_with(MEMORY) {
                variables.push((name.to_owned(), begin..begin + symbol.size() as usize));
            }
        }
        let frame_address = frame_address.ok_or_else(|| wrong("it has no frame".to_owned()))?;
        let end = file.segments().map(|segment| segment.address() + segment.size()).max().unwrap_or(0) as usize;
        let loaded = 0..end;
        Ok(Images { free: Mutex::new(Vec::new()), variables, frame_address, loaded, counted, path: path.clone() })
    }

    /// The memory of an image.
    pub(crate) fn span(&self, image: &Image) -> Range<u64> {
        image.memory(&self.loaded) as u64..image.memory(&(self.loaded.end..self.loaded.end)) as u64
    }

    /// An image that no one uses, or a new one. It is loaded from a copy: the loader gives the same memory for the same file.
    pub(crate) fn take(&self) -> Result<Image> {
        let free = self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
        if let Some(image) = free {
            return Ok(image);
        }
        let copy = self.path.with_extension(format!("{}.so", cache::unique()));
        let wrong =
            |error: std::io::Error| Error::Toolchain { program: copy.display().to_string(), reason: error.to_string() };
        std::fs::copy(&self.path, &copy).map_err(wrong)?;
        let image = self.open(&copy);
        // The loader has it mapped.
        let _ = std::fs::remove_file(&copy);
        image
    }

    pub(crate) fn give_back(&self, image: Image) {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(image);
    }

    fn open(&self, path: &Path) -> Result<Image> {
        load_mathematics();
        let wrong = |error: libloading::Error| Error::Toolchain {
            program: path.display().to_string(),
            reason: error.to_string(),
        };
        // SAFETY: the object was compiled from kernels; its initialisers, if any, compute constants.
        let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(wrong)?;
        // SAFETY: the prelude defines this variable with the layout of `Frame`.
        let frame = unsafe { loaded.get::<*mut Frame>(b"openmps_frame").map(|symbol| *symbol) }.map_err(wrong)?;
        Ok(Image { loaded, frame, bias: (frame as usize).wrapping_sub(self.frame_address) })
    }

    /// Ranges of the threadgroup memory that a kernel declares in its body: variables of its own by clang's name for them, and those that
    /// are known by the kernel's tag.
    pub(crate) fn declared(&self, kernel: &Kernel) -> Vec<Range<usize>> {
        let name = kernel.callee.trim_start_matches(':');
        let (own, tagged) = (format!("_ZZ{}{name}E", name.len()), format!("{}{}", kernel.tag.len(), kernel.tag));
        let of_kernel = |symbol: &str| match symbol.strip_prefix(MEMORY) {
            Some(rest) => rest.contains(&tagged),
            None => symbol.starts_with(&own),
        };
        self.variables.iter().filter(|(symbol, _)| of_kernel(symbol)).map(|(_, range)| range.clone()).collect()
    }
}

impl Image {
    pub(crate) fn frame(&self) -> *mut Frame {
        self.frame
    }

    /// Where a range of the file lies in this image.
    pub(crate) fn memory(&self, range: &Range<usize>) -> *mut u8 {
        self.bias.wrapping_add(range.start) as *mut u8
    }

    pub(crate) fn entry(&self, kernel: &str) -> Result<Entry> {
        // SAFETY: the entry was generated with this signature.
        unsafe { self.symbol::<Entry>(&entry_name(kernel)) }
    }

    /// The extents of as many parameters.
    pub(crate) fn extents(&self, kernel: &str, parameters: usize) -> Result<Vec<Extent>> {
        // SAFETY: the table was generated with three numbers a parameter.
        let table = unsafe { self.symbol::<*const u32>(&extents_name(kernel)) }?;
        // SAFETY: as above.
        let table = unsafe { std::slice::from_raw_parts(table, parameters * 3) };
        let extent = |of: &[u32]| Extent { size: of[0] as usize, alignment: of[1] as usize, present: of[2] != 0 };
        Ok(table.chunks_exact(3).map(extent).collect())
    }

    /// # Safety
    /// `T` is a pointer or function pointer of the symbol's type.
    unsafe fn symbol<T: Copy>(&self, name: &str) -> Result<T> {
        let wrong = |error: libloading::Error| Error::Toolchain { program: name.to_owned(), reason: error.to_string() };
        // SAFETY: the caller's promise.
        Ok(*unsafe { self.loaded.get::<T>(name.as_bytes()) }.map_err(wrong)?)
    }
}

/// Makes the functions of libm visible to kernels. Where they are part of the C library they are visible already.
fn load_mathematics() {
    static LOADED: OnceLock<Option<Loaded>> = OnceLock::new();
    // SAFETY: the C library's own part has no initialiser that could interfere.
    LOADED.get_or_init(|| unsafe { Loaded::open(Some("libm.so.6"), RTLD_NOW | RTLD_GLOBAL) }.ok());
}
