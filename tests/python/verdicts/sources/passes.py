"""What each pass of relax.transform makes of a module."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform as t


def _gradient(mod):
    name = "main"
    f = mod[name]
    grads = [p for p in f.params if isinstance(p.ty, relax.TensorType) and str(p.ty.dtype) in ("float32", "float64")]
    return t.Gradient(name, grads[:3] or None)(mod)


def _bind(mod):
    rng = np.random.default_rng(0)
    values = {}
    for p in list(mod["main"].params)[1:]:
        values[p.name_hint] = rng.random([int(d) for d in p.ty.shape.values]).astype(str(p.ty.dtype))
    return t.BindParams("main", values)(mod)


def _bind_symbolic(mod):
    names = {v.name for p in mod["main"].params for v in relax.analysis.tir_vars_in_struct_info(p.ty)} if hasattr(relax.analysis, "tir_vars_in_struct_info") else {"n", "m", "b", "s0"}
    return t.BindSymbolicVars({n: 3 for n in sorted(names)}, "main")(mod)


def _inputs(mod):
    """The parameters after the first are weights."""
    return tvm.IRModule({g: f.with_attr("num_input", 1) if isinstance(f, relax.Function) else f for g, f in mod.functions.items()})


def sequence(*passes):
    return lambda mod: tvm.transform.Sequential(list(passes))(mod)


def lowered(k):
    """The first `k` steps of TVM's road to its virtual machine."""
    steps = [
        t.RewriteDataflowReshape(), t.ToNonDataflow(), t.RemovePurityChecking(), t.CallTIRRewrite(), t.StaticPlanBlockMemory(), t.LowerAllocTensor(), t.KillAfterLastUse(),
        t.LowerRuntimeBuiltin(), t.ComputePrimValue(), t.VMShapeLower(), t.AttachGlobalSymbol(),
    ]
    return sequence(t.LegalizeOps(), t.FoldConstant(), *steps[:k])


def table():
    """(name, function of a module)."""
    plain = """ToNonDataflow TopologicalSort RemovePurityChecking DataflowUseInplaceCalls LambdaLift LazyGetInput LazySetOutput ConvertToDataflow CallTIRRewrite Normalize NormalizeGlobalVar
        CanonicalizeBindings EliminateCommonSubexpr RewriteDataflowReshape AttachGlobalSymbol FoldConstant ExpandTupleArguments RemoveUnusedParameters RemoveUnusedOutputs InlinePrivateFunctions
        LegalizeOps RealizeVDevice DecomposeOpsForInference DecomposeOpsForTraining DeadCodeElimination ToMixedPrecision AdjustMatmulOrder ExpandMatmulOfSum ReorderPermuteDimsAfterConcat
        ReorderTakeAfterMatmul CombineParallelMatmul FuseTransposeMatmul FastMathTransform FoldBatchnormToConv2D RemoveRedundantReshape AllocateWorkspace ComputePrimValue""".split()
    for name in plain:
        if hasattr(t, name):
            yield name, (lambda make: lambda mod: make()(mod))(getattr(t, name))
    yield "Half", lambda mod: t.ToMixedPrecision(out_dtype="float16")(mod)
    yield "NHWC", lambda mod: t.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(mod)
    yield "NHWC_legal", sequence(t.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}), t.LegalizeOps())
    yield "Gradient", _gradient
    yield "GradientLegal", lambda mod: t.LegalizeOps()(_gradient(mod))
    yield "BindParams", _bind
    yield "BindFold", lambda mod: sequence(t.LegalizeOps(), t.FoldConstant())(_bind(mod))
    yield "BindSymbolic", _bind_symbolic
    yield "Lift", lambda mod: t.LiftTransformParams()(_inputs(mod))
    yield "LiftShared", lambda mod: t.LiftTransformParams(shared_transform=True)(_inputs(mod))
    yield "Bundle", lambda mod: t.BundleModelParams()(_inputs(mod))
    yield "BundleNamed", lambda mod: t.BundleModelParams("params")(_inputs(mod))
    fuse = [t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FoldConstant()]
    yield "Annotate", sequence(*fuse)
    yield "FuseOps", sequence(*fuse, t.FuseOps())
    yield "FuseTIR", sequence(*fuse, t.FuseOps(), t.FuseTIR())
    yield "FuseDead", sequence(*fuse, t.FuseOps(), t.FuseTIR(), t.DeadCodeElimination())
    yield "FuseSpecialize", sequence(*fuse, t.FuseOps(), t.FuseTIR(), t.SpecializePrimFuncBasedOnCallSite())
    yield "InplaceLegal", sequence(t.DataflowUseInplaceCalls(), t.LegalizeOps())
    yield "Schedule", sequence(*fuse, t.FuseOps(), t.FuseTIR(), tvm.s_tir.transform.DefaultGPUSchedule()) if False else sequence(t.LegalizeOps(), t.LambdaLift(), t.ToNonDataflow())
    yield "Composite", _composite
    for k in range(1, 12):
        yield f"vm{k}", lowered(k)
    yield "zero", lambda mod: relax.get_pipeline("zero")(mod)
    yield "default", lambda mod: relax.get_pipeline("default")(mod)
    yield "default_build", lambda mod: relax.get_pipeline("default_build")(mod)


def _composite(mod):
    from tvm.relax.dpl import is_op, wildcard

    p = is_op("relax.add")(wildcard(), wildcard())
    q = is_op("relax.nn.relu")(is_op("relax.matmul")(wildcard(), wildcard()))
    return t.FuseOpsByPattern([("my.matmul_relu", q), ("my.add", p)], bind_constants=False)(mod)
