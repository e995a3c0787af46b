//! Operations of a kernel, by clang's own intermediate text: what each block of it computes, and how much is alive at the worst place. Each
//! block says at its begin how many operations it has, where clang has put a call for that.

use super::liveness;

/// The call that `-fsanitize-coverage-trace-pc` puts into each block.
const CALL: &str = "call void @__sanitizer_cov_trace_pc()";

/// Operations of one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    pub integers: u64,
    pub floats: u64,
}

const INTEGERS: [&str; 14] =
    ["add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor", "icmp"];
/// Conversions to and from floats among them.
const FLOATS: [&str; 13] = [
    "fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "fcmp", "fptosi", "fptoui", "sitofp", "uitofp", "fptrunc", "fpext",
];

/// The text with what its blocks compute in place of clang's calls, and with the registers of each function at its begin.
pub(crate) fn annotate(text: &str) -> String {
    let mut lines = Vec::new();
    let mut function: Option<Vec<&str>> = None;
    for line in text.lines() {
        match &mut function {
            None if line.starts_with("define ") => function = Some(vec![line]),
            None => lines.push(line.to_owned()),
            Some(of_function) => {
                of_function.push(line);
                if line == "}" {
                    lines.extend(annotated(of_function));
                    function = None;
                }
            }
        }
    }
    lines.join("\n") + "\n"
}

fn annotated(function: &[&str]) -> Vec<String> {
    // What only passes accesses on has no calls of clang's.
    let counts = function.iter().any(|line| line.contains(CALL));
    let mut registers = counts.then(|| liveness::registers(&function[1..]));
    let mut lines = Vec::new();
    for (at, line) in function.iter().enumerate() {
        if !line.contains(CALL) {
            lines.push((*line).to_owned());
            continue;
        }
        let block = function[at + 1..].iter().take_while(|line| line.starts_with(' '));
        let operations = block.map(|line| of(line)).fold(Operations::default(), |sum, one| Operations {
            integers: sum.integers + one.integers,
            floats: sum.floats + one.floats,
        });
        if let Some(registers) = registers.take() {
            lines.push(format!("  call void @openmps_registers(i32 {registers})"));
        }
        if operations != Operations::default() {
            let Operations { integers, floats } = operations;
            lines.push(format!("  call void @openmps_operations(i32 {integers}, i32 {floats})"));
        }
    }
    lines
}

/// What an instruction does: its word, and what stands behind it.
pub(super) fn instruction(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let line = if line.starts_with('%') { line.split_once(" = ").map_or(line, |(_, rest)| rest) } else { line };
    let line = line.strip_prefix("tail ").or_else(|| line.strip_prefix("notail ")).unwrap_or(line);
    line.split_once(' ').unwrap_or((line, ""))
}

/// The first type of a text, behind flags and attributes.
pub(super) fn first_type(text: &str) -> &str {
    let is_type = |word: &str| {
        let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|sign| sign.is_ascii_digit());
        ["half", "bfloat", "float", "double", "ptr", "void"].contains(&word)
            || word.strip_prefix('i').is_some_and(number)
    };
    let mut rest = text.trim_start();
    loop {
        if rest.starts_with('<') {
            return rest.find('>').map_or(rest, |end| &rest[..=end]);
        }
        let end = rest.find([' ', ',', ')']).unwrap_or(rest.len());
        if is_type(&rest[..end]) || end == rest.len() {
            return &rest[..end];
        }
        rest = rest[end..].trim_start_matches([',', ')']).trim_start();
    }
}

