"""PrimFuncs that schedules and TVM's lowering have passed through: random schedules of the kernels of legalised operators and
programs, and what the first passes of TVM's road from kernels to code make of them."""

import random

import tvm
from tvm import relax, s_tir, tirx
from tvm.s_tir import transform as s
from tvm.tirx import transform as x


def first(k):
    """The first `k` passes of TVM's road, of those that say nothing of a device."""
    steps = [
        s.CanonicalizeLoop(), s.LowerCrossThreadReduction(), s.LowerInitBlock(), s.PlanAndUpdateBufferAllocationLocation(), s.ConvertBlocksToOpaque(), s.LiftThreadBinding(),
        s.ManifestSharedMemoryLocalStage(), s.CompactBufferAllocation(), s.UnifyThreadBinding(), s.LowerMatchBuffer(), s.StmtSimplify(), s.AnnotateIrregularLoop(),
        s.InjectSoftwarePipeline(), s.LowerOpaqueBlock(), x.FlattenBuffer(), x.BF16ComputeLegalize(), x.NarrowDataType(32), s.LoopPartition(), x.VectorizeLoop(True),
        s.InjectVirtualThread(), s.InjectDoubleBuffer(), x.StorageRewrite(), s.HoistIfThenElse(), x.UnrollLoop(), s.RenormalizeSplitPattern(), x.StmtSimplify(), x.RemoveNoOp(),
        s.RewriteUnsafeSelect(), x.CommonSubexprElim(), x.FP8ComputeLegalize(), x.VerifyMemory(),
    ]
    return steps[:k]


STEPS = 31
# Passes by themselves, or behind the blocks' lowering.
ALONE = [
    lambda: [s.ConvertSSA()], lambda: [x.ForceNarrowIndexToInt32()], lambda: [s.HoistExpression()], lambda: [s.UseAssumeToReduceBranches()], lambda: [x.RemoveAssume()],
    lambda: [s.LoopPartition()], lambda: [x.UnrollLoop()], lambda: [s.RemoveWeightLayoutRewriteBlock()], lambda: [s.RenormalizeSplitPattern()], lambda: [s.RewriteUnsafeSelect()],
    lambda: [s.StmtSimplify()], lambda: [s.DefaultGPUSchedule()], lambda: [s.RemoveStoreUndef()], lambda: [x.RemoveNoOp()], lambda: [s.InstrumentBoundCheckers()],
    lambda: [s.LowerOpaqueBlock()], lambda: [x.FlattenBuffer()], lambda: [x.VectorizeLoop(False)], lambda: [s.HoistIfThenElse()], lambda: [x.SkipAssert()],
    lambda: [x.AnnotateEntryFunc()], lambda: [x.BF16StorageLegalize()], lambda: [x.FP8StorageLegalize()], lambda: [x.PointerValueTypeRewrite()], lambda: [x.LowerIntrin()],
    lambda: [x.InlinePrivateFunctions()],
]
BEHIND = [x.PointerValueTypeRewrite, x.ForceNarrowIndexToInt32, s.HoistExpression, x.CommonSubexprElim, s.ConvertSSA, x.RemoveAssume, x.SkipAssert, s.InstrumentBoundCheckers, x.LowerIntrin]


