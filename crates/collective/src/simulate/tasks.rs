//! A rank's program with what must have happened before each send and fold, small enough for thousands of ranks.

use crate::fold::size;
use crate::program::{Program, Source};
use std::collections::HashMap;

/// Elements that go to a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendTask {
    pub to: u32,
    pub bytes: u32,
    /// What must happen before it can be sent: its fold, and the message before it to the same rank.
    pub missing: u8,
    /// The next message to the same rank.
    pub next: Option<u32>,
}

/// Elements that are folded.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldTask {
    /// Of all operands.
    pub bytes: u64,
    /// Operands that other ranks send.
    pub messages: u32,
    /// What must happen before it: messages, the folds of the messages before them, and the fold that it comes after.
    pub missing: u32,
}

/// What one of these follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Send(u32),
    Fold(u32),
}

/// One rank's part.
pub(super) struct Tasks {
    pub sends: Vec<SendTask>,
    pub folds: Vec<FoldTask>,
    /// By fold: what may go on when it has been done.
    after: Vec<(u32, Task)>,
    /// By rank and number of the message: the fold that it goes to.
    coming: Vec<(u32, u32, u32)>,
}

impl Tasks {
    pub fn new(program: &Program) -> Tasks {
        let mut tasks = Tasks { sends: Vec::new(), folds: Vec::new(), after: Vec::new(), coming: Vec::new() };
        tasks.add_sends(program);
        tasks.add_folds(program);
        tasks.after.sort_unstable_by_key(|&(fold, _)| fold);
        tasks.coming.sort_unstable();
        tasks
    }

    fn add_sends(&mut self, program: &Program) {
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (index, send) in program.sends.iter().enumerate() {
            let before = last.insert(send.to, index);
            if let Some(before) = before {
                self.sends[before].next = Some(index as u32);
            }
            if let Some(fold) = send.after {
                self.after.push((fold as u32, Task::Send(index as u32)));
            }
            let bytes = program.bytes(send.operation, send.from.form(), send.count) as u32;
            let missing = u8::from(before.is_some()) + u8::from(send.after.is_some());
            self.sends.push(SendTask { to: send.to as u32, bytes, missing, next: None });
        }
    }

    fn add_folds(&mut self, program: &Program) {
        let mut last: HashMap<usize, (u32, u32)> = HashMap::new();
        for (index, fold) in program.folds.iter().enumerate() {
            let mut task = FoldTask { bytes: 0, messages: 0, missing: 0 };
            let element = program.operations[fold.operation].element;
            for source in &fold.sources {
                let form = match *source {
                    Source::Own(place) => place.form(),
                    Source::Rank { rank, form } => {
                        let (number, before) =
                            last.get(&rank).map_or((0, None), |&(number, fold)| (number + 1, Some(fold)));
                        last.insert(rank, (number, index as u32));
                        self.coming.push((rank as u32, number, index as u32));
                        if let Some(before) = before {
                            self.after.push((before, Task::Fold(index as u32)));
                        }
                        task.messages += 1;
                        task.missing += 1 + u32::from(before.is_some());
                        form
                    }
                };
                task.bytes += (fold.count * size(element, form)) as u64;
            }
            if let Some(after) = fold.after {
                self.after.push((after as u32, Task::Fold(index as u32)));
                task.missing += 1;
            }
            self.folds.push(task);
        }
    }

    /// What may go on when a fold has been done.
    pub fn after(&self, fold: u32) -> impl Iterator<Item = Task> {
        let begin = self.after.partition_point(|&(before, _)| before < fold);
        self.after[begin..].iter().take_while(move |&&(before, _)| before == fold).map(|&(_, task)| task)
    }

    /// The fold that a rank's message of this number goes to.
    pub fn fold_of(&self, from: u32, number: u32) -> Option<u32> {
        let place = self.coming.partition_point(|&(rank, at, _)| (rank, at) < (from, number));
        self.coming.get(place).filter(|&&(rank, at, _)| (rank, at) == (from, number)).map(|&(.., fold)| fold)
    }
}
