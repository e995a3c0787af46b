//! The run itself, over cases that are planted in this very test program: one of each way to end.

use super::children::{Case, Outcome, Program, Verdict};
use super::report::Report;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);

#[test]
#[ignore = "planted: a case that passes"]
fn planted_pass() {}

#[test]
#[ignore = "planted: a case that fails"]
fn planted_failure() {
    panic!("the result is off by | 3");
}

#[test]
#[ignore = "planted: an assertion of one of Apple's frameworks"]
fn planted_abort() {
    std::process::abort();
}

#[test]
#[ignore = "planted: a GPU that hangs"]
fn planted_hang() {
    std::thread::sleep(Duration::from_secs(3600));
}

fn outcomes() -> Vec<Outcome> {
    let mut program = Program::new(std::env::current_exe().unwrap());
    program.argue("--ignored");
    let mut names: Vec<String> = program.list().unwrap();
    names.retain(|name| name.contains("selftest::tests::planted_"));
    assert_eq!(names.len(), 4, "{names:?}");
    let folder = tempfile::tempdir().unwrap();
    names.into_iter().map(|name| Case::new(program.clone(), name, folder.path()).run(LIMIT)).collect()
}

#[test]
fn an_abort_and_a_hang_cost_one_line_each() {
    let outcomes = outcomes();
    let of = |name: &str| &outcomes.iter().find(|outcome| outcome.name.ends_with(name)).unwrap().verdict;
    assert_eq!(*of("planted_pass"), Verdict::Passed);
    assert_eq!(*of("planted_failure"), Verdict::Failed("the result is off by | 3".to_owned()));
    assert!(matches!(of("planted_abort"), Verdict::Ended(signal) if signal.contains("6")), "{:?}", of("planted_abort"));
    assert_eq!(*of("planted_hang"), Verdict::Hung(5));
    let mut report = Report::new("a machine", true);
    report.add("planted", outcomes.into_iter());
    report.add_missing("another", "it does not compile");
    assert_eq!(report.failed(), 4);
    let text = report.text();
    assert!(text.starts_with("| suite | passed |"), "a table first: {text}");
    assert!(text.contains("| planted | 1 | 1 | 1 | 1 | 0 |\n| another | 0 | 0 | 0 | 0 | 1 |"), "{text}");
    let lines = text.lines().filter(|line| line.starts_with("| planted | ") && line.contains("planted_"));
    assert_eq!(lines.count(), 3, "{text}");
    assert!(text.contains("failed: the result is off by / 3 |"), "no column more: {text}");
    assert!(text.contains("left out (`--kernels-only`)"), "{text}");
}

#[test]
fn a_report_fits_an_issue_whatever_failed() {
    let mut report = Report::new("a machine", false);
    let (verdict, log) = (Verdict::Failed("wrong".repeat(40)), "a long line of a log\n".repeat(1000));
    let outcome =
        |number: usize| Outcome { name: format!("case {number}"), verdict: verdict.clone(), log: log.clone() };
    report.add("many", (0..5000).map(outcome));
    assert_eq!(report.failed(), 5000);
    let text = report.text();
    assert!(text.len() < 65_536, "{}", text.len());
    assert!(text.contains("case 149 |") && text.contains("and 4850 more"), "{text}");
    assert!(text.ends_with("The rest lies in target/mac-selftest.\n"));
}

#[test]
fn virtual_gpus_are_asked_nothing_of_apples_libraries() {
    let names = |kernels_only| {
        let options = super::Options { kernels_only, emulated: true, only: None };
        super::suites(&options).iter().filter_map(|suite| suite.engine).collect::<Vec<_>>()
    };
    assert_eq!(names(true), ["kernels"]);
    assert_eq!(names(false), ["kernels", "mps", "mpsgraph"]);
}
