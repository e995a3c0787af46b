//! PaddlePaddle's device `mps`: the plug-in. Speaks Paddle's C interface, does no arithmetic.
