//! The last stages of detectors, and what else finds a number of things that only a run can say.

use super::{Lowering, Table, Value, size_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::operators::Array;
use openmps::operators::operators::concat::Concat;
use openmps::operators::operators::detection::{MulticlassNms, Suppression};
use openmps::operators::operators::elementwise::{Activation, Binary, Call, Elementwise, Unary, broadcast};
use openmps::operators::operators::expand::Expand;
use openmps::operators::operators::gather::Gather;
use openmps::operators::operators::nonzero::Nonzero;
use std::slice::from_ref;

pub(super) const TABLE: Table = &[
    ("yolo_box", yolo_box),
    ("multiclass_nms3", multiclass_nms),
    ("nonzero", nonzero),
    ("masked_select", masked_select),
];

/// Sizes of a head's output.
struct Head {
    images: usize,
    anchors: usize,
    height: usize,
    width: usize,
}

impl Head {
    fn cells(&self) -> usize {
        self.height * self.width
    }
}

/// Boxes and scores of every anchor in every cell, as the paper on YOLOv3 has them; those of little confidence are zero.
fn yolo_box(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, sizes) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let anchors = operation.integers("anchors")?.unwrap_or_default();
    let iou_aware = operation.flag("iou_aware", false)?;
    let classes = size_of(operation, operation.integer("class_num", 1)?)?;
    let shape = lowering.shape(&x)?;
    let own = if iou_aware { anchors.len() / 2 } else { 0 };
    let head = match shape[..] {
        [images, channels, height, width]
            if anchors.len() > 1 && channels == anchors.len() / 2 * (5 + classes) + own && height * width > 0 =>
        {
            Head { images, anchors: anchors.len() / 2, height, width }
        }
        _ => return Err(wrong(operation, format!("{shape:?} for anchors {anchors:?} and {classes} classes"))),
    };
    let predicted = lowering.narrow(&x, 1, own, shape[1])?;
    let predicted = lowering.reshape(&predicted, &[head.images, head.anchors, 5 + classes, head.cells()])?;
    let confidence = lowering.narrow(&predicted, 2, 4, 5)?;
    let mut confidence = lowering.sigmoid(&confidence)?;
    if iou_aware {
        let overlap = lowering.narrow(&x, 1, 0, own)?;
        let overlap = lowering.reshape(&overlap, &[head.images, head.anchors, 1, head.cells()])?;
        let overlap = lowering.sigmoid(&overlap)?;
        let part = operation.float("iou_aware_factor", 0.5)?;
        let (own, overlap) = (lowering.power(&confidence, 1.0 - part)?, lowering.power(&overlap, part)?);
        confidence = lowering.binary(Binary::Multiply, &own, &overlap)?;
    }
    let threshold = lowering.number_like(&confidence, operation.float("conf_thresh", 0.0)?)?;
    let is_little = lowering.binary(Binary::LessThan, &confidence, &threshold)?;
    let boxes = lowering.yolo_corners(operation, &predicted, &sizes, &anchors, &head)?;
    let scores = lowering.narrow(&predicted, 2, 5, 5 + classes)?;
    let scores = lowering.sigmoid(&scores)?;
    let scores = lowering.binary(Binary::Multiply, &scores, &confidence)?;
    let mut outputs = Vec::with_capacity(2);
    for (found, width) in [(boxes, 4), (scores, classes)] {
        let zero = lowering.number_like(&found, 0.0)?;
        let found = lowering.choose(&is_little, &zero, &found)?;
        let found = lowering.transpose(&found, &[0, 1, 3, 2])?;
        outputs.push(lowering.reshape(&found, &[head.images, head.anchors * head.cells(), width])?);
    }
    Ok(outputs)
}

