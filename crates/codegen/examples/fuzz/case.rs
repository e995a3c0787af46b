//! One case: a text or a kernel, and how far it comes.

use crate::kernels;
use openmps_codegen::Target;
use openmps_tile::{Kernel, parse, verify};

/// What is tried.
pub enum Case {
    /// A text for the parser.
    Text(String),
    /// A kernel for the verifier: that of a text, changed as the bytes say.
    Kernel { text: String, bytes: Vec<u8> },
}

/// How far a case came.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub enum Reached {
    Refused,
    Parsed,
    Verified,
    Generated,
}

impl Case {
    /// Parses, verifies and generates, as far as that goes.
    pub fn run(&self) -> Reached {
        match self {
            Case::Text(text) => match parse(text) {
                Ok(kernel) => generate(&kernel),
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    Reached::Refused
                }
            },
            Case::Kernel { text, bytes } => generate(&kernels::changed(parse(text).ok(), bytes)),
        }
    }

    /// The case as a file: what to run again.
    pub fn file(&self) -> Vec<u8> {
        match self {
            Case::Text(text) => text.clone().into_bytes(),
            Case::Kernel { text, bytes } => format!("{text}\n// changed by {bytes:?}\n").into_bytes(),
        }
    }
}

/// Verifies a kernel and generates both texts in the smallest and the largest threadgroup; its errors and its text are made too.
fn generate(kernel: &Kernel) -> Reached {
    let verified = match verify(kernel) {
        Ok(verified) => verified,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Reached::Parsed;
        }
    };
    assert!(!kernel.to_string().is_empty());
    let mut reached = Reached::Verified;
    for target in [Target::metal(32), Target::cuda(1024)] {
        match openmps_codegen::compile(verified, &target) {
            Ok(source) => {
                assert!(source.text.contains(&source.entry), "{source:?}");
                reached = Reached::Generated;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    reached
}
