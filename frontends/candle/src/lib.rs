//! Candle operators with gradients on openmps.
