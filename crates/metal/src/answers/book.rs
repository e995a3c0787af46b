//! The answers on disk: a line each, added to the end of the file of this GPU, this build of macOS and this version of openmps.

use super::{Answer, Class, Question};
use crate::engine::Engine;
use crate::folder;
use crate::interface::Properties;
use openmps_tile::DType;
use std::collections::HashMap;
use std::fs::{OpenOptions, create_dir_all, read_to_string};
use std::io::Write;
use std::path::PathBuf;

/// What stands in the place of an answer while the question is put.
const ASKED: &str = "asked";
const RIGHT: &str = "right";
const WRONG: &str = "wrong: ";

/// The file, where there is a folder for it.
pub(super) struct Book(Option<PathBuf>);

impl Book {
    pub fn of(device: &Properties) -> Book {
        let known = !device.os_build.is_empty();
        Book(if known { folder::file(device, &format!("-{}.answers", device.os_build)) } else { None })
    }

    pub fn at(file: PathBuf) -> Book {
        Book(Some(file))
    }

    /// What is on record. A question that was put and not answered has ended its process.
    pub fn read(&self) -> HashMap<Question, Answer> {
        let text = self.0.as_ref().and_then(|file| read_to_string(file).ok()).unwrap_or_default();
        text.lines().filter_map(parse).collect()
    }

    /// Adds a line. What cannot be kept is asked again by the next process.
    pub fn write(&self, question: &Question, answer: Option<&Answer>) {
        let Some(file) = &self.0 else { return };
        let answer = match answer {
            None => ASKED.to_string(),
            Some(Answer::Right) => RIGHT.to_string(),
            Some(Answer::Wrong(how)) => format!("{WRONG}{how}"),
        };
        let add = || {
            file.parent().map_or(Ok(()), create_dir_all)?;
            // One write a line, so that processes do not mix theirs.
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(file)?
                .write_all(format!("{question} {answer}\n").as_bytes())
        };
        if let Err(error) = add() {
            tracing::debug!("{} is not kept: {error}", file.display());
        }
    }
}

fn parse(line: &str) -> Option<(Question, Answer)> {
    let mut words = line.splitn(4, ' ');
    let (class, engine, dtype, answer) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let class = [Class::Product, Class::Convolution, Class::Attention].into_iter().find(|of| of.name() == class)?;
    let dtype = [DType::F32, DType::F16, DType::BF16].into_iter().find(|of| of.to_string() == dtype)?;
    let question = Question { class, engine: Engine::named(engine)?, dtype };
    let answer = match answer {
        RIGHT => Answer::Right,
        ASKED => Answer::Wrong("it did not come back".to_string()),
        wrong => Answer::Wrong(wrong.strip_prefix(WRONG)?.to_string()),
    };
    Some((question, answer))
}
