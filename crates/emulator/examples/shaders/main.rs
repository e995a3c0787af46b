//! Runs other people's Metal shaders on the emulator, file by file, and prints a table: kernels, compiled, run right, wrong, not run.
//! `cargo xtask shaders` fetches the sources and calls it with their folder; a second argument is the one file to run, `--count`, which
//! prints what products and attention move instead, or `--mlx`, where the folder is MLX's source (a third argument names one family).

mod arrays;
mod blocks;
mod case;
mod convolution;
mod count;
mod elementwise;
mod kind;
mod merges;
mod mlx;
mod networks;
mod products;
mod quantized;
mod rows;

use case::Case;
use openmps_emulator::{Library, Options, Value};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes a kernel's case by its name; the second argument is the value of the function constants, the third the text of the file.
type Family = fn(&str, bool, &str) -> Option<Case>;

/// The files that have cases. Those with function constants are run with all of the listed ones false, then true.
const FAMILIES: [(&str, &[u32], Family); 16] = [
    ("affine", &[], |name, _, _| elementwise::affine(name)),
    ("binary", &[], |name, _, _| elementwise::binary(name)),
    ("cast", &[], |name, _, _| elementwise::cast(name)),
    ("conv", &[], |name, _, _| convolution::convolution(name)),
    ("fill", &[], |name, _, _| elementwise::fill(name)),
    ("gemv", &[], |name, _, _| products::gemv(name)),
    ("indexing", &[], |name, _, _| rows::indexing(name)),
    ("mlx_gemm", &[200, 201, 202], |name, on, _| products::gemm(name, on)),
    ("mlx_sort", &[], |name, _, _| merges::sorts(name).or_else(|| rows::block_sort(name))),
    ("quantized", &[], |name, _, text| ggml(name, text)),
    ("random", &[], |name, _, _| rows::random(name)),
    ("reduce", &[], |name, _, _| rows::reduce(name)),
    ("scaled_dot_product_attention", &[200, 201], |name, on, _| products::attention(name, on)),
    ("sort", &[], |name, _, _| rows::sort(name)),
    ("ternary", &[0, 1, 2], |name, on, _| elementwise::ternary(name, on)),
    ("unary", &[], |name, _, _| elementwise::unary(name)),
];
/// Every function constant of these files; those that no family switches stay false.
const CONSTANTS: [u32; 12] = [0, 1, 2, 10, 20, 100, 110, 200, 201, 202, 300, 301];

/// Kernels that are wrong by their own text, by file and name; docs/emulator.md says why of each.
const FAULTS: [(&str, fn(&str) -> bool); 3] = [
    ("mlx_sort", |kernel| kernel.contains("_block_sort") && !kernel.contains("arg")),
    ("quantized", |kernel| kernel == "kernel_group_norm" || kernel.starts_with("kernel_flash_attn_ext")),
    ("scaled_dot_product_attention", |kernel| {
        let of_lanes = kernel.starts_with("sdpa_vector") && (kernel.ends_with("_72") || kernel.ends_with("_80"));
        of_lanes || kernel.contains("float32_bq32_bk16_bd256")
    }),
];

/// A kernel of `quantized`, which is ggml's whole file: products, arrays, networks.
fn ggml(name: &str, text: &str) -> Option<Case> {
    let of_rows = || networks::network(name, text);
    quantized::quantized(name, text).or_else(|| arrays::array(name)).or_else(of_rows)
}

fn is_faulty(file: &str, kernel: &str) -> bool {
    FAULTS.iter().any(|(name, is_one)| *name == file && is_one(kernel))
}

/// A file's line of the table.
#[derive(Default)]
struct Line {
    file: String,
    kernels: usize,
    compiled: usize,
    right: usize,
    /// Right where barriers do not wait for threads that are over, an error else.
    loose: Vec<String>,
    /// As [`FAULTS`] says.
    faulty: Vec<String>,
    wrong: Vec<String>,
    not_run: Vec<String>,
    refused: Vec<String>,
}