def move(sch, rng):
    """One step of a schedule, at random; it may not apply."""
    root = sch.get_sblock("root")
    block = rng.choice(sch.get_child_blocks(root))
    loops = sch.get_loops(block)
    loop = rng.choice(loops) if loops else None
    reads, writes = len(sch.get(block).reads), len(sch.get(block).writes)
    kind = rng.choice("""split split split fuse fuse reorder reorder vectorize vectorize parallel unroll cache_read cache_write compute_at reverse_compute_at inline reverse_inline
        rfactor decompose decompose blockize transform reindex pad annotate unit partition align scope index order predicate pad_einsum inplace merge dtype rolling fuse_epilogue
        block_layout reindex_cache_read reindex_cache_write bind pragma""".split())
    scope = rng.choice(["global", "local", "shared"])
    if kind == "split":
        factors = rng.choice([[None, 2], [None, 3], [2, None], [None, 4], [None, 2, 2], [4, None], [None, 5]])
        sch.split(loop, factors, preserve_unit_iters=rng.random() < 0.5, disable_predication=rng.random() < 0.05)
    elif kind == "fuse" and len(loops) > 1:
        at = rng.randrange(len(loops) - 1)
        sch.fuse(*loops[at:at + rng.choice([2, 2, 3])])
    elif kind == "reorder":
        sch.reorder(*rng.sample(loops, min(len(loops), rng.randint(2, 4))))
    elif kind == "vectorize":
        sch.vectorize(rng.choice([loops[-1], loop]))
    elif kind == "parallel":
        sch.parallel(loops[0])
    elif kind == "unroll":
        sch.unroll(loop)
    elif kind == "bind":
        sch.bind(loop, rng.choice(["blockIdx.x", "threadIdx.x", "vthread.x", "threadIdx.y"]))
    elif kind == "cache_read":
        sch.cache_read(block, rng.randrange(reads), scope)
    elif kind == "cache_write":
        sch.cache_write(block, rng.randrange(writes), scope)
    elif kind == "reindex_cache_read":
        sch.reindex_cache_read(block, rng.randrange(reads), scope, lambda *i: i[::-1])
    elif kind == "reindex_cache_write":
        sch.reindex_cache_write(block, rng.randrange(writes), scope, lambda *i: i[::-1])
    elif kind == "compute_at":
        sch.compute_at(rng.choice(sch.get_producers(block)), loop, preserve_unit_loops=rng.random() < 0.5)
    elif kind == "reverse_compute_at":
        sch.reverse_compute_at(rng.choice(sch.get_consumers(block)), loop, preserve_unit_loops=rng.random() < 0.5)
    elif kind == "inline":
        sch.compute_inline(block)
    elif kind == "reverse_inline":
        sch.reverse_compute_inline(block)
    elif kind == "rfactor":
        sch.rfactor(loop, rng.choice([0, 0, -1]))
    elif kind == "decompose":
        sch.decompose_reduction(block, loop)
    elif kind == "blockize":
        sch.blockize(loop, preserve_unit_iters=rng.random() < 0.5)
    elif kind == "transform":
        index = rng.choice([lambda *i: i[::-1], lambda *i: [*i[:-1], i[-1] // 2, i[-1] % 2], lambda *i: [i[-1] // 4, *i[:-1], i[-1] % 4]])
        sch.transform_layout(block, ("write" if rng.random() < 0.6 else "read", 0), index, pad_value=rng.choice([None, None, 0.0]), assume_injective_transform=True)
    elif kind == "block_layout":
        sch.transform_block_layout(block, lambda *i: i[::-1])
    elif kind == "reindex":
        sch.reindex(block, ("read", rng.randrange(reads)) if rng.random() < 0.5 else ("write", 0))
    elif kind == "pad":
        sch.decompose_padding(block, loop)
    elif kind == "pad_einsum":
        sch.pad_einsum(block, [rng.choice([1, 2, 4]) for _ in range(len(sch.get(block).iter_vars))])
    elif kind == "annotate":
        sch.annotate(rng.choice([block, loop]), *rng.choice([("pragma_auto_unroll_max_step", 16), ("my.note", "text"), ("meta_schedule.unroll_explicit", 4), ("meta_schedule.vectorize", 8), ("note", [1, 2]), ("note", 0.5)]))
    elif kind == "pragma":
        sch.annotate(loop, *rng.choice([("pragma_unroll_explicit", 1), ("pragma_auto_unroll_max_step", 4), ("pragma_loop_partition_hint", 1)]))
    elif kind == "unit":
        sch.add_unit_loop(rng.choice([block, loop]))
    elif kind == "partition":
        sch.loop_partition(loop, [None, 2] if rng.random() < 0.5 else [1, None], preserve_unit_iters=rng.random() < 0.5)
    elif kind == "align":
        sch.storage_align(block, 0, rng.choice([0, -1]), 16, 4)
    elif kind == "scope":
        sch.set_scope(block, 0, scope)
    elif kind == "dtype":
        sch.unsafe_set_dtype(block, 0, rng.choice(["float64", "float16", "int32"]))
    elif kind == "index":
        sch.cache_index(block, scope, rng.choice([0, 1]))
    elif kind == "order":
        n = len(sch.get(block).iter_vars)
        sch.reorder_block_iter_var(block, rng.sample(range(n), n))
    elif kind == "inplace":
        sch.cache_inplace(block, 0, scope)
    elif kind == "merge":
        sch.merge(loop, rng.choice(sch.get_loops(rng.choice(sch.get_child_blocks(root)))))
    elif kind == "rolling":
        sch.rolling_buffer(block, 0)
    elif kind == "fuse_epilogue":
        sch.fuse_reduction_epilogue(block, rng.choice(sch.get_consumers(block)))


def scheduled(mod, rng):
    """The module with a few random steps of a schedule on each of its kernels."""
    sch = s_tir.Schedule(mod, debug_mask="all" if rng.random() < 0.3 else 0)
    for g, f in sorted(mod.functions.items(), key=lambda item: item[0].name_hint):
        if not isinstance(f, tirx.PrimFunc):
            continue
        sch.work_on(g.name_hint)
        for _ in range(rng.randint(1, 9)):
            try:
                move(sch, rng)
            except Exception:
                continue
    return sch.mod


def kernels():
    """The passes that make kernels of operators: legalised, then fused."""
    t = relax.transform
    return t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FuseOps(), t.FuseTIR(), t.DeadCodeElimination()


def made(make, rng):
    """A module that a generator made and TVM reads; most have slips."""
    for _ in range(9):
        try:
            return tvm.script.from_source(make(rng))
        except BaseException:
            continue
    raise ValueError("nine modules with slips")


def at_random(make, rng):
    """A module of scheduled kernels, perhaps lowered."""
    mod = made(make, rng)
    steps = kernels()
    mod = tvm.transform.Sequential(steps[:1] if rng.random() < 0.5 else steps)(mod)
    if rng.random() < 0.8:
        mod = scheduled(mod, rng)
    way = rng.random()
    target = tvm.target.Target("llvm")
    if way < 0.45:
        return mod
    with target:
        if way < 0.85:
            k = rng.randint(1, STEPS)
            after = first(k) if k < 16 or rng.random() < 0.7 else first(k) + [rng.choice(BEHIND)()]
        else:
            after = rng.choice(ALONE)()
        return tvm.transform.Sequential([x.BindTarget(target)] * (rng.random() < 0.2) + after)(mod)


def modules(seed, count):
    """(name, function that makes the IRModule): it may crash TVM, and is to be called in a child."""
    import operators
    import programs

    for i in range(count):
        for make in (operators, programs):
            rng = random.Random(f"k {seed} {i} {make.__name__}")
            yield f"kernels_{make.__name__}_{i}", (lambda make, rng: lambda: at_random(make, rng))(make.module, rng)
