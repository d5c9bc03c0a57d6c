"""Modules of relax.frontend.onnx: the models of ONNX's own node tests."""

import warnings


def modules():
    """(name, IRModule); what the frontend refuses is left out."""
    import numpy as np

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    from onnx.backend.test.case.node import collect_testcases
    from tvm.relax.frontend.onnx import from_onnx

    for case in collect_testcases(None):
        for keep in (False, True):
            try:
                mod = from_onnx(case.model, keep_params_in_input=keep)
            except BaseException:
                continue
            if keep and not case.model.graph.initializer:
                continue
            yield f"onnx_{case.name}{'_keep' if keep else ''}", mod
