//! A picture of a training's loss.

use plotters::prelude::*;
use std::path::Path;

/// The loss of every step, and its mean over the last eight.
pub fn draw(title: &str, losses: &[f32], path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (800, 450)).into_drawing_area();
    root.fill(&WHITE)?;
    let top = losses.iter().copied().fold(0.0f32, f32::max) * 1.05;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(45)
        .build_cartesian_2d(0..losses.len(), 0f32..top)?;
    chart.configure_mesh().x_desc("step").y_desc("loss").draw()?;
    chart.draw_series(LineSeries::new(losses.iter().copied().enumerate(), BLUE.mix(0.35)))?;
    let smooth = (0..losses.len()).map(|i| {
        let window = &losses[i.saturating_sub(7)..=i];
        (i, window.iter().sum::<f32>() / window.len() as f32)
    });
    chart.draw_series(LineSeries::new(smooth, BLUE.stroke_width(2)))?;
    root.present()?;
    Ok(())
}
