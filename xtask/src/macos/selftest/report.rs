//! The report: a table of suites, a table of what did not pass, the machine, and what the failed cases said; short enough for an issue.

use super::children::{Outcome, Verdict};
use std::fmt::Write;

/// An issue takes 65,536 letters.
const MOST: usize = 60_000;
/// Rows of the table of what did not pass.
const ROWS: usize = 150;
/// The last lines of a failed case that are kept.
const LINES: usize = 30;

/// What came out so far.
pub struct Report {
    machine: String,
    kernels_only: bool,
    suites: Vec<(String, Vec<Outcome>)>,
}

impl Report {
    pub fn new(machine: &str, kernels_only: bool) -> Report {
        Report { machine: machine.to_owned(), kernels_only, suites: Vec::new() }
    }

    pub fn add(&mut self, suite: &str, outcomes: impl Iterator<Item = Outcome>) {
        self.suites.push((suite.to_owned(), outcomes.collect()));
    }

    /// A suite that could not be run at all, which is one failure.
    pub fn add_missing(&mut self, suite: &str, why: &str) {
        let (name, verdict) = ("all of it".to_owned(), Verdict::Missing(why.to_owned()));
        self.add(suite, [Outcome { name, verdict, log: String::new() }].into_iter());
    }

    pub fn failed(&self) -> usize {
        self.bad().count()
    }

    /// What did not pass, with the suite.
    fn bad(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        let all =
            self.suites.iter().flat_map(|(suite, outcomes)| outcomes.iter().map(move |one| (suite.as_str(), one)));
        all.filter(|(_, outcome)| outcome.verdict != Verdict::Passed)
    }

    /// A line a suite.
    pub fn summary(&self) -> String {
        let mut text = String::from(
            "| suite | passed | failed | ended the process | no end | not run |\n|---|---|---|---|---|---|\n",
        );
        for (suite, outcomes) in &self.suites {
            let of = |kind: fn(&Verdict) -> bool| outcomes.iter().filter(|outcome| kind(&outcome.verdict)).count();
            let counts = [
                of(|verdict| *verdict == Verdict::Passed),
                of(|verdict| matches!(verdict, Verdict::Failed(_))),
                of(|verdict| matches!(verdict, Verdict::Ended(_))),
                of(|verdict| matches!(verdict, Verdict::Hung(_))),
                of(|verdict| matches!(verdict, Verdict::Missing(_))),
            ];
            let counts = counts.map(|count| count.to_string()).join(" | ");
            let _ = writeln!(text, "| {suite} | {counts} |");
        }
        text
    }

    /// All of it.
    pub fn text(&self) -> String {
        let mut text = self.summary();
        if self.failed() > 0 {
            text.push_str("\n| suite | case | what came out |\n|---|---|---|\n");
        }
        for (suite, outcome) in self.bad().take(ROWS) {
            let _ = writeln!(text, "| {suite} | {} | {} |", outcome.name, outcome.verdict.text().replace('|', "/"));
        }
        if let more @ 1.. = self.failed().saturating_sub(ROWS) {
            let _ = writeln!(text, "\nand {more} more");
        }
        if self.kernels_only {
            text.push_str("\nMPS and MPSGraph were left out (`--kernels-only`).\n");
        }
        let _ = writeln!(text, "\nopenmps {}\n```\n{}\n```", env!("CARGO_PKG_VERSION"), self.machine);
        for (suite, outcome) in self.bad() {
            let lines: Vec<&str> = outcome.log.lines().collect();
            let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
            let log = format!("\n{suite}, {}:\n```\n{last}\n```\n", outcome.name);
            if text.len() + log.len() > MOST {
                text.push_str("\nThe rest lies in target/mac-selftest.\n");
                break;
            }
            text.push_str(&log);
        }
        text
    }
}
