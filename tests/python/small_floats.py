"""What ml_dtypes makes of numbers in the floats of 4, 6 and 8 bits: writes tests/lang/small_floats.npz.

Usage: small_floats.py OUT.npz
"""

import sys

import ml_dtypes
import numpy as np

NAMES = ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]

arrays = {}
for name in NAMES:
    t = getattr(ml_dtypes, name)
    codes = np.arange(1 << ml_dtypes.finfo(t).bits, dtype="uint8")
    values = codes.view(t).astype("float32")
    finite = np.unique(values[np.isfinite(values)])
    middle = ((finite[1:].astype("float64") + finite[:-1]) / 2).astype("float32")
    top = finite[-1] * np.float32(1 + 2.0 ** -3)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40, 3e38, -3e38, top, -top], dtype="float32")
    with np.errstate(all="ignore"):
        near = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))])
        x = np.concatenate([special, near])
        arrays[f"{name}.values"] = values
        arrays[f"{name}.x"] = x
        arrays[f"{name}.codes"] = x.astype(t).view("uint8")
np.savez_compressed(sys.argv[1], **arrays)
