//! Sorts within a threadgroup, of rows in order and of rows in any layout, and of several threadgroups (crate::merges).

use super::types::{COMPLEX, FLOATS, Type, WHOLE};
use super::{Kernel, kernel};
use crate::case::{Case, exact, groups, input, ints, output, sizes};
use crate::kind::Kind;
use crate::merges;

const ROWS: usize = 3;
const COLUMNS: usize = 100;

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in WHOLE.into_iter().chain(FLOATS).chain([COMPLEX]) {
        let widths: &[usize] = if of.size() == 8 { &[32, 64, 128, 256] } else { &[32, 64, 128, 256, 512] };
        for width in widths.iter().copied() {
            for (strided, indices) in [(false, false), (true, false), (false, true), (true, true)] {
                let form = if strided { "nc" } else { "c" };
                let (kind, to, text) = if indices { ("arg", "uint32", "uint32_t") } else { ("_", of.name, of.text) };
                let word = if indices { "arg_block_sort" } else { "_block_sort" };
                let name = format!("{form}{word}_{}_{to}_bn{width}_tn4", of.name);
                let template = if strided { "block_sort_nc" } else { "block_sort" };
                let instance = format!("{template}<{}, {text}, {}, {width}, 4>", of.text, kind == "arg");
                list.push(kernel(name, instance, move || block(of, width, strided, indices)));
            }
        }
        let width = if of.size() == 8 { 256 } else { 512 };
        for (step, template) in
            [("sort", "mb_block_sort"), ("partition", "mb_block_partition"), ("merge", "mb_block_merge")]
        {
            let name = format!("{step}_mbsort_{}_uint32_bn{width}_tn4", of.name);
            let instance = format!("{template}<{}, uint32_t, true, {width}, 4>", of.text);
            match merges::sorts(&name) {
                Some(_) => {
                    list.push(kernel(name.clone(), instance, move || merges::sorts(&name).expect("it has a case")))
                }
                // Complex numbers have no reference here.
                None => list.push(Kernel { name, instance: Some(instance), variants: Vec::new() }),
            }
        }
    }
    list
}

/// Rows without equal elements; complex numbers are ordered by their real parts first.
fn block(of: Type, width: usize, strided: bool, indices: bool) -> Case {
    let number = |at: usize| at / COLUMNS + at % COLUMNS * 37 % 101;
    let element = |at: usize| match of.lanes {
        2 => vec![(number(at) / 10) as f64, (number(at) % 10) as f64],
        _ => vec![number(at) as f64],
    };
    let values: Vec<f64> = (0..ROWS * COLUMNS).flat_map(element).collect();
    let mut expected = Vec::new();
    for row in 0..ROWS {
        let mut order: Vec<usize> = (0..COLUMNS).collect();
        order.sort_by_key(|at| number(row * COLUMNS + at));
        expected
            .extend(order.iter().flat_map(|at| if indices { vec![*at as f64] } else { element(row * COLUMNS + at) }));
    }
    let to = if indices { Kind::U32 } else { of.kind };
    let mut args = vec![input(of.kind, &values), output(to, expected.len()), ints(&[COLUMNS]), ints(&[1]), ints(&[1])];
    if strided {
        args.extend([ints(&[1]), ints(&[ROWS]), sizes(&[COLUMNS]), sizes(&[COLUMNS])]);
    } else {
        args.extend([ints(&[COLUMNS]), ints(&[COLUMNS])]);
    }
    groups([1, ROWS, 1], [width, 1, 1], args, exact(to, expected))
}
