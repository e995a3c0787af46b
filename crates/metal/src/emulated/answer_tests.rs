//! Known answers, put to the emulated stand-ins: all of them right, and each fault found.

use super::{Emulated, Fault};
use crate::answers::{Answers, Class, Question};
use crate::engine::Engine;
use crate::interface::{Metal, Properties};
use openmps_tile::DType;
use std::path::PathBuf;
use std::sync::Arc;

/// A build of macOS makes the device one that is asked.
fn device() -> Emulated {
    Emulated::like(|properties| Properties { os_build: "24B83".to_string(), ..properties })
}

/// A file of the test's own, which goes with this.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        File(std::env::temp_dir().join(format!("openmps-{name}-{}.answers", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

const ASKED: [(Class, Engine, &[DType]); 4] = [
    (Class::Product, Engine::Mps, &[DType::F32, DType::F16]),
    (Class::Product, Engine::MpsGraph, &[DType::BF16]),
    (Class::Convolution, Engine::MpsGraph, &[DType::F32, DType::F16, DType::BF16]),
    (Class::Attention, Engine::MpsGraph, &[DType::F32, DType::F16, DType::BF16]),
];

fn questions() -> impl Iterator<Item = Question> {
    ASKED.iter().flat_map(|&(class, engine, types)| types.iter().map(move |&dtype| Question { class, engine, dtype }))
}

#[test]
fn right_answers_are_known_as_such() {
    let (metal, file) = (Arc::new(device()), File::new("right"));
    let answers = Answers::in_file(file.0.clone(), metal.properties());
    for question in questions() {
        assert!(answers.is_right(&metal, question), "{:?}", answers.wrong());
    }
    assert_eq!(answers.wrong(), Vec::<String>::new());
    let text = std::fs::read_to_string(&file.0).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with(" right")).count(), questions().count(), "{text}");
}

#[test]
fn few_wrong_elements_of_a_large_result_are_found_and_remembered() {
    for class in [Class::Product, Class::Convolution, Class::Attention] {
        // What is smaller is right, as on record.
        let metal = Arc::new(device().with_fault(Fault::Library { class, bytes: 64 << 10 }));
        let file = File::new(&format!("wrong-{class:?}"));
        let answers = Answers::in_file(file.0.clone(), metal.properties());
        let of_class = || questions().filter(|question| question.class == class);
        for question in of_class() {
            assert!(!answers.is_right(&metal, question), "{question}");
        }
        assert_eq!(answers.wrong().len(), of_class().count());
        assert!(answers.wrong()[0].contains("times as far off as rounding explains; own kernels compute it"));
        // The next process asks nothing again: this device would answer rightly.
        let (next, metal) = (Answers::in_file(file.0.clone(), metal.properties()), Arc::new(device()));
        assert_eq!(next.wrong(), answers.wrong());
        assert!(of_class().all(|question| !next.is_right(&metal, question)));
    }
}

#[test]
fn a_question_that_ended_its_process_is_not_put_again() {
    let (metal, file) = (Arc::new(device()), File::new("asked"));
    std::fs::write(&file.0, "convolution mpsgraph bfloat16 asked\nnonsense\n").unwrap();
    let answers = Answers::in_file(file.0.clone(), metal.properties());
    let question = Question { class: Class::Convolution, engine: Engine::MpsGraph, dtype: DType::BF16 };
    assert!(!answers.is_right(&metal, question));
    assert!(answers.wrong()[0].contains("did not come back"), "{:?}", answers.wrong());
}

/// The emulator itself is asked nothing.
#[test]
fn a_device_without_a_build_of_macos_is_not_asked() {
    let metal = Arc::new(Emulated::like(|of| of).with_fault(Fault::Library { class: Class::Product, bytes: 0 }));
    let question = Question { class: Class::Product, engine: Engine::Mps, dtype: DType::F32 };
    assert!(Answers::new(metal.properties()).is_right(&metal, question));
}
