//! The table after a run: the shortest of criterion's samples, PyTorch's and llama.cpp's from side programs, and ratios. The shortest, because on a
//! machine with other work it is the one that the other work disturbed least.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Estimates older than this are of another run.
const OF_THIS_RUN: Duration = Duration::from_secs(1800);

/// Microseconds by name, then by library.
type Times = BTreeMap<String, BTreeMap<String, f64>>;

/// Where criterion writes.
pub fn folder() -> PathBuf {
    let target = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(target, PathBuf::from).join("criterion")
}

pub fn print() {
    let mut times = Times::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    read_criterion(&folder(), &mut times);
    if times.is_empty() {
        return;
    }
    for (script, library) in [("torch_operators.py", "torch"), ("llama_cpp_model.py", "llama.cpp")] {
        if let Err(why) = ask(&root, script, library, &mut times) {
            println!("{library} is left out: {why}");
        }
    }
    print!("\n{:44} {:>10}", "microseconds", "openmps");
    OTHERS.iter().for_each(|library| print!(" {library:>10} {:>6}", "x"));
    println!();
    for (name, by_library) in &times {
        let of = |library: &str| by_library.get(library).copied();
        let number =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        print!("{name:44} {:>10}", number(of("openmps"), 1));
        for library in OTHERS {
            let over = of(library).zip(of("openmps")).map(|(other, own)| other / own);
            print!(" {:>10} {:>6}", number(of(library), 1), number(over, 2));
        }
        println!();
    }
}

/// The columns beside ours, each with how many times as long it takes. "full" is our own attention without a window.
const OTHERS: [&str; 5] = ["candle", "gemm", "torch", "llama.cpp", "full"];

fn read_criterion(folder: &Path, times: &mut Times) {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for group in entries(folder) {
        for library in entries(&group) {
            let file = library.join("new/sample.json");
            let fresh = file
                .metadata()
                .and_then(|data| data.modified())
                .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age < OF_THIS_RUN));
            let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
            let shortest = || -> Option<f64> {
                let text = std::fs::read_to_string(&file).ok().filter(|_| fresh)?;
                let sample: serde_json::Value = serde_json::from_str(&text).ok()?;
                let runs = sample["iters"].as_array()?.iter().zip(sample["times"].as_array()?);
                let each = runs.filter_map(|(count, time)| Some(time.as_f64()? / count.as_f64()?));
                each.min_by(f64::total_cmp)
            };
            if let (Some(group), Some(library), Some(shortest)) = (name(&group), name(&library), shortest()) {
                times.entry(group).or_default().insert(library, shortest / 1e3);
            }
        }
    }
}

/// Runs a program of `benches` on the names; it answers with lines "name<TAB>microseconds".
fn ask(root: &Path, script: &str, library: &str, times: &mut Times) -> Result<(), String> {
    let own = root.join(".venv/bin/python");
    let python = openmps_settings::BENCH_PYTHON.get().unwrap_or(own);
    let names: Vec<&String> = times.keys().collect();
    let output = Command::new(&python).arg(root.join("benches").join(script)).args(names).output();
    let output = output.map_err(|error| format!("{}: {error}", python.display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().last().unwrap_or("it failed").to_owned());
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((name, shortest)) = line.split_once('\t')
            && let (Some(row), Ok(shortest)) = (times.get_mut(name), shortest.trim().parse())
        {
            row.insert(library.to_owned(), shortest);
        }
    }
    Ok(())
}
