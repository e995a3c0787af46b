//! Steps of optimizers. The learning rate and the powers of beta are tensors of one element, as Paddle keeps them.

use super::row::*;

rows! {
    /// The formulas from which optimizers are put together.
    Optimizer {
        Sgd "sgd", "p - rate g: p, g, rate.", THREE, [], FLOATS => Same, 8.0, |x, _| x[0] - x[2] * x[1], |x, _| x[0] - x[2] * x[1];
        Regularized "regularized_gradient", "rescale g + decay p, the gradient with its L2 penalty: g, p.", TWO, ["rescale" = 0.5, "decay" = 0.25], FLOATS => Same, 8.0,
            |x, s| x[0] * s[0] + x[1] * s[1], |x, s| x[0] * s[0] + x[1] * s[1];
        Velocity "momentum_velocity", "mu v + g: v, g.", TWO, ["mu" = 0.75], FLOATS => Same, 8.0, |x, s| x[0] * s[0] + x[1], |x, s| x[0] * s[0] + x[1];
        Nesterov "nesterov_step", "p - rate (g + mu v): p, g, v, rate.", FOUR, ["mu" = 0.75], FLOATS => Same, 8.0,
            |x, s| x[0] - x[3] * (x[1] + x[2] * s[0]), |x, s| x[0] - x[3] * (x[1] + x[2] * s[0]);
        Moment "adam_moment", "beta m + (1 - beta) g: m, g.", TWO, ["beta" = 0.75], FLOATS => Same, 8.0,
            |x, s| x[0] * s[0] + x[1] * (1.0 - s[0]), |x, s| x[0] * s[0] + x[1] * (1.0 - s[0]);
        SquareMoment "adam_square_moment", "beta v + (1 - beta) g^2: v, g.", TWO, ["beta" = 0.75], FLOATS => Same, 8.0,
            |x, s| x[0] * s[0] + x[1] * x[1] * (1.0 - s[0]), |x, s| x[0] * s[0] + x[1] * x[1] * (1.0 - s[0]);
        AdamRate "adam_rate", "rate sqrt(1 - b2) / (1 - b1), the bias-corrected rate: rate, b1, b2.", THREE, [], FLOATS => Same, 8.0,
            |x, _| x[0] * (1.0 - x[2]).sqrt() / (1.0 - x[1]), |x, _| x[0] * (1.0 - x[2]).sqrt() / (1.0 - x[1]);
        AdamFloor "adam_floor", "epsilon sqrt(1 - b2).", ONE, ["epsilon" = 0.001], FLOATS => Same, 8.0,
            |x, s| (1.0 - x[0]).sqrt() * s[0], |x, s| (1.0 - x[0]).sqrt() * s[0];
        AdamStep "adam_step", "p - rate m / (sqrt(v) + floor): p, m, v, rate, floor (Kingma and Ba, 2015).", FIVE, [], FLOATS => Same, 1024.0,
            |x, _| x[0] - x[3] * (x[1] / (x[2].sqrt() + x[4])), |x, _| x[0] - x[3] * (x[1] / (x[2].sqrt() + x[4]));
        Decay "weight_decay", "p (1 - rate decay): p, rate (Loshchilov and Hutter, 2019).", TWO, ["decay" = 0.125], FLOATS => Same, 8.0,
            |x, s| x[0] * (1.0 - x[1] * s[0]), |x, s| x[0] * (1.0 - x[1] * s[0]);
    }
}
