//! What a stream moves, over the recorder: pieces of what is long, staging memory that is bounded and used again, nothing left unbound.

use openmps_metal::arguments::{Kernel, Parameter, Resolved};
use openmps_metal::interface::{Language, MathMode};
use openmps_metal::recorder::{RecordedBuffer, Said};
use openmps_metal::{CommitPolicy, Launch, Metal, PipelineKey, PipelineLimits, Recorder, Stream, limits};
use std::ptr::NonNull;
use std::sync::Arc;

fn bench() -> (Recorder, Stream<Recorder>) {
    let recorder = Recorder::default();
    let stream = Stream::new(Arc::new(recorder.clone()), "test", CommitPolicy::default()).unwrap();
    (recorder, stream)
}

/// A buffer of any length: the recorder follows no address.
fn long(recorder: &Recorder, bytes: usize) -> Resolved<RecordedBuffer> {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1 << 40);
    let begin = NEXT.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    let address = NonNull::new(begin as *mut u8).unwrap();
    // SAFETY: nothing runs on the recorder, and nobody reads the buffer.
    let buffer = recorder.autorelease_pool(|| unsafe { recorder.import(address, bytes) }).unwrap();
    Resolved { buffer, offset: 0, extent: begin..begin + bytes }
}

fn settle(recorder: &Recorder, stream: Stream<Recorder>) {
    drop(stream);
    assert_eq!(recorder.violations(), Vec::<String>::new());
    assert_eq!(recorder.outstanding(), (0, 0));
}

#[test]
fn copies_and_fills_of_4_gib_and_more_go_in_pieces() {
    const GIB: usize = 1 << 30;
    let (recorder, stream) = bench();
    let bytes = 5 * GIB + limits::PAGE;
    let (x, y) = (long(&recorder, bytes), long(&recorder, bytes));
    stream.copy(&y, &x, bytes).unwrap();
    stream.fill(&x, bytes, 7).unwrap();
    stream.finish().unwrap();
    let (mut copied, mut filled) = (Vec::new(), Vec::new());
    for said in recorder.said() {
        match said {
            Said::Copy { destination, source, bytes } => {
                assert_eq!(destination.1, source.1);
                copied.push(source.1..source.1 + bytes);
            }
            Said::Fill { range, byte: 7, .. } => filled.push(range),
            _ => {}
        }
    }
    for pieces in [copied, filled] {
        assert!(pieces.iter().all(|piece| piece.len() <= GIB), "{pieces:?}");
        assert_eq!((pieces[0].start, pieces.last().unwrap().end), (0, bytes));
        assert!(pieces.windows(2).all(|two| two[0].end == two[1].start), "{pieces:?}");
    }
    settle(&recorder, stream);
}

#[test]
fn staging_memory_is_bounded_and_used_again() {
    let (recorder, stream) = bench();
    let first = stream.stage(&[1; 100]).unwrap();
    let second = stream.stage(&[2; 100]).unwrap();
    assert_eq!(first.place.buffer, second.place.buffer, "one chunk has room for both");
    assert!(second.place.offset >= 100 && second.place.offset.is_multiple_of(limits::BLIT_ALIGNMENT));
    drop(first);
    // The second is still read: nothing may be written over it.
    let third = stream.stage(&[3; 100]).unwrap();
    assert!(third.place.offset >= second.place.offset + 100);
    drop((second, third));
    assert_eq!(stream.stage(&[4; 100]).unwrap().place.offset, 0, "nobody reads the chunk any more");
    // Long ones have chunks of their own, up to a limit, and go when nobody reads them.
    let large = vec![0; 100 << 20];
    let held: Vec<_> = (0..2).map(|_| stream.stage(&large).unwrap()).collect();
    assert!(stream.stage(&large).is_none(), "300 MiB at once");
    assert!(stream.stage(&[5; 100]).is_some());
    drop(held);
    assert!(stream.stage(&large).is_some());
    settle(&recorder, stream);
}

/// Metal's validation ends the process over an index without a buffer, and over an offset at a buffer's end.
#[test]
fn null_and_the_end_of_a_buffer_are_bound_to_something() {
    let (recorder, stream) = bench();
    let pipeline = PipelineKey {
        source: "kernel void k() {}".into(),
        entry: "k".to_string(),
        math: MathMode::Safe,
        language: Language::Metal3_0,
        threads: 32,
        constants: Vec::new(),
    };
    let parameters = [0, 1, 2].map(|index| Parameter::Buffer { index, written: true }).to_vec();
    let kernel = Kernel { pipeline, threads: [32, 1, 1], threadgroup_memory: Vec::new(), parameters, numbers: 0 };
    let x = long(&recorder, limits::PAGE);
    let limits = PipelineLimits { max_threads: 32, simd_width: 32, static_threadgroup_memory: 0 };
    let compiled = Arc::new(kernel.pipeline.clone());
    let arguments = &[0, x.extent.start as u64, x.extent.end as u64];
    let launch = Launch { kernel: &kernel, pipeline: &compiled, limits, grid: [1, 1, 1].into(), arguments };
    let resolve = |address: usize| Some(Resolved { offset: address - x.extent.start, ..x.clone() });
    // SAFETY: a recorder runs nothing.
    unsafe { stream.dispatch(&launch, resolve) }.unwrap();
    stream.finish().unwrap();
    let bound: Vec<_> = recorder.said().into_iter().filter(|said| matches!(said, Said::Buffer { .. })).collect();
    assert_eq!(bound.len(), 3, "{bound:?}");
    settle(&recorder, stream);
}
