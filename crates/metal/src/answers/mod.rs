//! Known answers: before one of Apple's libraries, or a kernel that is written for some GPUs only, computes a class of work on a machine, it
//! computes one problem of a model's size whose answer is checked in float64. What it answered is kept in the cache folder for this GPU, this build
//! of macOS and this version of openmps; a class that was answered wrongly is computed by the kernels that every GPU has.
//!
//! Small problems miss faults: products of 64 x 512 that were right where 1024 x 2048 was wrong are on record.

mod book;
mod check;
mod probe;

use crate::engine::{Engine, Family};
use crate::error::Result;
use crate::interface::{Metal, Properties};
use crate::matrix::TensorView;
use crate::stream::Stream;
use book::Book;
use openmps_tile::DType;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A class of work that is asked for as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Products of matrices.
    Product,
    /// Convolutions of any kind.
    Convolution,
    /// Attention.
    Attention,
}

impl Class {
    /// The class of a family of operators; none for those that are not asked for.
    pub fn of(family: Family) -> Option<Class> {
        match family {
            Family::MatrixProduct | Family::MatrixVector => Some(Class::Product),
            Family::Convolution | Family::DepthwiseConvolution | Family::ConvolutionTranspose => {
                Some(Class::Convolution)
            }
            Family::Attention => Some(Class::Attention),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Class::Product => "product",
            Class::Convolution => "convolution",
            Class::Attention => "attention",
        }
    }
}

/// A class of work in one element type, of one engine: what a known answer is computed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The class of work.
    pub class: Class,
    /// Who is asked; own kernels where they are written with tensor operations.
    pub engine: Engine,
    /// The element type.
    pub dtype: DType,
}

impl fmt::Display for Question {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.class.name(), self.engine.name(), self.dtype)
    }
}

/// How a question is computed: commands on a stream, from operands, into a result.
pub type Computation<'a, M> =
    dyn Fn(&Stream<M>, &[TensorView<<M as Metal>::Buffer>], &TensorView<<M as Metal>::Buffer>) -> Result<()> + 'a;

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The answer is right.
    Right,
    /// It is not, and how.
    Wrong(String),
}

/// The answers of one GPU.
pub struct Answers {
    known: Mutex<HashMap<Question, Answer>>,
    book: Book,
    /// Which GPU and which macOS, for reports.
    machine: String,
}

impl Answers {
    /// The answers that are on record for a device.
    pub fn new(device: &Properties) -> Answers {
        Answers::of(Book::of(device), device)
    }

    /// The answers that are on record in a file.
    pub fn in_file(file: PathBuf, device: &Properties) -> Answers {
        Answers::of(Book::at(file), device)
    }

    fn of(book: Book, device: &Properties) -> Answers {
        let machine = format!("{}, macOS {}", device.name, device.os_build);
        Answers { known: Mutex::new(book.read()), book, machine }
    }

    /// Whether one of Apple's libraries answers rightly what was asked; asked now, where that is not known. A device without a build of macOS is
    /// none of Apple's, and is asked nothing.
    pub fn is_right<M: Metal>(&self, metal: &Arc<M>, question: Question) -> bool {
        self.is_right_by(metal, question, &|stream, inputs, out| {
            probe::by_library(&**metal, question, stream, inputs, out)
        })
    }

    /// Whether a computation of the caller's answers rightly what was asked.
    pub fn is_right_by<M: Metal>(&self, metal: &Arc<M>, question: Question, computation: &Computation<'_, M>) -> bool {
        if metal.properties().os_build.is_empty() {
            return true;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = known.entry(question).or_insert_with(|| {
            // Written first: should the library end the process, the next one knows.
            self.book.write(&question, None);
            let answer = match probe::ask(metal, question, computation) {
                Ok(()) => Answer::Right,
                // A compiler's log has many lines; a report has one.
                Err(error) => Answer::Wrong(error.to_string().replace('\n', " ")),
            };
            self.book.write(&question, Some(&answer));
            if let Answer::Wrong(how) = &answer {
                tracing::warn!("{}", self.line(&question, how));
            }
            answer
        });
        *answer == Answer::Right
    }

    /// What was answered wrongly, a line each.
    pub fn wrong(&self) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(question, answer): (&Question, &Answer)| match answer {
            Answer::Right => None,
            Answer::Wrong(how) => Some(self.line(question, how)),
        };
        let mut lines: Vec<String> = known.iter().filter_map(line).collect();
        lines.sort();
        lines
    }

    /// Whether a wrong answer is on record, for those who cannot ask.
    pub fn is_known_wrong(&self, question: &Question) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(known.get(question), Some(Answer::Wrong(_)))
    }

    fn line(&self, question: &Question, how: &str) -> String {
        let instead = match question.engine {
            Engine::Kernels => "kernels without tensor operations",
            Engine::Mps | Engine::MpsGraph => "own kernels",
        };
        format!("{question} on {}: {how}; {instead} compute it", self.machine)
    }
}
