"""Runs a compiled model on batches of two sizes, then makes a call that the library must refuse."""

import sys

import numpy

from relax_model import Model, Refused

model = Model(sys.argv[1])
entry = model.entries["main"]
for value in entry["params"] + entry["results"]:
    print(f"{value['name']}: {value['text']}")
for dim in entry["dims"]:
    print(f"{dim['name']}: {dim['lower']} to {dim['upper']}")

numpy.set_printoptions(precision=4, floatmode="fixed", linewidth=100)
for rows in (1, 3):
    x = (numpy.arange(rows * 16) % 7 * 0.25 - 0.75).astype("float32").reshape(rows, 16)
    y = model(x)
    print(f"{x.shape} -> {y.shape} {y.dtype}")
    print(y)

try:
    model(numpy.zeros((2, 15), "float32"))
except Refused as e:
    print(f"refused with code {e.code}, check {e.constraint}: {e}")
else:
    sys.exit("the call should have been refused")
