//! One case, one process: what it says goes to a file, and however it ends is an outcome.

use crate::shell::{Result, command};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a case may take: a GPU that hangs ends nothing by itself.
pub const LIMIT: Duration = Duration::from_secs(600);

/// A program of tests, in the words of Rust's test programs.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Program {
    pub fn new(path: PathBuf) -> Program {
        Program { path, arguments: Vec::new(), environment: Vec::new() }
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub fn argue(&mut self, argument: &str) {
        self.arguments.push(argument.to_owned());
    }

    /// The names of its cases.
    pub fn list(&self) -> Result<Vec<String>> {
        let listed = self.command().args(["--list", "--format", "terse"]).stderr(Stdio::inherit()).output();
        let listed = listed.map_err(|error| format!("{} cannot be run: {error}", self.path.display()))?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect();
        listed.status.success().then_some(names).ok_or_else(|| format!("the cases cannot be listed: {}", listed.status))
    }

    fn command(&self) -> Command {
        let mut command = command(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// One case of a program.
pub struct Case {
    program: Program,
    pub name: String,
    /// Whether the program is told the name; else it has one case only.
    chosen: bool,
    /// Where what it says and the kernels that it writes are kept.
    folder: PathBuf,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed(String),
    /// A signal ended it: an assertion in one of Apple's frameworks is an abort.
    Ended(String),
    /// It had to be ended.
    Hung(u64),
    /// It could not be begun.
    Missing(String),
}

/// A case that was run.
pub struct Outcome {
    pub name: String,
    pub verdict: Verdict,
    /// What it said.
    pub log: String,
}

impl Case {
    pub fn new(program: Program, name: String, folder: &Path) -> Case {
        let folder = folder.join(name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"));
        Case { program, name, chosen: true, folder }
    }

    /// The one case of a command.
    pub fn of_command(program: Program, name: String, folder: &Path) -> Case {
        Case { chosen: false, ..Case::new(program, name, folder) }
    }

    /// Runs it to its end, or to the end of its time.
    pub fn run(&self, limit: Duration) -> Outcome {
        let verdict = self.verdict(limit).unwrap_or_else(|error| Verdict::Missing(error.to_string()));
        let bytes = std::fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&bytes).into_owned();
        let verdict = match verdict {
            Verdict::Failed(status) => Verdict::Failed(complaint(&log).unwrap_or(status)),
            other => other,
        };
        println!("    {}: {}", self.name, verdict.text());
        Outcome { name: self.name.clone(), verdict, log }
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log.txt")
    }

    fn verdict(&self, limit: Duration) -> std::io::Result<Verdict> {
        std::fs::create_dir_all(&self.folder)?;
        let log = File::create(self.log())?;
        let mut command = self.program.command();
        if self.chosen {
            command.args([&self.name, "--exact"]);
        }
        command.env("OPENMPS_DUMP", self.folder.join("dump"));
        let mut child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(verdict(status));
            }
            if begin.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                return Ok(Verdict::Hung(limit.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Verdict {
    /// In one line.
    pub fn text(&self) -> String {
        match self {
            Verdict::Passed => "passed".to_owned(),
            Verdict::Failed(how) => format!("failed: {how}"),
            Verdict::Ended(signal) => format!("ended the process: {signal}"),
            Verdict::Hung(seconds) => format!("no end within {seconds} s"),
            Verdict::Missing(why) => format!("not run: {why}"),
        }
    }
}

fn verdict(status: ExitStatus) -> Verdict {
    match status.code() {
        Some(0) => Verdict::Passed,
        Some(_) => Verdict::Failed(status.to_string()),
        None => Verdict::Ended(status.to_string()),
    }
}

/// The line that says most of a failure: the one after a panic's place, or the first that names an error.
fn complaint(log: &str) -> Option<String> {
    let mut lines = log.lines();
    let of_panic = lines.by_ref().find(|line| line.contains("panicked at")).and_then(|_| lines.next());
    let error = || log.lines().find(|line| line.contains("FAILED:") || line.to_lowercase().contains("error"));
    of_panic.or_else(error).map(|line| line.trim().chars().take(200).collect())
}
