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


def _vdevices(mod):
    """The parameters' place by a hint, made real."""
    place = relax.VDevice("llvm", 0, "global")
    made = tvm.IRModule(dict(mod.functions.items()), global_infos={"vdevice": [place]})
    return t.UpdateVDevice(relax.VDevice("llvm", 0, "local"), 0)(t.RealizeVDevice()(made))


def _alter(mod):
    """Elementwise kernels over buffers in another layout."""
    mod = t.LegalizeOps()(mod)
    kinds = {}
    for g, f in mod.functions.items():
        if not isinstance(f, relax.Function) and len(f.params) >= 2:
            mod[g] = f.with_attr("operator_name", f"relax.{g.name_hint}")
            kinds.setdefault(f"relax.{g.name_hint}", f)
    turned = {}
    for name, f in kinds.items():
        shapes = [p.shape for p in f.params if hasattr(p.ty, "shape")]
        if len(shapes) == len(f.params) and len({len(s) for s in shapes}) == 1 and len(shapes[0]) >= 2:
            turned[name] = [lambda *i: (*i[::-1],) for _ in shapes]
    kept = {}
    for name in list(turned):
        sch = tvm.s_tir.Schedule(kinds[name].without_attr("global_symbol"))
        block = sch.get_child_blocks(sch.get_sblock("root"))[-1]
        for k in range(len(kinds[name].params) - 1):
            sch.transform_layout(block, ("read", k), lambda *i: (*i[::-1],))
        sch.transform_layout(block, ("write", 0), lambda *i: (*i[::-1],))
        kept[name] = sch.mod["main"].with_attr("operator_name", f"{name}_turned")
    return t.AlterOpImpl(kept, {n: turned[n] for n in kept})(mod)


def _weights_half(mod):
    """The parameters after the first are float16."""
    first = {f.params[0] for f in mod.functions.values() if isinstance(f, relax.Function) and f.params}

    def other(v):
        if v in first or not isinstance(v.ty, relax.TensorType) or str(v.ty.dtype) != "float32" or v.ty.shape is None:
            return None
        return relax.TensorType(v.ty.shape, "float16")

    return t.UpdateParamType(other)(mod)


def _packed_up(mod):
    """Single operators as functions that a library is to take."""
    return sequence(t.FuseOpsByPattern([("lib.any", _anything())], bind_constants=True, annotate_codegen=True))(mod)


def _anything():
    from tvm.relax.dpl import is_op, wildcard

    binary = [is_op(f"relax.{n}")(wildcard(), wildcard()) for n in ("add", "subtract", "multiply", "matmul", "maximum")]
    one = [is_op(f"relax.{n}")(wildcard()) for n in ("nn.relu", "exp", "sqrt", "tanh", "sigmoid", "nn.gelu", "nn.silu")]
    p = binary[0]
    for q in binary[1:] + one:
        p = p | q
    return p


def _merged(mod):
    mod = tvm.IRModule({tvm.ir.GlobalVar("main") if g.name_hint == _entry(mod) else g: f.with_attr("global_symbol", "main") if g.name_hint == _entry(mod) else f
                        for g, f in mod.functions.items()})
    mod = t.FuseOpsByPattern([("lib.any", _anything())], bind_constants=False, entry_functions=[_entry(mod)])(t.ConvertToDataflow()(mod))
    return t.MergeCompositeFunctions()(mod)


def _workspace(mod):
    """Functions that a library takes, with a workspace to pass on."""
    mod = _merged(mod)
    for g, f in list(mod.functions.items()):
        if isinstance(f, relax.Function) and f.attrs and "Codegen" in f.attrs:
            mod[g] = f.with_attr("WorkspaceSize", 64)
    return t.AllocateWorkspace()(mod)


def _custom(mod):
    """Some operators are legalised by hand, others stay."""
    def own(bb, call):
        return bb.call_te(lambda x: tvm.te.compute(x.shape, lambda *i: x(*i) * tvm.tirx.const(2, x.dtype), name="own"), call.args[0], primfunc_name_hint="own")

    return t.LegalizeOps({"relax.nn.relu": own, "relax.exp": own}, skip_ops=["relax.add", "relax.matmul", "relax.nn.softmax"])(mod)


