//! A thread that looks at the case at hand: one that takes too long or too much memory is written to a file, and the process ends.

use crate::memory;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest that one case may take, on a machine that others use too.
const LONGEST: Duration = Duration::from_secs(20);
/// The most memory that one case may take.
const MOST: usize = 1 << 30;

/// The case at hand and the slowest so far.
pub struct Watch {
    state: Arc<Mutex<State>>,
    folder: PathBuf,
    ending: &'static str,
}

#[derive(Default)]
struct State {
    /// As a file, with its beginning and the memory in use then.
    case: Option<(Vec<u8>, Instant, usize)>,
    slowest: Duration,
}

impl Watch {
    /// Begins to look; findings go to the folder, into files with this ending.
    pub fn start(folder: &Path, ending: &'static str) -> Watch {
        let watch = Watch { state: Arc::default(), folder: folder.to_path_buf(), ending };
        let (state, folder) = (watch.state.clone(), watch.folder.clone());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(20));
                let found = match &lock(&state).case {
                    Some((case, begin, _)) if begin.elapsed() > LONGEST => Some((case.clone(), "hang")),
                    Some((case, _, before)) if memory::in_use() > before + MOST => Some((case.clone(), "memory")),
                    _ => None,
                };
                if let Some((case, what)) = found {
                    write(&folder, &case, what, ending);
                    std::process::exit(1);
                }
            }
        });
        watch
    }

    /// A case begins, which is this file.
    pub fn begin(&self, file: Vec<u8>) {
        lock(&self.state).case = Some((file, Instant::now(), memory::in_use()));
    }

    /// It has ended.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        if let Some((_, begin, _)) = state.case.take() {
            state.slowest = state.slowest.max(begin.elapsed());
        }
    }

    /// The longest that a case took.
    pub fn slowest(&self) -> Duration {
        lock(&self.state).slowest
    }

    /// Writes a finding.
    pub fn keep(&self, file: &[u8], what: &str) {
        write(&self.folder, file, what, self.ending);
    }
}

fn write(folder: &Path, case: &[u8], what: &str, ending: &str) {
    let name =
        (0..).map(|i| folder.join(format!("{what}-{i}.{ending}"))).find(|path| !path.exists()).unwrap_or_default();
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&name, case));
    match written {
        Ok(()) => eprintln!("{what}: {}", name.display()),
        Err(error) => eprintln!("{what}: {} cannot be written: {error}\n{}", name.display(), case.escape_ascii()),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
