//! `OPENMPS_DUMP=folder`: each kernel as files: NAME.ttir where it came from Triton, NAME.tile, NAME.metal, NAME.cu, and NAME.m5.metal where it is
//! written otherwise for GPUs with tensor operations.

use crate::stage;
use openmps_codegen::{Target, compile, threads_for};
use openmps_tile::Verified;
use std::fs;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;

/// Longer names are cut; file systems take 255 bytes.
const LONGEST_NAME: usize = 128;

/// What the text for tensor operations ends with; a kernel without products has none.
const OF_M5: &str = "m5.metal";

/// Writes a kernel's files where the environment asks for it. A folder that cannot be written is a warning: the kernel still runs.
pub(crate) fn kernel(kernel: Verified<'_>, ttir: Option<&str>) {
    let Some(folder) = openmps_settings::DUMP.get() else { return };
    if let Err(error) = write(&folder, kernel, ttir) {
        tracing::warn!("OPENMPS_DUMP={}: {error}", folder.display());
    }
}

fn write(folder: &Path, kernel: Verified<'_>, ttir: Option<&str>) -> Result<()> {
    fs::create_dir_all(folder)?;
    let (name, tile) = (&kernel.kernel().name, kernel.kernel().to_string());
    let Some(stem) = claim(folder, name, &tile)? else { return Ok(()) };
    if let Some(ttir) = ttir {
        fs::write(folder.join(format!("{stem}.ttir")), ttir)?;
    }
    let threads = threads_for(kernel.kernel());
    let mut refused = false;
    for (extension, target) in [
        ("metal", Target::metal(threads)),
        (OF_M5, Target::metal_with_tensor_operations(threads)),
        ("cu", Target::cuda(threads)),
    ] {
        let text = match stage::timed("generate", name, || compile(kernel, &target)) {
            Ok(source) if extension == OF_M5 && !source.tensors => continue,
            // What says why is NAME.metal already.
            Err(_) if extension == OF_M5 && refused => continue,
            Ok(source) => source.text,
            Err(error) => {
                refused = true;
                format!("// {}\n", error.to_string().replace('\n', " "))
            }
        };
        fs::write(folder.join(format!("{stem}.{extension}")), text)?;
    }
    Ok(())
}

/// Writes STEM.tile under a name that no other kernel has: NAME, NAME-2, .. None where this very kernel is there.
fn claim(folder: &Path, name: &str, tile: &str) -> Result<Option<String>> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(LONGEST_NAME).collect();
    for number in 1_u32.. {
        let stem = if number == 1 { name.clone() } else { format!("{name}-{number}") };
        let path = folder.join(format!("{stem}.tile"));
        match fs::File::create_new(&path) {
            Ok(mut file) => return file.write_all(tile.as_bytes()).map(|()| Some(stem)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && fs::read(&path)? == tile.as_bytes() => {
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::other(format!("no name is left for {name}")))
}
