#!/usr/bin/env python3
"""Write frontend/src/onnx/operators.txt: what each operator of ONNX, and of com.microsoft, takes in each version.

    onnx_operators.py > frontend/src/onnx/operators.txt

A line for each version of an operator in which something of it changed: domain (`-` for the standard's), name, version,
inputs, outputs (`*` for any number), attributes. Needs onnx and onnxruntime.
"""
import onnx.defs
from onnxruntime.capi import onnxruntime_pybind11_state as ort

DOMAINS = ["", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"]
MANY = 1 << 20


def main():
    rows = {}
    for schema in [*onnx.defs.get_all_schemas_with_history(), *ort.get_all_operator_schema()]:
        if schema.domain not in DOMAINS or (schema.domain, schema.name, schema.since_version) in rows:
            continue
        count = lambda n: "*" if n > MANY else str(n)
        rows[schema.domain, schema.name, schema.since_version] = (
            count(schema.max_input),
            count(schema.max_output),
            *sorted(schema.attributes),
        )
    last = None
    for (domain, name, version), takes in sorted(rows.items()):
        if last == (domain, name, takes):
            continue
        last = (domain, name, takes)
        print(domain or "-", name, version, *takes)


main()
