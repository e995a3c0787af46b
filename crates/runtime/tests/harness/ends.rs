//! Work that must end.

/// Runs `work` on a thread, which must end in time.
pub fn ends(what: &str, work: impl FnOnce() + Send + 'static) {
    let (says, hears) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        says.send(()).expect("the test listens");
    });
    match hears.recv_timeout(std::time::Duration::from_secs(20)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        _ => thread.join().unwrap_or_else(|_| panic!("{what}: panicked")),
    }
}
