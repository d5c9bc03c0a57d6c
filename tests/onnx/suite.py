#!/usr/bin/env python3
"""Write the ONNX project's own backend test suite to a folder.

    pip install onnx==1.23.2
    python3 tests/onnx/suite.py OUT_DIR

Each case becomes OUT_DIR/KIND/NAME/ in the layout that ONNX tools share:
model.onnx, and test_data_set_K/{input,output}_I.pb (TensorProto, SequenceProto or
OptionalProto, by the graph's declared value type). tolerance.txt holds "rtol atol".
KIND is node (one operator each), simple, pytorch-operator, pytorch-converted or light
(whole networks). Prints one line per kind with the number of cases.
"""
import os
import shutil
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

warnings.simplefilter("ignore")
np.seterr(all="ignore")


def write_value(value, type_proto, path):
    kind = type_proto.WhichOneof("value") if type_proto is not None else "tensor_type"
    if isinstance(value, onnx.TensorProto):
        proto = value
    elif kind == "sequence_type" or isinstance(value, list):
        proto = numpy_helper.from_list(value)
    elif kind == "optional_type":
        proto = numpy_helper.from_optional(value)
    else:
        proto = numpy_helper.from_array(np.asarray(value))
    with open(path, "wb") as f:
        f.write(proto.SerializeToString())


def node_cases(out):
    from onnx.backend.test.case.node import collect_testcases

    written = 0
    for case in collect_testcases(None):
        folder = os.path.join(out, "node", case.name)
        os.makedirs(folder, exist_ok=True)
        onnx.save(case.model, os.path.join(folder, "model.onnx"))
        with open(os.path.join(folder, "tolerance.txt"), "w") as f:
            f.write(f"{case.rtol} {case.atol}\n")
        for k, (inputs, outputs) in enumerate(case.data_sets or []):
            data = os.path.join(folder, f"test_data_set_{k}")
            os.makedirs(data, exist_ok=True)
            graph = case.model.graph
            for what, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
                for i, value in enumerate(values):
                    info = infos[i].type if i < len(infos) else None
                    write_value(value, info, os.path.join(data, f"{what}_{i}.pb"))
        written += 1
    return written


def stored_cases(out, kind):
    root = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", kind)
    written = 0
    for name in sorted(os.listdir(root)):
        source = os.path.join(root, name)
        if kind == "light":
            if not name.endswith(".onnx"):
                continue
            stem = name[: -len(".onnx")]
            folder = os.path.join(out, kind, stem)
            data = os.path.join(folder, "test_data_set_0")
            os.makedirs(data, exist_ok=True)
            shutil.copy(source, os.path.join(folder, "model.onnx"))
            shutil.copy(os.path.join(root, f"{stem}_output_0.pb"), os.path.join(data, "output_0.pb"))
            # The package stores no inputs for these: its own runner feeds a ramp per input.
            model = onnx.load(source)
            initialised = {t.name for t in model.graph.initializer}
            for i, value in enumerate(v for v in model.graph.input if v.name not in initialised):
                dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
                size = int(np.prod(dims))
                ramp = (np.arange(size).reshape(dims) / size).astype(np.float32)
                write_value(ramp, None, os.path.join(data, f"input_{i}.pb"))
        else:
            folder = os.path.join(out, kind, name)
            if not os.path.isfile(os.path.join(source, "model.onnx")):
                continue
            shutil.copytree(source, folder, dirs_exist_ok=True)
        rtol, atol = ("1e-3", "1e-5") if kind == "light" else ("1e-3", "1e-7")
        with open(os.path.join(folder, "tolerance.txt"), "w") as f:
            f.write(f"{rtol} {atol}\n")
        written += 1
    return written


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = sys.argv[1]
    print("node", node_cases(out))
    for kind in ("simple", "pytorch-operator", "pytorch-converted", "light"):
        print(kind, stored_cases(out, kind))


if __name__ == "__main__":
    main()
