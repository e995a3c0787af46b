//! How many registers of 32 bits hold what is alive at the worst place of a function: an estimate, since no GPU's compiler has had a say.

use super::operations::{element, first_type, instruction, lanes};
use std::collections::HashMap;

/// A value's place among those of its function.
type Number = usize;

/// What one instruction makes and reads; for a phi what it reads at the end of which block.
#[derive(Default)]
struct Step {
    makes: Option<Number>,
    reads: Vec<Number>,
    from: Vec<(Number, String)>,
}

#[derive(Default)]
struct Block {
    name: String,
    steps: Vec<Step>,
    next: Vec<String>,
}

/// A set of values.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn new(count: usize) -> Set {
        Set(vec![0; count.div_ceil(64)])
    }

    /// Whether it was not there before.
    fn insert(&mut self, number: Number) -> bool {
        let (word, bit) = (&mut self.0[number / 64], 1 << (number % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn remove(&mut self, number: Number) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    fn add(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    fn holds(&self, number: Number) -> bool {
        self.0[number / 64] >> (number % 64) & 1 != 0
    }
}

/// Half registers, of 16 bits, that a value of this type takes.
fn halves(of: &str) -> u64 {
    let of_element = match element(of) {
        "i64" | "double" | "ptr" => 4,
        "half" | "bfloat" | "i16" | "i8" | "i1" => 1,
        _ => 2,
    };
    lanes(of) * of_element
}

/// The type of what an instruction makes.
fn made(line: &str) -> String {
    let (word, rest) = instruction(line);
    let last = |of: &str| rest.rsplit_once(of).map_or("", |(_, to)| first_type(to)).to_owned();
    match word {
        "icmp" | "fcmp" => match lanes(first_type(rest)) {
            1 => "i1".to_owned(),
            count => format!("<{count} x i1>"),
        },
        "getelementptr" | "alloca" => "ptr".to_owned(),
        "select" => rest.split_once(", ").map_or("", |(_, values)| first_type(values)).to_owned(),
        "extractelement" => element(first_type(rest)).to_owned(),
        // As many elements as the mask has, which is the third operand.
        "shufflevector" => {
            let mask = rest.split(", <").nth(2).and_then(|mask| mask.split(' ').next()).unwrap_or("1");
            format!("<{mask} x {}>", element(first_type(rest)))
        }
        _ if rest.contains(" to ") && word != "call" => last(" to "),
        _ => first_type(rest).to_owned(),
    }
}

/// Names of values in a text, without those of blocks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let end =
        |text: &str| text.find(|sign: char| !(sign.is_alphanumeric() || "._-$".contains(sign))).unwrap_or(text.len());
    let after = text.split('%').scan(false, move |was_label, part| {
        let name = if *was_label { "" } else { &part[..end(part)] };
        *was_label = part.ends_with("label ");
        Some(name)
    });
    after.skip(1).filter(|name| !name.is_empty())
}

struct Function {
    blocks: Vec<Block>,
    /// Half registers of each value.
    sizes: Vec<u64>,
}

fn read(lines: &[&str]) -> Function {
    let (mut numbers, mut sizes): (HashMap<&str, Number>, Vec<u64>) = (HashMap::new(), Vec::new());
    for line in lines.iter().filter(|line| line.trim_start().starts_with('%')) {
        if let Some(name) = names(line).next() {
            numbers.insert(name, sizes.len());
            sizes.push(halves(&made(line)));
        }
    }
    let mut blocks: Vec<Block> = Vec::new();
    for line in lines {
        if let Some((name, _)) = line.split_once(':').filter(|_| !line.starts_with([' ', '}'])) {
            blocks.push(Block { name: name.trim_matches('"').to_owned(), ..Block::default() });
        } else if let Some(block) = blocks.last_mut().filter(|_| line.starts_with(' ')) {
            let labels = line.match_indices("label %").map(|(at, word)| &line[at + word.len()..]);
            block.next.extend(labels.filter_map(|rest| rest.split([',', ' ']).next()).map(str::to_owned));
            block.steps.push(step(line, &numbers));
        }
    }
    Function { blocks, sizes }
}

fn step(line: &str, numbers: &HashMap<&str, Number>) -> Step {
    let (makes, rest) = match line.trim_start().strip_prefix('%').and_then(|line| line.split_once(" = ")) {
        Some((name, rest)) => (numbers.get(name).copied(), rest),
        None => (None, line),
    };
    if !rest.starts_with("phi ") {
        return Step {
            makes,
            reads: names(rest).filter_map(|name| numbers.get(name).copied()).collect(),
            ..Step::default()
        };
    }
    // [ value, block ], ...
    let pairs = rest.split('[').skip(1).filter_map(|pair| pair.split_once(']')?.0.split_once(','));
    let value = |text: &str| names(text).next().and_then(|name| numbers.get(name).copied());
    let from = pairs.filter_map(|(of, block)| Some((value(of)?, block.trim().trim_start_matches('%').to_owned())));
    Step { makes, from: from.collect(), ..Step::default() }
}

/// The registers of a function, by its lines behind the first.
pub(super) fn registers(lines: &[&str]) -> u64 {
    let function = read(lines);
    let blocks = &function.blocks;
    let places: HashMap<&str, usize> = blocks.iter().enumerate().map(|(at, block)| (block.name.as_str(), at)).collect();
    let mut begins = vec![Set::new(function.sizes.len()); blocks.len()];
    let mut most = 0;
    loop {
        let mut changed = false;
        for at in (0..blocks.len()).rev() {
            let (begin, halves) = function.walk(&places, &begins, at);
            changed |= begin != begins[at];
            begins[at] = begin;
            // What is alive only grows from one turn to the next.
            most = most.max(halves);
        }
        if !changed {
            return u64::div_ceil(most, 2);
        }
    }
}

impl Function {
    /// From the end of a block to its begin: what is alive there, and the most half registers on the way.
    fn walk(&self, places: &HashMap<&str, usize>, begins: &[Set], at: usize) -> (Set, u64) {
        let block = &self.blocks[at];
        let mut alive = Set::new(self.sizes.len());
        for &next in block.next.iter().filter_map(|name| places.get(name.as_str())) {
            alive.add(&begins[next]);
            let phis = self.blocks[next].steps.iter().flat_map(|step| &step.from);
            phis.filter(|(_, from)| *from == block.name).for_each(|(number, _)| {
                alive.insert(*number);
            });
        }
        let of_set = (0..self.sizes.len()).filter(|number| alive.holds(*number)).map(|number| self.sizes[number]);
        let mut now: u64 = of_set.sum();
        let mut most = now;
        for step in block.steps.iter().rev() {
            // What nobody reads takes its place where it is made.
            if let Some(number) = step.makes {
                if alive.insert(number) {
                    most = most.max(now + self.sizes[number]);
                } else {
                    now -= self.sizes[number];
                }
                alive.remove(number);
            }
            for &number in &step.reads {
                if alive.insert(number) {
                    now += self.sizes[number];
                }
            }
            most = most.max(now);
        }
        (alive, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        registers(&text.lines().collect::<Vec<_>>())
    }

    #[test]
    fn values_are_alive_until_they_are_read() {
        let chain = "entry:\n  %a = add i32 1, 2\n  %b = add i32 %a, 1\n  %c = add i32 %b, 1\n  ret void";
        assert_eq!(of(chain), 1);
        let wide = "entry:\n  %a = load <4 x float>, ptr @x\n  %b = load i64, ptr @y\n  %h = load half, ptr @z\n  \
                    %s = call i32 @f(<4 x float> %a, i64 %b, half %h)\n  ret void";
        assert_eq!(of(wide), 7);
    }

    #[test]
    fn what_a_loop_carries_is_alive_in_it() {
        let text = "entry:\n  %kept = load i32, ptr @x\n  br label %turn\n\nturn:                ; preds = %entry, %turn\n  \
                    %i = phi i32 [ 0, %entry ], [ %next, %turn ]\n  %sum = phi float [ 0.0, %entry ], [ %more, %turn ]\n  \
                    %more = fadd float %sum, 1.0\n  %next = add i32 %i, 1\n  %over = icmp eq i32 %next, %kept\n  \
                    br i1 %over, label %end, label %turn\n\nend:\n  ret void";
        // The bound, the number of the turn, the sum, and half a register for the comparison.
        assert_eq!(of(text), 4);
    }

    #[test]
    fn types_have_sizes() {
        for (line, expected) in [
            ("  %a = fcmp olt <4 x float> %x, %y", 4),
            ("  %a = getelementptr float, ptr %p, i64 %i", 4),
            ("  %a = sext i32 %x to i64", 4),
            ("  %a = extractelement <4 x half> %x, i64 0", 1),
            ("  %a = shufflevector <4 x float> %x, <4 x float> poison, <2 x i32> <i32 0, i32 1>", 4),
            ("  %a = tail call noundef float @llvm.exp.f32(float %x)", 2),
        ] {
            assert_eq!(halves(&made(line)), expected, "{line}");
        }
    }
}
