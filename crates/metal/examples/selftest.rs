//! The first thing to run on a Mac: lists the GPUs, runs a kernel, a product of MPS and a graph of MPSGraph on each, and says what came out.
//! Ends with an error where there is no device or a result is wrong. `cargo xtask mac-selftest` runs it before everything else.

#[cfg(all(feature = "apple", target_vendor = "apple"))]
#[path = "selftest/apple.rs"]
mod apple;

#[cfg(all(feature = "apple", target_vendor = "apple"))]
fn main() -> std::process::ExitCode {
    apple::run()
}

#[cfg(not(all(feature = "apple", target_vendor = "apple")))]
fn main() -> std::process::ExitCode {
    eprintln!("this needs macOS: there is no Metal here");
    std::process::ExitCode::FAILURE
}
