//! Bytes that no rank would send: neither a panic nor a hang. `cargo xtask fuzz SECONDS --subject conversations` does the same for longer.

#[path = "support/hostile.rs"]
mod hostile;

#[test]
fn changed_conversations_end_in_results_or_errors() {
    let outcomes: Vec<_> = (0..24).map(hostile::round).collect();
    let (fine, failed): (usize, usize) =
        (outcomes.iter().map(|it| it.fine).sum(), outcomes.iter().map(|it| it.failed).sum());
    // Both happen, or nothing was tried.
    assert!(fine > 0 && failed > 0, "{fine} ranks succeeded, {failed} failed");
}
