//! Gradients of first to third order of calls that are recorded on a tape, beside what they are by hand; and that nothing runs unasked.

#[allow(dead_code, reason = "other tests use the rest")]
mod harness;

use harness::{Layout, Tensor, vouched};
use openmps_graph::entry::{Input, Values};
use openmps_graph::gradient::{Node, Recorder};
use openmps_graph::operators::elementwise::{Binary, Call, Elementwise, Unary};
use openmps_graph::operators::expand::Expand;
use openmps_graph::tape::Tape;
use openmps_graph::{DType, View};
use openmps_runtime::Device;
use std::sync::Arc;

fn tensor(device: &Device, dims: &[usize], values: &[f64], layout: Layout) -> Tensor {
    let input = Input { values: Values::Given(values.to_vec()), ..Input::of(dims, Values::Counting) };
    Tensor::make(device, &input, DType::F64, layout, 0)
}

fn read(device: &Device, view: &View) -> Vec<f64> {
    let mut bytes = vec![0; view.len() * 8];
    let view = View::strided(view.address, view.dtype, &view.shape, &view.strides).expect("a view");
    vouched(&device.queue()).read(&view, &mut bytes).expect("memory that lives");
    bytes.chunks_exact(8).map(|bytes| f64::from_ne_bytes(bytes.try_into().expect("eight"))).collect()
}

fn map(tape: &mut Tape, operator: Elementwise, inputs: &[Node]) -> Node {
    tape.record(Arc::new(Call::new(operator)), inputs).expect("a legal call")[0]
}

#[test]
fn gradients_of_three_orders() {
    let device = Device::get(0).expect("a device");
    let queue = device.queue();
    let (x, dy) = (tensor(&device, &[3], &[0.5, -1.0, 2.0], Layout::Dense), [1.0, 2.0, -0.5]);
    let upstream = tensor(&device, &[3], &dy, Layout::Spaced);
    let mut tape = Tape::new("test", vouched(&queue));
    let (x, dy) = (tape.given(x.view.clone()), tape.given(upstream.view.clone()));
    let cube = map(&mut tape, Elementwise::Unary(Unary::Cube), &[x]);
    let first = tape.gradients(&[(cube, dy)], &[x]).expect("a gradient")[0].expect("one by x");
    let second = tape.gradients(&[(first, dy)], &[x, dy]).expect("a gradient");
    let [by_x, by_dy] = second[..] else { panic!("two") };
    let third = tape.gradients(&[(by_x.expect("one by x"), dy)], &[x]).expect("a gradient")[0].expect("one by x");
    let mut value = |node: Node| read(&device, &tape.value(node).expect("computed"));
    assert_eq!(value(first), [0.75, 6.0, -6.0]);
    assert_eq!(value(by_x.expect("one by x")), [3.0, -24.0, 3.0]);
    assert_eq!(value(by_dy.expect("one by dy")), [0.75, 6.0, -6.0]);
    assert_eq!(value(third), [6.0, 48.0, -0.75]);
}

#[test]
fn what_is_repeated_is_summed_up() {
    let device = Device::get(0).expect("a device");
    let queue = device.queue();
    let (row, upstream) = ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (row, upstream) =
        (tensor(&device, &[1, 2], &row, Layout::Dense), tensor(&device, &[3, 2], &upstream, Layout::Transposed));
    let mut tape = Tape::new("test", vouched(&queue));
    let (x, dy) = (tape.given(row.view.clone()), tape.given(upstream.view.clone()));
    let wide = tape.record(Arc::new(Expand { dims: vec![3, 2] }), &[x]).expect("a legal call")[0];
    let flat = tape.record_reshape(wide, &[6]).expect("as many elements");
    let upstream = tape.record_reshape(dy, &[6]).expect("as many elements");
    let square = map(&mut tape, Elementwise::Unary(Unary::Square), &[flat]);
    let found = tape.gradients(&[(square, upstream)], &[x, dy]).expect("a gradient");
    assert_eq!(found[1], None, "no value depends on what weighs it");
    let view = tape.value(found[0].expect("one by x")).expect("computed");
    assert_eq!((&view.shape[..], read(&device, &view)), (&[1, 2][..], vec![18.0, 48.0]));
    // The repeated row is where the row is.
    assert_eq!(tape.value(wide).expect("seen").address, row.view.address);
}

#[test]
fn nothing_is_read_that_no_value_needs() {
    let device = Device::get(0).expect("a device");
    let queue = device.queue();
    let ddx = tensor(&device, &[2], &[3.0, 4.0], Layout::Dense);
    let mut tape = Tape::new("test", vouched(&queue));
    // Of the second gradient of a sum only the shapes of x, y and dy count.
    let [x, y, dy] = [0; 3].map(|nowhere| tape.given(View::dense(nowhere, DType::F64, &[2]).expect("a shape")));
    let sum = map(&mut tape, Elementwise::Binary(Binary::Add), &[x, y]);
    let first = tape.gradients(&[(sum, dy)], &[x, y]).expect("a gradient")[0].expect("one by x");
    let ddx = tape.given(ddx.view.clone());
    let second = tape.gradients(&[(first, ddx)], &[dy]).expect("a gradient")[0].expect("one by dy");
    assert_eq!(read(&device, &tape.value(second).expect("computed")), [3.0, 4.0]);
}