impl Line {
    /// Adds what was found of a kernel, or of several.
    fn take(&mut self, other: Line) {
        self.compiled += other.compiled;
        self.right += other.right;
        self.loose.extend(other.loose);
        self.faulty.extend(other.faulty);
        self.wrong.extend(other.wrong);
        self.not_run.extend(other.not_run);
        self.refused.extend(other.refused);
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("give a folder of .metal files, and one of them if only that shall run");
        return ExitCode::FAILURE;
    };
    let only = arguments.next();
    if only.as_deref() == Some("--count") {
        let words: Vec<String> = arguments.collect();
        return match count::run(&folder, &words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => {
                eprintln!("{what}");
                ExitCode::FAILURE
            }
        };
    }
    if only.as_deref() == Some("--mlx") {
        return verdict(&mlx::run(&folder, arguments.next().as_deref()));
    }
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("{}: there is no such folder", folder.display());
        return ExitCode::FAILURE;
    };
    let mut files: Vec<PathBuf> = files.map_while(Result::ok).map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "metal"));
    files.retain(|file| only.as_ref().is_none_or(|only| file.file_stem().is_some_and(|stem| stem == only.as_str())));
    files.sort();
    let lines: Vec<Line> = files.iter().map(|file| run(file)).collect();
    verdict(&lines)
}

/// Prints the table; a failure where something is refused or wrong.
fn verdict(lines: &[Line]) -> ExitCode {
    print(lines);
    if lines.iter().any(|line| !line.refused.is_empty() || !line.wrong.is_empty()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn compile(text: &str, switched: &[u32], on: bool) -> Result<Library, String> {
    let constants = CONSTANTS.map(|index| (index, Value::Bool(on && switched.contains(&index)))).into();
    let options = Options { constants, bfloat_functions: true, ..Options::default() };
    Library::compile_with(text, &options).map_err(|error| error.to_string())
}

fn run(file: &Path) -> Line {
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut line = Line { file: name.clone(), ..Line::default() };
    let Ok(text) = std::fs::read_to_string(file) else {
        line.refused.push("it cannot be read".to_owned());
        return line;
    };
    let family = FAMILIES.iter().find(|(family, ..)| *family == name);
    let switched = family.map_or(&[][..], |(_, switched, _)| switched);
    let mut libraries = Vec::new();
    for on in [false, true].into_iter().take(if switched.is_empty() { 1 } else { 2 }) {
        match compile(&text, switched, on) {
            Ok(library) => libraries.push((on, library)),
            Err(reason) => {
                line.refused.push(reason);
                return line;
            }
        }
    }
    let kernels: Vec<String> = libraries[0].1.function_names().map(str::to_owned).collect();
    (line.kernels, line.compiled) = (kernels.len(), kernels.len());
    for kernel in kernels {
        let cases = libraries.iter().map(|(on, library)| Some((family?.2(&kernel, *on, &text)?, library)));
        let Some(cases) = cases.collect::<Option<Vec<(Case, &Library)>>>() else {
            line.not_run.push(kernel);
            continue;
        };
        let all = |loosely: bool| cases.iter().try_for_each(|(case, library)| case.run(library, &kernel, loosely));
        let faulty = is_faulty(&name, &kernel);
        match all(false) {
            Ok(()) if faulty => {
                line.wrong.push(format!("{kernel}: right, though it is listed as wrong by its own text"))
            }
            Ok(()) => line.right += 1,
            Err(what) if faulty => line.faulty.push(format!("{kernel}: {what}")),
            Err(what) if what.contains("wait at the barrier") && all(true).is_ok() => line.loose.push(what),
            Err(what) => line.wrong.push(format!("{kernel}: {what}")),
        }
    }
    eprintln!("{name}: {} of {} right", line.right, line.kernels);
    line
}

fn print(lines: &[Line]) {
    println!(
        "| file | kernels | compiled | run right | right but for a barrier that not all threads reach | wrong by their text | wrong | not run |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let counts = |line: &Line| {
        let lists = [&line.loose, &line.faulty, &line.wrong, &line.not_run].map(Vec::len);
        [line.kernels, line.compiled, line.right, lists[0], lists[1], lists[2], lists[3]]
    };
    let mut total = [0; 7];
    let row =
        |name: &str, counts: [usize; 7]| println!("| {name} | {} |", counts.map(|count| count.to_string()).join(" | "));
    for line in lines {
        row(&line.file, counts(line));
        total.iter_mut().zip(counts(line)).for_each(|(total, count)| *total += count);
    }
    row("all", total);
    for line in lines {
        let refused = line.refused.iter().map(|reason| format!("refused: {reason}"));
        let loose = line.loose.iter().map(|what| format!("barrier: {what}"));
        let faulty = line.faulty.iter().map(|what| format!("wrong by its text: {what}"));
        let wrong = line.wrong.iter().map(|what| format!("wrong: {what}"));
        let not_run = (!line.not_run.is_empty()).then(|| format!("not run: {}", line.not_run.join(" ")));
        for what in refused.chain(loose).chain(faulty).chain(wrong).chain(not_run) {
            println!("{}: {what}", line.file);
        }
    }
}
