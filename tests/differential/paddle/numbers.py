"""Element types as numbers: units of rounding, and what a type can hold."""

import numpy as np

UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def rounded_to(values: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that this type can hold, as float64."""
    with np.errstate(all="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtype).astype("float64")
        bits = values.astype("float32").view("uint32")
        kept = ((bits.astype("uint64") + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype("uint32")
        return np.where(np.isnan(values), np.nan, kept.view("float32")).astype("float64")
