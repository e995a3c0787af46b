//! What a wrong environment is answered with. Each test runs this program again with the variables set.

use std::process::Command;

/// What the ignored test `report` prints under these variables: (standard output, standard error).
fn report(variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "report_to_the_parent", "--ignored", "--nocapture"]);
    let output = command.envs(variables.iter().copied()).output().expect("the program runs");
    assert!(output.status.success());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ours = text(&output.stderr).lines().filter(|line| line.starts_with("openmps: ")).collect::<Vec<_>>().join("\n");
    (text(&output.stdout), ours)
}

#[test]
#[ignore = "the child of the other tests"]
fn report_to_the_parent() {
    for _ in 0..2 {
        println!("limit={:?}", openmps_settings::MEMORY_LIMIT.get());
        println!("device={:?}", openmps_settings::DEVICE.checked().is_ok());
    }
    println!("threads={:?}", openmps_settings::NUM_THREADS.get());
    println!("problems={}", openmps_settings::problems().len());
}

#[test]
fn right_values_are_silent() {
    let (said, warned) =
        report(&[("OPENMPS_MEMORY_LIMIT", "2G"), ("OPENMPS_NUM_THREADS", "3"), ("OPENMPS_DEVICE", "")]);
    assert!(said.contains("limit=Some(2147483648)") && said.contains("threads=Some(3)"), "{said}");
    assert!(said.contains("device=true") && said.contains("problems=0") && warned.is_empty(), "{said}{warned}");
}

#[test]
fn wrong_values_are_said_once_with_what_is_allowed_and_used() {
    let wrong = [("OPENMPS_MEMORY_LIMIT", "lots"), ("OPENMPS_NUM_THREADS", "1000000"), ("OPENMPS_DEVICE", "gpu")];
    let (said, warned) = report(&wrong);
    assert!(said.contains("limit=None") && said.contains("threads=None"), "{said}");
    assert!(said.contains("device=false") && said.contains("problems=3"), "{said}");
    assert_eq!(warned.lines().count(), 3, "{warned}");
    for words in [
        r#"OPENMPS_MEMORY_LIMIT="lots" is not allowed: a number of bytes"#,
        "used instead: the device's memory",
        r#"OPENMPS_NUM_THREADS="1000000" is not allowed: 1 to "#,
        "used instead: one for each CPU",
        r#"OPENMPS_DEVICE="gpu" is not allowed: host, cuda, metal, metal-emulated; used instead: no device"#,
    ] {
        assert!(warned.contains(words), "{warned}");
    }
}

#[test]
fn unknown_names_are_said_with_the_nearest() {
    let (said, warned) = report(&[("OPENMPS_NUM_THREAD", "3")]);
    assert!(said.contains("threads=None") && said.contains("problems=1"), "{said}");
    assert_eq!(
        warned,
        "openmps: OPENMPS_NUM_THREAD is no setting and changes nothing; the nearest is OPENMPS_NUM_THREADS"
    );
}