/// Elements of a vector type, one of any other.
pub(super) fn lanes(of: &str) -> u64 {
    of.strip_prefix('<').and_then(|of| of.split(' ').next()).and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// The type of an element.
pub(super) fn element(of: &str) -> &str {
    of.trim_matches(['<', '>']).rsplit(' ').next().unwrap_or(of)
}

fn is_float(of: &str) -> bool {
    ["half", "bfloat", "float", "double"].contains(&element(of))
}

fn of(line: &str) -> Operations {
    let (word, rest) = instruction(line);
    let of_type = |of: &str| match is_float(of) {
        true => Operations { integers: 0, floats: lanes(of) },
        false => Operations { integers: lanes(of), floats: 0 },
    };
    match word {
        _ if INTEGERS.contains(&word) => Operations { integers: lanes(first_type(rest)), floats: 0 },
        _ if FLOATS.contains(&word) => Operations { integers: 0, floats: lanes(first_type(rest)) },
        // Behind the condition.
        "select" => of_type(rest.split_once(", ").map_or("", |(_, values)| first_type(values))),
        // An address of which a part is computed.
        "getelementptr" if rest.split(", ").skip(2).any(|index| index.contains('%')) => {
            Operations { integers: 1, floats: 0 }
        }
        "call" => call(rest),
        _ => Operations::default(),
    }
}

/// A function of numbers is one operation; functions of the text have blocks of their own.
fn call(rest: &str) -> Operations {
    let name = rest.split_once('@').map_or("", |(_, name)| name);
    let result = first_type(rest);
    let of_numbers =
        name.strip_prefix("llvm.").is_some_and(|name| !name.starts_with("mem") && !name.starts_with("load"));
    let of_library = is_float(result) && !name.starts_with("_Z") && !name.starts_with("openmps") && !name.is_empty();
    match (of_numbers || of_library, is_float(result)) {
        (false, _) => Operations::default(),
        (true, true) => Operations { integers: 0, floats: lanes(result) },
        (true, false) if result == "void" || result == "ptr" => Operations::default(),
        (true, false) => Operations { integers: lanes(result), floats: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_apart() {
        let operations = |integers, floats| Operations { integers, floats };
        for (line, expected) in [
            ("  %a = add nuw nsw i32 %x, 1", operations(1, 0)),
            ("  %b = fmul <4 x float> %x, %y", operations(0, 4)),
            ("  %c = icmp slt i64 %x, %y", operations(1, 0)),
            ("  %d = select i1 %c, float %x, float 0.0", operations(0, 1)),
            ("  %e = getelementptr inbounds nuw float, ptr %p, i64 %i", operations(1, 0)),
            ("  %f = getelementptr inbounds i8, ptr %p, i64 16", operations(0, 0)),
            ("  %g = tail call noundef float @llvm.exp.f32(float %x)", operations(0, 1)),
            ("  %h = call <2 x i32> @llvm.umin.v2i32(<2 x i32> %x, <2 x i32> %y)", operations(2, 0)),
            ("  call void @llvm.lifetime.start.p0(i64 16, ptr %k)", operations(0, 0)),
            ("  %i = call float @powf(float %x, float %y)", operations(0, 1)),
            ("  %j = call float @_Z4mineff(float %x, float %y)", operations(0, 0)),
            ("  %k = load float, ptr %p, align 4", operations(0, 0)),
            ("  %l = zext i32 %x to i64", operations(0, 0)),
            ("  %m = uitofp i32 %x to float", operations(0, 1)),
            ("  br i1 %c, label %x, label %y", operations(0, 0)),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn blocks_say_what_they_compute() {
        let text = "declare void @f()\ndefine void @openmps_entry_k() {\nentry:\n  call void @__sanitizer_cov_trace_pc() #1\n  \
                    %a = add i32 1, 2\n  br label %next\n\nnext:\n  call void @__sanitizer_cov_trace_pc() #1\n  ret void\n}\n";
        let expected = "declare void @f()\ndefine void @openmps_entry_k() {\nentry:\n  call void @openmps_registers(i32 1)\n  \
                        call void @openmps_operations(i32 1, i32 0)\n  %a = add i32 1, 2\n  br label %next\n\nnext:\n  ret void\n}\n";
        assert_eq!(annotate(text), expected);
    }
}