def _upper(mod):
    """Bounds for the shape variables, then the memory plan that asks for them."""
    made = {}
    for g, f in mod.functions.items():
        if isinstance(f, relax.Function):
            names = sorted({v.name for v in relax.analysis.free_symbolic_vars(f)} | {v.name for v in relax.analysis.defined_symbolic_vars(f)})
            f = f.with_attr("tir_var_upper_bound", {n: 16 for n in names}).with_attr("tir_var_lower_bound", {n: 2 for n in names})
            f = f.with_attr("tir_non_negative_var", names)
        made[g] = f
    return lowered(5)(tvm.IRModule(made))


def _entry(mod):
    names = [g.name_hint for g, f in mod.functions.items() if isinstance(f, relax.Function)]
    return "main" if "main" in names else "forward" if "forward" in names else names[0]


def _inputs_of(mod, k):
    return tvm.IRModule({g: f.with_attr("num_input", min(k, len(f.params))) if isinstance(f, relax.Function) else f for g, f in mod.functions.items()})


def unusual():
    """As `table`, passes with arguments that its ones have not, and those that need a module made ready."""
    fuse = [t.LegalizeOps(), t.AnnotateTIROpPattern()]
    for level in range(4):
        yield f"FuseOps{level}", sequence(*fuse, t.FuseOps(level), t.FuseTIR())
    for order in ("depth-first", "breadth-first"):
        for way in ("from-inputs", "from-outputs"):
            yield f"Sort_{order}_{way}", (lambda o, w: lambda mod: t.TopologicalSort(o, w)(t.ConvertToDataflow(1)(mod)))(order, way)
    for size in (0, 1, 5):
        yield f"Dataflow{size}", (lambda n: lambda mod: t.ConvertToDataflow(n)(t.ToNonDataflow()(mod)))(size)
    for dtype in ("float16", "float32", "bfloat16"):
        yield f"Mixed_{dtype}", (lambda d: lambda mod: t.ToMixedPrecision(d)(t.ConvertToDataflow()(mod)))(dtype)
        yield f"MixedLegal_{dtype}", (lambda d: sequence(t.ConvertToDataflow(), t.ToMixedPrecision(d), t.LegalizeOps(), t.FoldConstant()))(dtype)
    yield "MixedNames", lambda mod: t.ToMixedPrecision("float32", [p.name for p in mod[_entry(mod)].params][:1])(t.ConvertToDataflow()(mod))
    layouts = {"nhwc": ("NHWC", "OHWI"), "hwio": ("NHWC", "HWIO"), "nchw4c": ("NCHW4c", "OIHW4o"), "hwcn": ("HWCN", "HWIO"), "three": ("NHWC", "OHWI", "NCHW")}
    for name, (data, *rest) in layouts.items():
        wanted = {"relax.nn.conv2d": [data, *rest], "relax.nn.max_pool2d": [data], "relax.nn.avg_pool2d": [data], "relax.nn.conv2d_transpose": [data, rest[0]]}
        yield f"Layout_{name}", (lambda w: lambda mod: t.ConvertLayout(w)(t.ConvertToDataflow()(mod)))(wanted)
        yield f"LayoutLegal_{name}", (lambda w: sequence(t.ConvertToDataflow(), t.Normalize(), t.ConvertLayout(w), t.Normalize(), t.LegalizeOps(), t.OptimizeLayoutTransform() if hasattr(t, "OptimizeLayoutTransform") else t.Normalize()))(wanted)
    yield "CSECalls", lambda mod: t.EliminateCommonSubexpr(call_only=True)(mod)
    yield "DeadEntry", lambda mod: t.DeadCodeElimination([_entry(mod)])(mod)
    yield "DecomposeMain", lambda mod: sequence(t.DecomposeOpsForInference(_entry(mod)), t.LegalizeOps())(mod)
    yield "TrainingMain", lambda mod: sequence(t.DecomposeOpsForTraining(_entry(mod)), t.LegalizeOps())(mod)
    for k in (0, 1, 2):
        yield f"Lift{k}", (lambda k: lambda mod: t.LiftTransformParams()(_inputs_of(t.ConvertToDataflow()(mod), k)))(k)
        yield f"LiftMain{k}", (lambda k: lambda mod: t.LiftTransformParams([_entry(mod)])(_inputs_of(t.ConvertToDataflow()(mod), k)))(k)
        yield f"LiftLazy{k}", (lambda k: lambda mod: t.LazyTransformParams()(t.LiftTransformParams()(_inputs_of(mod, k))))(k)
        yield f"LiftLegal{k}", (lambda k: lambda mod: sequence(t.LiftTransformParams(), t.BundleModelParams("weights"), t.LegalizeOps())(_inputs_of(mod, k)))(k)
        yield f"Lazy{k}", (lambda k: lambda mod: t.LazySetOutput()(t.LazyGetInput()(_inputs_of(mod, k))))(k)
    yield "LazyGet", lambda mod: t.LazyGetInput()(mod)
    yield "LayoutFree", lambda mod: t.SplitLayoutRewritePreproc()(t.AttachAttrLayoutFreeBuffers()(t.LegalizeOps()(_inputs(mod))))
    yield "VDevice", _vdevices
    yield "Alter", _alter
    yield "ParamType", _weights_half
    yield "Codegen", _packed_up
    yield "Merged", _merged
    yield "Workspace", _workspace
    yield "CustomLegal", _custom
    yield "Upper", _upper
    yield "GraphCapture", lambda mod: t.RewriteCUDAGraph()(lowered(5)(mod))
    yield "VMShapeQuiet", lambda mod: t.VMShapeLower(emit_err_ctx=False)(lowered(9)(mod))
    yield "VMBuiltin", lambda mod: t.VMBuiltinLower()(lowered(6)(mod))
    yield "PlainShapes", lambda mod: t.VMShapeLower()(mod)
    yield "PlainPrim", lambda mod: sequence(t.ToNonDataflow(), t.ComputePrimValue())(mod)
    yield "PlainKill", lambda mod: sequence(t.LegalizeOps(), t.ToNonDataflow(), t.CallTIRRewrite(), t.KillAfterLastUse())(mod)
    yield "PlainPlan", lambda mod: sequence(t.LegalizeOps(), t.ToNonDataflow(), t.CallTIRRewrite(), t.StaticPlanBlockMemory())(mod)
    yield "PlainAlloc", lambda mod: sequence(t.LegalizeOps(), t.ToNonDataflow(), t.CallTIRRewrite(), t.LowerAllocTensor())(mod)
    yield "PlainRuntime", lambda mod: sequence(t.LegalizeOps(), t.ToNonDataflow(), t.LowerRuntimeBuiltin())(mod)
    yield "InplaceRewrite", lambda mod: sequence(t.ConvertToDataflow(), t.DataflowUseInplaceCalls(), t.LegalizeOps(), t.ToNonDataflow(), t.CallTIRRewrite())(mod)
    yield "NoPurity", lambda mod: sequence(t.ToNonDataflow(), t.RemovePurityChecking(), t.LambdaLift(), t.NormalizeGlobalVar())(mod)
    yield "Trim", lambda mod: sequence(t.LambdaLift(), t.ExpandTupleArguments(), t.RemoveUnusedParameters(), t.RemoveUnusedOutputs(), t.InlinePrivateFunctions())(mod)
    yield "TrimFused", sequence(*fuse, t.FuseOps(), t.ExpandTupleArguments(), t.RemoveUnusedParameters(), t.RemoveUnusedOutputs())
    yield "PlanFused", sequence(*fuse, t.FuseOps(), t.FuseTIR(), t.ToNonDataflow(), t.CallTIRRewrite(), t.StaticPlanBlockMemory(), t.LowerAllocTensor(), t.KillAfterLastUse())
    yield "BindFirst", lambda mod: t.BindSymbolicVars({v: 4 for v in list(relax.analysis.defined_symbolic_vars(mod[_entry(mod)]))[:1]})(mod)
    yield "GradientSecond", lambda mod: t.Gradient(_entry(mod), target_index=1)(mod)
    yield "GradientDead", lambda mod: sequence(t.DeadCodeElimination(), t.LegalizeOps(), t.FuseOps(), t.FuseTIR())(_gradient(mod))
    yield "PerTensor", lambda mod: sequence(t.CombineParallelMatmul(), t.ExpandMatmulOfSum(), t.AdjustMatmulOrder(), t.CanonicalizeBindings(), t.EliminateCommonSubexpr())(mod)
