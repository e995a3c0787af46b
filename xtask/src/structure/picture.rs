//! A graph as a picture.

use crate::shell::Result;
use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;
use petgraph::graph::DiGraph;
use petgraph::visit::EdgeRef;
use std::path::Path;

/// Width of a letter and height of a box, in the picture's units.
const LETTER: f64 = 9.0;
const HEIGHT: f64 = 40.0;

/// Draws a graph from top to bottom into an SVG file.
pub fn draw(graph: &DiGraph<String, ()>, file: &Path) -> Result<()> {
    let mut picture = VisualGraph::new(Orientation::TopToBottom);
    let nodes: Vec<_> = graph
        .node_weights()
        .map(|name| {
            let size = Point::new(name.len() as f64 * LETTER + 20.0, HEIGHT);
            let shape = ShapeKind::new_box(name);
            picture.add_node(Element::create(shape, StyleAttr::simple(), Orientation::TopToBottom, size))
        })
        .collect();
    for edge in graph.edge_references() {
        picture.add_edge(Arrow::simple(""), nodes[edge.source().index()], nodes[edge.target().index()]);
    }
    let mut svg = SVGWriter::new();
    picture.do_it(false, false, false, &mut svg);
    std::fs::write(file, svg.finalize()).map_err(|error| format!("{}: {error}", file.display()))
}
