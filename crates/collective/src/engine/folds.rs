//! How a fold advances: it reads the headers of its messages, folds the pieces that have come from every source, and takes the padding away.

use super::{Engine, Run, TURN, address, look, peer};
use crate::error::{Error, Result};
use crate::fold::{Form, Operand, PIECE};
use crate::message::{HEADER, Header, padded};
use crate::program::{FoldStep, Source};

impl Engine {
    pub(super) fn advance_fold(&mut self, run: &mut Run<'_>, index: usize, step: &FoldStep) -> Result<bool> {
        let mut moved = self.read_headers(run, index, step)?;
        if run.folded[index].headers < step.sources.len() {
            return Ok(moved);
        }
        let total = if let Some(rank) = straight(step) {
            moved |= self.read_straight(run, index, step, rank)?;
            run.program.bytes(step.operation, step.to.form(), step.count)
        } else {
            moved |= self.fold_pieces(run, index, step)?;
            step.count
        };
        if run.folded[index].elements == total {
            moved |= self.take_padding(run, index, step)?;
        }
        Ok(moved)
    }

    /// Folds pieces of which every source has come.
    fn fold_pieces(&mut self, run: &mut Run<'_>, index: usize, step: &FoldStep) -> Result<bool> {
        let form = step.to.form();
        let mut moved = false;
        while run.folded[index].elements < step.count {
            let done = run.folded[index].elements;
            let count = self.elements_there(run, step, (step.count - done).min(PIECE))?;
            if count == 0 {
                break;
            }
            let operands = self.operands(run, step, done)?;
            let kernel = &mut run.kernels[step.operation];
            let to = address(run.memory, step.to.buffer, (step.to.begin + done) * kernel.size(form)).cast_mut();
            // SAFETY: by the promise of `run` for own memory; what a transport shows stays until it is consumed. Programs give a fold a
            // target that is one of its operands or overlaps none.
            unsafe { kernel.run((to, form), step.finish, &operands, count) };
            for source in &step.sources {
                if let &Source::Rank { rank, form } = source {
                    peer(&mut self.peers, rank).consume(count * kernel.size(form));
                }
            }
            run.folded[index].elements += count;
            moved = true;
        }
        Ok(moved)
    }

    /// How many elements, at most so many, have come from every source of a fold.
    fn elements_there(&mut self, run: &mut Run<'_>, step: &FoldStep, most: usize) -> Result<usize> {
        let mut count = most;
        for source in &step.sources {
            let &Source::Rank { rank, form } = source else { continue };
            let size = run.kernels[step.operation].size(form);
            let there = look(&mut self.peers, &self.watch, rank, count * size)?.len();
            if there < size {
                run.wait_to_read(rank, there);
            }
            count = count.min(there / size);
        }
        Ok(count)
    }

    /// The sources of a fold behind the elements that are done.
    fn operands(&mut self, run: &Run<'_>, step: &FoldStep, done: usize) -> Result<Vec<Operand>> {
        let kernel = &run.kernels[step.operation];
        let operand = |source: &Source| match *source {
            Source::Own(place) => {
                let form = place.form();
                Ok(Operand {
                    address: address(run.memory, place.buffer, (place.begin + done) * kernel.size(form)),
                    form,
                })
            }
            // Nothing is wanted, so that nothing moves: these bytes have been seen.
            Source::Rank { rank, form } => {
                Ok(Operand { address: look(&mut self.peers, &self.watch, rank, 0)?.as_ptr(), form })
            }
        };
        step.sources.iter().map(operand).collect()
    }

    /// Elements that stay as they are go to their place without a stop.
    fn read_straight(&mut self, run: &mut Run<'_>, index: usize, step: &FoldStep, rank: usize) -> Result<bool> {
        let size = run.kernels[step.operation].size(step.to.form());
        let total = step.count * size;
        let begin = address(run.memory, step.to.buffer, step.to.begin * size).cast_mut();
        let mut moved = false;
        while run.folded[index].elements < total {
            let bytes = run.folded[index].elements;
            let most = (total - bytes).min(TURN);
            // SAFETY: by the promise of `run`: the target of the fold, which nobody else touches.
            let place = unsafe { std::slice::from_raw_parts_mut(begin.add(bytes), most) };
            let came = peer(&mut self.peers, rank).read(place).map_err(|error| self.watch.explain(rank, &error))?;
            if came == 0 {
                run.wait_to_read(rank, 0);
                break;
            }
            run.folded[index].elements += came;
            moved = true;
        }
        Ok(moved)
    }

    /// Reads the headers of a fold's messages, as far as they have come, and compares them with what must come.
    fn read_headers(&mut self, run: &mut Run<'_>, index: usize, step: &FoldStep) -> Result<bool> {
        let mut moved = false;
        while run.folded[index].headers < step.sources.len() {
            if let Source::Rank { rank, form } = step.sources[run.folded[index].headers] {
                let there = look(&mut self.peers, &self.watch, rank, HEADER)?;
                let Some(bytes) = there.first_chunk::<HEADER>() else {
                    run.wait_to_read(rank, there.len());
                    break;
                };
                let expected = Header { operation: run.program.operations[step.operation], elements: step.count, form };
                if *bytes != expected.encode() {
                    return Err(difference(rank, bytes, &expected));
                }
                peer(&mut self.peers, rank).consume(HEADER);
                moved = true;
            }
            run.folded[index].headers += 1;
        }
        Ok(moved)
    }

    fn take_padding(&mut self, run: &mut Run<'_>, index: usize, step: &FoldStep) -> Result<bool> {
        let mut moved = false;
        while run.folded[index].ends < step.sources.len() {
            if let Source::Rank { rank, form } = step.sources[run.folded[index].ends] {
                let bytes = step.count * run.kernels[step.operation].size(form);
                let padding = padded(bytes) - bytes;
                let there = look(&mut self.peers, &self.watch, rank, padding)?.len();
                if there < padding {
                    run.wait_to_read(rank, there);
                    return Ok(moved);
                }
                peer(&mut self.peers, rank).consume(padding);
            }
            run.folded[index].ends += 1;
            moved = true;
        }
        run.folded[index].done = true;
        Ok(true)
    }
}

/// The rank whose elements a fold stores as they come.
fn straight(step: &FoldStep) -> Option<usize> {
    match step.sources[..] {
        [Source::Rank { rank, form }] if !step.finish && form == step.to.form() => Some(rank),
        _ => None,
    }
}

/// What it means that another header came than must come.
fn difference(rank: usize, bytes: &[u8; HEADER], expected: &Header) -> Error {
    let describe = |header: &Header| match header.form {
        Form::Whole => format!("{}, {} elements in a message", header.operation, header.elements),
        Form::Partial => format!("{}, {} partial results in a message", header.operation, header.elements),
    };
    match Header::decode(bytes) {
        Ok(theirs) if theirs.operation != expected.operation => {
            Error::Mismatch { rank, theirs: theirs.operation.to_string(), ours: expected.operation.to_string() }
        }
        Ok(theirs) => Error::Mismatch { rank, theirs: describe(&theirs), ours: describe(expected) },
        Err(what) => Error::Malformed { rank, what: what.to_owned() },
    }
}
