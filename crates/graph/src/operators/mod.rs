//! Every operator: one file each, or one table for a family whose members are a single expression.
