//! Loads that cannot stand in memory until their last reader are copied by a step of their own, which the pass that reads them first does on its way.

use crate::level::{Level, level};
use crate::plan::lives::Lives;
use crate::plan::operand::{Operand, Target, plain};
use crate::plan::step::{Rest, Step};

/// Splits such loads of a body into one to a further register and a copy.
pub(in crate::plan) fn copy_loads(body: &mut Vec<Step>, sizes: &mut Vec<usize>, reads: &mut Vec<usize>) {
    if level() == Level::Portable {
        return;
    }
    let mut lives = Lives::new(sizes.len());
    lives.walk(body);
    if lives.stores.iter().any(|store| !store.is_even) {
        split(body, &lives, sizes, reads);
    }
}

fn split(body: &mut Vec<Step>, lives: &Lives, sizes: &mut Vec<usize>, reads: &mut Vec<usize>) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| split(body, lives, sizes, reads));
        if let Step::LoadTile { register, address, extents, full: (1, _), rest: Rest::Unread, direct: true } =
            &mut body[at]
            && address.size == size_of::<f32>()
            && address.spread.is_affine()
            && lives.may_be_overwritten(*register)
        {
            let (loaded, extents) = (sizes.len(), *extents);
            let target = Target { register: *register, size: address.size, store: None };
            sizes.push(sizes[*register]);
            reads.push(1);
            *register = loaded;
            let source: Operand = plain(loaded);
            body.insert(at + 1, Step::CopyTile { target, source, extents, direct: false });
            at += 1;
        }
        at += 1;
    }
}
