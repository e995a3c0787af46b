//! The high watermark that `OPENMPS_MEMORY_LIMIT` sets: `8G`, `512M`, `1.5GiB`, or plain bytes.

/// The limit that the environment asks for, or `otherwise` (the machine's memory).
pub(crate) fn from_environment(otherwise: usize) -> usize {
    let Ok(text) = std::env::var("OPENMPS_MEMORY_LIMIT") else { return otherwise };
    parse(&text).unwrap_or_else(|| {
        tracing::warn!("OPENMPS_MEMORY_LIMIT={text:?} is no size such as 8G; the limit is {otherwise} bytes");
        otherwise
    })
}

/// Reads a size in bytes: a number with an optional unit K, M, G or T (powers of 1024).
pub(crate) fn parse(text: &str) -> Option<usize> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    (bytes >= 1.0 && bytes < usize::MAX as f64).then_some(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_read_and_nonsense_is_refused() {
        assert_eq!(parse("8G"), Some(8 << 30));
        assert_eq!(parse(" 512 MiB "), Some(512 << 20));
        assert_eq!(parse("1.5k"), Some(1536));
        assert_eq!(parse("4096"), Some(4096));
        for nonsense in ["", "G", "0", "-1G", "8X", "1e400", "1..2G", "999999999T"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
    }
}
