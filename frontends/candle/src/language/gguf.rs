//! A GGUF file: its settings, and its tensors where they lie in it.

use super::QuantizedWeight;
use super::gguf_head::check_alignment;
use super::weight::Bytes;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{Device, Error, Result, Tensor};
use memmap2::Mmap;
use openmps::operators::operators::quantized::BlockFormat;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

/// A model's file, in memory or mapped. Its tensors are read where they lie; nothing of it is copied.
///
/// ```no_run
/// let file = openmps_candle::Gguf::open("model.gguf")?;
/// println!("{}", file.text("general.architecture")?);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Gguf {
    content: Content,
    file: Bytes,
}

impl Gguf {
    /// Reads a file. [`Gguf::map`] takes no memory for what is not used, and is ready at once.
    ///
    /// ```
    /// assert!(openmps_candle::Gguf::open("no such file").unwrap_err().to_string().contains("no such file"));
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| Error::msg(format!("{}: {error}", path.display())))?;
        Gguf::of(Bytes::Owned(Arc::new(bytes)), path)
    }

    /// Maps a file: what is read of it comes from the disk when it is first used.
    ///
    /// # Safety
    /// Nobody writes to the file, or makes it shorter, while this or a weight of it is there.
    ///
    /// ```no_run
    /// // SAFETY: the file belongs to this program alone.
    /// let file = unsafe { openmps_candle::Gguf::map("model.gguf")? };
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Gguf> {
        let path = path.as_ref();
        let file = std::fs::File::open(path).map_err(|error| Error::msg(format!("{}: {error}", path.display())))?;
        // SAFETY: the caller's promise.
        let file = unsafe { Mmap::map(&file)? };
        Gguf::of(Bytes::Mapped(Arc::new(file)), path)
    }

    fn of(file: Bytes, path: &Path) -> Result<Gguf> {
        check_alignment(file.get()).map_err(|error| error.with_path(path))?;
        let content = Content::read(&mut Cursor::new(file.get())).map_err(|error| error.with_path(path))?;
        Ok(Gguf { content, file })
    }

    /// What candle-core read of the head.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// println!("{} tensors", file.content().tensor_infos.len());
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn content(&self) -> &Content {
        &self.content
    }

    fn value(&self, name: &str) -> Result<&Value> {
        self.content.metadata.get(name).ok_or_else(|| Error::msg(format!("the GGUF file has no setting {name}")))
    }

    /// A setting that need not be there, read so. One of another type is an error.
    pub(super) fn optional<'a, T>(
        &'a self,
        name: &str,
        read: impl Fn(&'a Gguf, &str) -> Result<T>,
    ) -> Result<Option<T>> {
        self.content.metadata.contains_key(name).then(|| read(self, name)).transpose()
    }

    /// A setting that is a whole number.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// println!("{} layers", file.number("llama.block_count")?);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn number(&self, name: &str) -> Result<usize> {
        Ok(self.value(name)?.to_u64().map_err(|error| of_setting(name, &error))? as usize)
    }

    /// A setting that is a float.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// println!("{}", file.float("llama.rope.freq_base")?);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn float(&self, name: &str) -> Result<f64> {
        Ok(f64::from(self.value(name)?.to_f32().map_err(|error| of_setting(name, &error))?))
    }

    /// A setting that is a text.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// println!("{}", file.text("general.architecture")?);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn text(&self, name: &str) -> Result<&str> {
        Ok(self.value(name)?.to_string().map_err(|error| of_setting(name, &error))?)
    }

    /// A setting that is true or false.
    pub(super) fn truth(&self, name: &str) -> Result<bool> {
        self.value(name)?.to_bool().map_err(|error| of_setting(name, &error))
    }

    /// A setting that is a list.
    pub(super) fn list<T>(&self, name: &str, read: impl Fn(&Value) -> Result<T>) -> Result<Vec<T>> {
        let values = self.value(name)?.to_vec().map_err(|error| of_setting(name, &error))?;
        values.iter().map(|value| read(value).map_err(|error| of_setting(name, &error))).collect()
    }

    /// A weight in blocks, where it lies in the file.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// println!("{:?}", file.weight("token_embd.weight")?.dims());
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn weight(&self, name: &str) -> Result<QuantizedWeight> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| no_tensor(name))?;
        let format = match info.ggml_dtype {
            GgmlDType::Q4_0 => BlockFormat::Q4_0,
            GgmlDType::Q4_1 => BlockFormat::Q4_1,
            GgmlDType::Q8_0 => BlockFormat::Q8_0,
            GgmlDType::Q4K => BlockFormat::Q4K,
            GgmlDType::Q5K => BlockFormat::Q5K,
            GgmlDType::Q6K => BlockFormat::Q6K,
            other => {
                let known = BlockFormat::ALL.map(BlockFormat::name).join(", ");
                candle_core::bail!("{name} is of type {other:?}, expected one of {known}")
            }
        };
        let offset = self.content.tensor_data_offset.saturating_add(info.offset) as usize;
        let (rows, columns) = info.shape.dims2()?;
        QuantizedWeight::at(format, self.file.clone(), offset, [rows, columns])
    }

    /// A small tensor as float32, such as the weight of a norm.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// println!("{}", file.tensor("output_norm.weight")?);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let info = self.content.tensor_infos.get(name).ok_or_else(|| no_tensor(name))?;
        let mut bytes = Cursor::new(self.file.get());
        info.read(&mut bytes, self.content.tensor_data_offset, &Device::Cpu)?.dequantize(&Device::Cpu)
    }

    /// Whether there is a tensor of this name.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// println!("{}", file.has("output.weight"));
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn has(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }
}

fn no_tensor(name: &str) -> Error {
    Error::msg(format!("the GGUF file has no tensor {name}"))
}

fn of_setting(name: &str, error: &Error) -> Error {
    Error::msg(format!("{name} of the GGUF file: {error}"))
}
