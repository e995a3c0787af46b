//! Cells of recurrent networks. A gate is given by the number before its logistic function.

use super::expression::Expr;
use super::row::*;

fn gate(x: Expr<'_>) -> Expr<'_> {
    1.0 / (1.0 + (-x).exp())
}

fn gate_f64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The logistic function's slope.
fn slope(x: Expr<'_>) -> Expr<'_> {
    let open = gate(x);
    open * (1.0 - open)
}

fn slope_f64(x: f64) -> f64 {
    gate_f64(x) * (1.0 - gate_f64(x))
}

/// The slope of tanh.
fn bend(x: Expr<'_>) -> Expr<'_> {
    let bent = x.tanh();
    1.0 - bent * bent
}

fn bend_f64(x: f64) -> f64 {
    1.0 - x.tanh() * x.tanh()
}

rows! {
    /// Steps of LSTM (Hochreiter and Schmidhuber, 1997; Gers et al., 2000) and GRU (Cho et al., 2014), with their gradients.
    Recurrent {
        LstmCell "lstm_cell", "sigmoid(f) c + sigmoid(i) tanh(g): i, f, g, c.", FOUR, [], FLOATS => Same, 32.0,
            |x, _| gate(x[1]) * x[3] + gate(x[0]) * x[2].tanh(), |x, _| gate_f64(x[1]) * x[3] + gate_f64(x[0]) * x[2].tanh();
        GatedTanh "gated_tanh", "sigmoid(o) tanh(c): o, c.", TWO, [], FLOATS => Same, 32.0, |x, _| gate(x[0]) * x[1].tanh(), |x, _| gate_f64(x[0]) * x[1].tanh();
        GatedTanhGate "gated_tanh_grad_gate", "The gradient of sigmoid(o) tanh(c) by o: o, c, dy.", THREE, [], FLOATS => Same, 32.0,
            |x, _| x[2] * x[1].tanh() * slope(x[0]), |x, _| x[2] * x[1].tanh() * slope_f64(x[0]);
        GatedTanhValue "gated_tanh_grad_value", "The gradient of sigmoid(o) tanh(c) by c: o, c, dy.", THREE, [], FLOATS => Same, 32.0,
            |x, _| x[2] * gate(x[0]) * bend(x[1]), |x, _| x[2] * gate_f64(x[0]) * bend_f64(x[1]);
        Gated "gated", "sigmoid(f) c: f, c.", TWO, [], FLOATS => Same, 32.0, |x, _| gate(x[0]) * x[1], |x, _| gate_f64(x[0]) * x[1];
        GatedGate "gated_grad_gate", "The gradient of sigmoid(f) c by f: f, c, dy.", THREE, [], FLOATS => Same, 32.0,
            |x, _| x[2] * x[1] * slope(x[0]), |x, _| x[2] * x[1] * slope_f64(x[0]);
        GruCandidate "gru_candidate", "x + sigmoid(r) h: r, h, x.", THREE, [], FLOATS => Same, 32.0, |x, _| x[2] + gate(x[0]) * x[1], |x, _| x[2] + gate_f64(x[0]) * x[1];
        GruOutput "gru_output", "sigmoid(z) h + (1 - sigmoid(z)) tanh(u): z, h, u.", THREE, [], FLOATS => Same, 32.0,
            |x, _| gate(x[0]) * x[1] + gate(-x[0]) * x[2].tanh(), |x, _| gate_f64(x[0]) * x[1] + gate_f64(-x[0]) * x[2].tanh();
        GruOutputGate "gru_output_grad_gate", "The gradient of gru_output by z: z, h, u, dy.", FOUR, [], FLOATS => Same, 32.0,
            |x, _| x[3] * (x[1] - x[2].tanh()) * slope(x[0]), |x, _| x[3] * (x[1] - x[2].tanh()) * slope_f64(x[0]);
        GruOutputCandidate "gru_output_grad_candidate", "The gradient of gru_output by u: z, u, dy.", THREE, [], FLOATS => Same, 32.0,
            |x, _| x[2] * gate(-x[0]) * bend(x[1]), |x, _| x[2] * gate_f64(-x[0]) * bend_f64(x[1]);
    }
}
