//! A look at what was linked: no library twice (macOS 26 refuses that), the oldest macOS, a signature, and nothing imported but from the
//! libraries that every macOS has.

use super::MINIMUM;
use crate::shell::Result;
use object::macho::{self, MachHeader64};
use object::read::macho::{LoadCommandVariant, MachHeader};
use object::{Endianness, NameOrOrdinal, Object};
use std::collections::BTreeMap;
use std::path::Path;

/// What may be loaded.
const LIBRARIES: &[&str] = &[
    "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
    "/System/Library/Frameworks/CoreGraphics.framework/Versions/A/CoreGraphics",
    "/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation",
    "/System/Library/Frameworks/IOKit.framework/Versions/A/IOKit",
    "/System/Library/Frameworks/Metal.framework/Versions/A/Metal",
    "/System/Library/Frameworks/MetalPerformanceShaders.framework/Versions/A/MetalPerformanceShaders",
    "/System/Library/Frameworks/MetalPerformanceShadersGraph.framework/Versions/A/MetalPerformanceShadersGraph",
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libiconv.2.dylib",
    "/usr/lib/libobjc.A.dylib",
];

/// What an extension module may want of the interpreter, which has it already when it loads the module.
const INTERPRETER: &[&str] = &["_Py", "__Py"];

/// Holds a file to all of that.
pub fn check(path: &Path) -> Result<()> {
    let data = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let found = look(&data).map_err(|error| format!("{name}: {error}"))?;
    println!(
        "    {name}: {} bytes, macOS {}, signed, {} imports:",
        data.len(),
        found.minimum,
        found.imports.values().sum::<usize>()
    );
    found.imports.iter().for_each(|(library, count)| println!("        {count:>4} from {library}"));
    Ok(())
}

struct Found {
    minimum: String,
    imports: BTreeMap<String, usize>,
}

fn look(data: &[u8]) -> Result<Found> {
    let failed = |error: object::Error| error.to_string();
    let header = MachHeader64::<Endianness>::parse(data, 0).map_err(failed)?;
    let endian = header.endian().map_err(failed)?;
    if header.cputype(endian) != macho::CPU_TYPE_ARM64 {
        return Err("it is not for Apple Silicon".to_string());
    }
    let (mut libraries, mut minimum, mut signed) = (Vec::new(), None, false);
    let mut commands = header.load_commands(endian, data, 0).map_err(failed)?;
    while let Some(command) = commands.next().map_err(failed)? {
        if command.cmd() == macho::LC_CODE_SIGNATURE {
            signed = true;
        }
        match command.variant().map_err(failed)? {
            LoadCommandVariant::Dylib(dylib) if command.cmd() != macho::LC_ID_DYLIB => {
                let name = command.string(endian, dylib.dylib.name).map_err(failed)?;
                libraries.push(String::from_utf8_lossy(name).into_owned());
            }
            LoadCommandVariant::BuildVersion(version, _) => {
                let bits = version.minos.get(endian).0;
                minimum = Some(format!("{}.{}", bits >> 16, bits >> 8 & 0xff));
            }
            _ => {}
        }
    }
    check_libraries(&libraries)?;
    if !signed {
        return Err("it has no signature, without which Apple Silicon runs nothing".to_string());
    }
    let minimum = minimum.ok_or("it does not say for which macOS it is")?;
    if minimum != MINIMUM {
        return Err(format!("it is for macOS {minimum}, where {MINIMUM} was meant"));
    }
    Ok(Found { minimum, imports: imports(data)? })
}

fn check_libraries(libraries: &[String]) -> Result<()> {
    for (index, library) in libraries.iter().enumerate() {
        if libraries[..index].contains(library) {
            return Err(format!("{library} is loaded twice"));
        }
        if !LIBRARIES.contains(&library.as_str()) {
            return Err(format!("{library} is not one of the libraries that it may load"));
        }
    }
    Ok(())
}

/// How many names come from each library. Those of no library are the interpreter's.
fn imports(data: &[u8]) -> Result<BTreeMap<String, usize>> {
    let file = object::File::parse(data).map_err(|error| error.to_string())?;
    let mut counts = BTreeMap::new();
    for import in file.imports().map_err(|error| error.to_string())? {
        let import = import.map_err(|error| error.to_string())?;
        let NameOrOrdinal::Name(name) = import.name() else { return Err("an import has no name".to_owned()) };
        let (library, name) = (String::from_utf8_lossy(import.library()), String::from_utf8_lossy(name));
        if library.is_empty() && !INTERPRETER.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(format!("{name} comes from no library, and is not the interpreter's"));
        }
        let library = if library.is_empty() { "the interpreter".to_owned() } else { library.into_owned() };
        *counts.entry(library).or_insert(0) += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_come_once_and_from_the_list() {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert!(check_libraries(&list(&[LIBRARIES[0], LIBRARIES[1]])).is_ok());
        assert!(check_libraries(&list(&[LIBRARIES[0], LIBRARIES[0]])).unwrap_err().contains("twice"));
        assert!(check_libraries(&list(&["/usr/local/lib/libomp.dylib"])).unwrap_err().contains("may load"));
    }

    #[test]
    fn what_is_no_mach_o_is_refused() {
        assert!(look(b"\x7fELF").is_err());
    }
}
