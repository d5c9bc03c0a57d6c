"""onnxruntime as a competitor: builds the model that a folder describes, and runs it as often as told.

Lines in: `load DIR` (spec.json, a.bin, b.bin, ..; writes o.bin), `run N`. Lines out: `ok TEXT`, nanoseconds, or `no WHY`.
"""
import json, sys, time

try:
    import numpy as np, onnx, onnxruntime as ort
    from onnx import helper, numpy_helper, TensorProto
except ImportError as e:
    print(f"no {e}", flush=True)
    sys.exit(0)

print(f"ok onnxruntime {ort.__version__}", flush=True)


def load(folder):
    spec = json.load(open(folder + "/spec.json"))
    names = "abc"[: len(spec["inputs"])]
    arrays = {n: np.fromfile(f"{folder}/{n}.bin", np.float32).reshape(s) for n, s in zip(names, spec["inputs"])}
    first_weight = len(names) - spec["weights"]
    nodes, init = [], [numpy_helper.from_array(arrays[n], n) for n in names[first_weight:]]
    for op, ins, outs, attrs in spec["onnx"]:
        for i in ins:
            if i[0] == "#" and i not in [t.name for t in init]:
                init.append(numpy_helper.from_array(np.array([int(i[1:])], np.int64), i))
        nodes.append(helper.make_node(op, ins, outs, **attrs))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(arrays[n].shape)) for n in names[:first_weight]]
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, spec["output"])
    graph = helper.make_graph(nodes, "g", inputs, [out], init)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    for n in names[:first_weight]:
        binding.bind_ortvalue_input(n, ort.OrtValue.ortvalue_from_numpy(arrays[n]))
    result = ort.OrtValue.ortvalue_from_numpy(np.zeros(spec["output"], np.float32))
    binding.bind_ortvalue_output("o", result)
    session.run_with_iobinding(binding)
    result.numpy().tofile(folder + "/o.bin")
    return session, binding


for line in sys.stdin:
    what, arg = line.split(None, 1)
    try:
        if what == "load":
            session, binding = load(arg.strip())
            print("ok", flush=True)
        else:
            run, n = session.run_with_iobinding, int(arg)
            start = time.perf_counter_ns()
            for _ in range(n):
                run(binding)
            print(time.perf_counter_ns() - start, flush=True)
    except Exception as e:
        print("no", str(e).replace("\n", " ")[:300], flush=True)