impl Lowering<'_> {
    fn sigmoid(&mut self, x: &Value) -> Result<Value> {
        self.one(Call::new(Elementwise::Activation(Activation::Sigmoid)), from_ref(x))
    }

    fn power(&mut self, x: &Value, exponent: f64) -> Result<Value> {
        let exponent = self.number_like(x, exponent)?;
        self.binary(Binary::Power, x, &exponent)
    }

    /// Left, top, right and bottom of each box, [images, anchors, 4, cells], in pixels of each image.
    fn yolo_corners(
        &mut self,
        operation: &Operation,
        predicted: &Value,
        sizes: &Value,
        anchors: &[i64],
        head: &Head,
    ) -> Result<Value> {
        let (scale, ratio) = (operation.float("scale_x_y", 1.0)?, operation.integer("downsample_ratio", 32)? as f64);
        let dtype = self.data_type(predicted)?;
        let sizes = self.cast(sizes, dtype)?;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        // Across, then down: which of an image's sizes, how many cells, and the cell's number of each place.
        for (axis, size_at, cells) in [(0, 1, head.width), (1, 0, head.height)] {
            let places = (0..cells).map(|cell| cell as f64 - 0.5 * (scale - 1.0)).collect();
            let line = if axis == 0 { [1, cells] } else { [cells, 1] };
            let places = Value::Known(Array::new(&line, places, dtype));
            let places = self.one(Expand { dims: vec![head.height as i64, head.width as i64] }, &[places])?;
            let places = self.reshape(&places, &[head.cells()])?;
            let lengths = (0..head.anchors).map(|anchor| anchors[2 * anchor + axis] as f64 / (ratio * cells as f64));
            let lengths = Value::Known(Array::new(&[head.anchors, 1, 1], lengths.collect(), dtype));
            let size = self.narrow(&sizes, 1, size_at, size_at + 1)?;
            let size = self.reshape(&size, &[head.images, 1, 1, 1])?;

            let centre = self.narrow(predicted, 2, axis, axis + 1)?;
            let centre = self.sigmoid(&centre)?;
            let centre = self.scaled(&centre, scale, 0.0)?;
            let centre = self.binary(Binary::Add, &centre, &places)?;
            let centre = self.scaled(&centre, 1.0 / cells as f64, 0.0)?;
            let centre = self.binary(Binary::Multiply, &centre, &size)?;
            let length = self.narrow(predicted, 2, 2 + axis, 3 + axis)?;
            let length = self.unary(Unary::Exp, &length)?;
            let length = self.binary(Binary::Multiply, &length, &lengths)?;
            let half = self.scaled(&length, 0.5, 0.0)?;
            let half = self.binary(Binary::Multiply, &half, &size)?;
            let (mut first, mut last) =
                (self.binary(Binary::Subtract, &centre, &half)?, self.binary(Binary::Add, &centre, &half)?);
            if operation.flag("clip_bbox", true)? {
                let (zero, edge) = (self.number_like(&first, 0.0)?, self.scaled(&size, 1.0, -1.0)?);
                first = self.binary(Binary::Fmax, &first, &zero)?;
                last = self.binary(Binary::Fmin, &last, &edge)?;
            }
            low.push(first);
            high.push(last);
        }
        low.extend(high);
        self.one(Concat { axis: 2 }, &low)
    }

    /// Outputs of which the graph tells how much is filled: the graph so far is run, and they are held.
    fn found(&mut self, outputs: Vec<Value>) -> Result<Vec<Value>> {
        let mut outputs = Value::List(outputs);
        self.run(&mut outputs)?;
        if let Value::List(members) = outputs { Ok(members) } else { Ok(Vec::new()) }
    }
}

/// Outputs: rows of class, score and box; the number of each box; how many there are in each image.
fn multiclass_nms(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    if lowering.optional(operation, 2)?.is_some() {
        return Err(wrong(operation, "boxes of regions rather than of images"));
    }
    let (boxes, scores) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let limit = |name| operation.integer(name, -1).map(|most| usize::try_from(most).ok());
    let how = Suppression {
        score: operation.float("score_threshold", 0.0)? as f32,
        overlap: operation.float("nms_threshold", 0.3)? as f32,
        eta: operation.float("nms_eta", 1.0)? as f32,
        candidates: limit("nms_top_k")?,
        kept: limit("keep_top_k")?,
        background: limit("background_label")?,
        normalised: operation.flag("normalized", true)?,
    };
    let outputs = lowering.apply(MulticlassNms { how }, &[boxes, scores])?;
    let mut outputs = lowering.found(outputs)?;
    let numbers = lowering.known(&outputs[2])?;
    let all = numbers.data.iter().sum::<f64>() as usize;
    for output in &mut outputs[..2] {
        *output = lowering.narrow(output, 0, 0, all)?;
    }
    Ok(outputs)
}

fn nonzero(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.places(&x)?])
}

impl Lowering<'_> {
    /// The coordinates of each element that is not zero, int64 of [found, rank].
    pub(super) fn places(&mut self, x: &Value) -> Result<Value> {
        let outputs = self.apply(Nonzero, from_ref(x))?;
        let outputs = self.found(outputs)?;
        let count = self.known(&outputs[1])?.data[0] as usize;
        self.narrow(&outputs[0], 0, 0, count)
    }

    /// The value under a larger shape, flat.
    fn flat(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        let whole = self.one(Expand { dims: dims.iter().map(|&size| size as i64).collect() }, from_ref(x))?;
        self.reshape(&whole, &[dims.iter().product()])
    }
}

fn masked_select(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, mask) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let (own, other) = (lowering.shape(&x)?, lowering.shape(&mask)?);
    let dims = broadcast("masked_select", &own, &other)?;
    let mask = lowering.flat(&mask, &dims)?;
    let places = lowering.places(&mask)?;
    let count = lowering.shape(&places)?[0];
    let places = lowering.reshape(&places, &[count])?;
    let x = lowering.flat(&x, &dims)?;
    Ok(vec![lowering.one(Gather { axis: 0 }, &[x, places])?])
}
