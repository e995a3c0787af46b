//! Steps of optimizers. The learning rate and the powers of beta are tensors of one element, as Paddle keeps them.

use super::expression::Expr;
use super::row::*;

/// The square root of RAdam's variance ratio, of a length that rows of steps reach and the longest they can have.
fn rectification<'s>(length: Expr<'s>, longest: Expr<'s>) -> Expr<'s> {
    ((length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)).sqrt()
}

fn rectification_f64(length: f64, longest: f64) -> f64 {
    ((length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)).sqrt()
}

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
        AccumulateSquare "accumulate_square", "v + g^2: v, g.", TWO, [], FLOATS => Same, 1024.0, |x, _| x[0] + x[1] * x[1], |x, _| x[0] + x[1] * x[1];
        RootStep "root_step", "p - rate g / (sqrt(v) + epsilon): p, g, v, rate (Duchi et al., 2011).", FOUR, ["epsilon" = 0.001], FLOATS => Same, 1024.0,
            |x, s| x[0] - x[3] * (x[1] / (x[2].sqrt() + s[0])), |x, s| x[0] - x[3] * (x[1] / (x[2].sqrt() + s[0]));
        QuotientStep "quotient_step", "p - rate m / n: p, m, n, rate.", FOUR, [], FLOATS => Same, 1024.0,
            |x, _| x[0] - x[3] * (x[1] / x[2]), |x, _| x[0] - x[3] * (x[1] / x[2]);
        AdadeltaChange "adadelta_change", "g sqrt(u + epsilon) / sqrt(v + epsilon): u, v, g (Zeiler, 2012).", THREE, ["epsilon" = 0.001], FLOATS => Same, 64.0,
            |x, s| (x[0] + s[0]).sqrt() / (x[1] + s[0]).sqrt() * x[2], |x, s| (x[0] + s[0]).sqrt() / (x[1] + s[0]).sqrt() * x[2];
        LargestMoment "adamax_norm", "the larger of |g| and beta n + epsilon: n, g.", TWO, ["beta" = 0.75, "epsilon" = 0.001], FLOATS => Same, 8.0,
            |x, s| x[1].abs().max(x[0] * s[0] + s[1]),
            |x, s| { let (a, b) = (x[1].abs(), x[0] * s[0] + s[1]); if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) } };
        UnbiasedRate "unbiased_rate", "rate / (1 - b): rate, b.", TWO, [], FLOATS => Same, 8.0, |x, _| x[0] / (1.0 - x[1]), |x, _| x[0] / (1.0 - x[1]);
        RootMoment "rmsprop_moment", "mu m + rate g / sqrt(v + epsilon): m, g, v, rate.", FOUR, ["mu" = 0.75, "epsilon" = 0.001], FLOATS => Same, 1024.0,
            |x, s| x[0] * s[0] + x[3] * x[1] / (x[2] + s[1]).sqrt(), |x, s| x[0] * s[0] + x[3] * x[1] / (x[2] + s[1]).sqrt();
        Variance "centred_square", "v - m^2: v, m.", TWO, [], FLOATS => Same, 1024.0, |x, _| x[0] - x[1] * x[1], |x, _| x[0] - x[1] * x[1];
        Blend "blend", "a x + b y: x, y, a, b.", FOUR, [], FLOATS => Same, 8.0, |x, _| x[0] * x[2] + x[1] * x[3], |x, _| x[0] * x[2] + x[1] * x[3];
        RectifiedLength "radam_length", "(r (beta - b) + b) / (1 - b), the sum of RAdam's weighted steps: r, b.", TWO, ["beta" = 0.75], FLOATS => Same, 64.0,
            |x, s| (x[0] * (s[0] - x[1]) + x[1]) / (1.0 - x[1]), |x, s| (x[0] * (s[0] - x[1]) + x[1]) / (1.0 - x[1]);
        Rectification "radam_rectification", "RAdam's rectification times sqrt(1 - b), or 0 in its first steps: r, b (Liu et al., 2020).", TWO, ["longest" = 7.0], FLOATS => Same, 64.0,
            |x, s| { let length = s[0] - x[0] * 2.0; length.gt(5.0).select(rectification(length, s[0]) * (1.0 - x[1]).sqrt(), 0.0) },
            |x, s| { let length = s[0] - x[0] * 2.0; if length > 5.0 { rectification_f64(length, s[0]) * (1.0 - x[1]).sqrt() } else { 0.0 } };
        RectifiedStep "radam_step", "p - rate m (c / (sqrt(v) + epsilon), or 1 where c is 0): p, m, v, rate, c.", FIVE, ["epsilon" = 0.001], FLOATS => Same, 1024.0,
            |x, s| x[0] - x[3] * x[1] * x[4].gt(0.0).select(x[4] / (x[2].sqrt() + s[0]), 1.0),
            |x, s| x[0] - x[3] * x[1] * if x[4] > 0.0 { x[4] / (x[2].sqrt() + s[0]) } else { 1.0 };
        LambDirection "lamb_direction", "m / (1 - b1) / (sqrt(v / (1 - b2)) + epsilon) + decay p: p, m, v, b1, b2 (You et al., 2020).", FIVE, ["decay" = 0.125, "epsilon" = 0.001], FLOATS => Same, 1024.0,
            |x, s| x[1] / (1.0 - x[3]) / ((x[2] / (1.0 - x[4])).sqrt() + s[1]) + x[0] * s[0],
            |x, s| x[1] / (1.0 - x[3]) / ((x[2] / (1.0 - x[4])).sqrt() + s[1]) + x[0] * s[0];
        TrustRate "trust_rate", "rate n / d, or the rate alone where one of the norms is 0: rate, n, d.", THREE, [], FLOATS => Same, 8.0,
            |x, _| x[1].gt(0.0).and(x[2].gt(0.0)).select(x[0] * (x[1] / x[2]), x[0]),
            |x, _| if x[1] > 0.0 && x[2] > 0.0 { x[0] * (x[1] / x[2]) } else { x[0] };
        LarsRate "lars_rate", "rate coefficient n / (d + decay n + epsilon), or the rate alone where one of the norms is 0: rate, n, d.", THREE,
            ["coefficient" = 0.5, "decay" = 0.125, "epsilon" = 0.001], FLOATS => Same, 16.0,
            |x, s| x[1].gt(0.0).and(x[2].gt(0.0)).select(x[0] * s[0] * x[1] / (x[2] + x[1] * s[1] + s[2]), x[0]),
            |x, s| if x[1] > 0.0 && x[2] > 0.0 { x[0] * s[0] * x[1] / (x[2] + x[1] * s[1] + s[2]) } else { x[0] };
        LarsVelocity "lars_velocity", "mu v + rate (g + decay p): v, g, p, rate (You et al., 2017).", FOUR, ["mu" = 0.75, "decay" = 0.125], FLOATS => Same, 16.0,
            |x, s| x[0] * s[0] + x[3] * (x[1] + x[2] * s[1]), |x, s| x[0] * s[0] + x[3] * (x[1] + x[2] * s[1]);
        AveragedGradient "asgd_sum", "d - y + g, a gradient in place of the one of its last turn: d, y, g.", THREE, [], FLOATS => Same, 1024.0,
            |x, _| x[0] - x[1] + x[2], |x, _| x[0] - x[1] + x[2];
        SignFactor "rprop_factor", "grow where both gradients have one sign, shrink where the sign has changed, else 1: g, previous, grow, shrink.", FOUR, [], FLOATS => Same, 0.0,
            |x, _| { let both = x[0] * x[1]; both.gt(0.0).select(x[2], both.lt(0.0).select(x[3], 1.0)) },
            |x, _| { let both = x[0] * x[1]; if both > 0.0 { x[2] } else if both < 0.0 { x[3] } else { 1.0 } };
        KeptGradient "rprop_gradient", "g unless its sign has changed: g, previous (Riedmiller and Braun, 1993).", TWO, [], FLOATS => Same, 0.0,
            |x, _| (x[0] * x[1]).lt(0.0).select(x[0].number(0.0), x[0]), |x, _| if x[0] * x[1] < 0.0 { 0.0 } else { x[0] };
    }
}
