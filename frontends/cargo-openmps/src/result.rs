//! What every part of the program gives.

/// A result; errors are sentences for the user.
pub type Result<T> = std::result::Result<T, String>;
