"""Are our verdicts on modules TVM's, and our results?

Usage: compare.py RELAX_AOT FAMILY [--seed S] [--count N] [--no-run] [--keep DIR] [--cache DIR] [--cached] [--every N] [--classes]

FAMILY: operators, programs, or a folder of .rlx texts. TVM's verdict is that of its parser, of well_formed and of relax.build; ours
that of compiling. Where both accept, TVM's VM and our library run on the same random inputs. Prints every difference
and exits with 1 when there is one that neither WE_REFUSE nor TVM_REFUSES explains.
"""

import argparse
import collections
import hashlib
import importlib
import pathlib
import pickle
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
import oracle


def leaves(value):
    return [a for v in value for a in leaves(v)] if isinstance(value, list) else [value]


def filled(args):
    """Reductions and look-ups over no elements leave TVM's results unwritten."""
    return all(a.size for a in leaves(args))


def ours(program, path, answer, folder):
    """(exit code, message, results)."""
    args = answer.get("args")
    if args is not None and "outs" in answer:
        np.savez(folder / "in.npz", **{f"a{i}": a for i, a in enumerate(leaves(args))})
        out = folder / "out.npz"
        out.unlink(missing_ok=True)
        done = subprocess.run([program, "run", str(path), "--inputs", str(folder / "in.npz"), "--outputs", str(out), "--entry", answer.get("entry", "main")], capture_output=True, text=True)
        if done.returncode == 0:
            with np.load(out, allow_pickle=True) as z:
                return 0, "", [z[k] for k in z.files]
        return done.returncode, done.stderr, None
    done = subprocess.run([program, str(path), "-o", str(folder / "out.so")], capture_output=True, text=True)
    return done.returncode, done.stderr, None


def differ(theirs, mine):
    """How the results differ. A float16 result may be off by a few of its roundings, others by that of float32."""
    if len(theirs) != len(mine):
        return f"{len(theirs)} results, ours has {len(mine)}"
    for i, (a, b) in enumerate(zip(theirs, mine)):
        # What numpy itself has no type for: its codes, and truth.
        kind = ""
        if a.dtype.name.startswith(("float8_", "float6_", "float4_")):
            a = a.view("uint8")
        elif a.dtype.name == "uint1":
            a, kind = a.astype("bool"), "uint1 "
        elif a.dtype.name == "bfloat16" and b.dtype.itemsize == 2:
            b = b.view(a.dtype).astype("float32")
            a = a.astype("float32")
            if a.shape == b.shape and np.allclose(a, b, rtol=2e-2, atol=2e-2, equal_nan=True):
                continue
        if a.shape != b.shape or (a.dtype != b.dtype and a.ndim):
            return f"result {i}: {a.dtype}{a.shape}, ours {b.dtype}{b.shape}"
        if a.dtype.kind == "f":
            tol = 4e-3 if a.dtype == np.float16 else 2e-4
            a, b = a.astype("float64"), b.astype("float64")
            off = ~np.isclose(a, b, rtol=tol, atol=tol, equal_nan=True)
        else:
            off = a != b
        if off.any():
            return f"result {i}: {kind}{a[off][:6]}, ours {b[off][:6]}"
    return None


# Differences that the specification or a limit of TVM explains: TVM accepts, and our message has the pattern (with the
# sentence of relax_spec.md, or the decision, that says so) ...
WE_REFUSE = [
    # Typing 11.4: "If ret_struct_info is defined, then check that the body's structural information is compatible."
    ("the stated result is wrong (typing 11.4)", r"error\[result\]: (the result (has|is)|dim|field )"),
    # decisions.md, "Text behind TVM's whole pipeline is raised".
    ("lowered for TVM's virtual machine, slots not as its lowering writes them", r"error\[lowered-text\]"),
    # Typing 10.1.2: the annotation of a binding must be compatible with what is bound.
    ("an annotation that cannot be true (typing 10.1.2)", r"error\[(annotation\]|check-fails\]: dim \d+ of `\w+` must be)"),
    # The element before the only one: TVM reads outside of the tensor.
    ("padding that mirrors more than there is", r"R\.nn\.pad: dim \d+ must have more elements than are mirrored"),
    # Well-formedness 7: functions that call themselves, directly or not, must state their result.
    ("a recursive function states no result (well-formedness 7)", r"error\[missing-annotation\]"),
    # Well-formedness 4: a stated result uses no shape variables that the body binds.
    ("a stated result with a dim of the body (well-formedness 4)", r"error\[unbound-shape-variable\]: .* is used in the declared result before it is bound"),
    # It says which parameters are weights; nothing that TVM's build runs reads it.
    ("a count of inputs beyond the parameters", r"error\[argument\]: num_input is -?\d+, there are \d+ parameters"),
    # Well-formedness 13: the variables in a shape are bound; TVM's analysis does not look into annotations.
    ("an annotation with a dim that nothing binds (well-formedness 13)", r"error\[unbound-shape-variable\]: .* is used in an annotation before it is bound"),
    # Well-formedness 6: "No recursive function call or mutually recursive function call inside a DataflowBlock".
    ("a recursive call in a dataflow block (well-formedness 6)", r"error\[dataflow\]: a (mutually )?recursive call of"),
    # Typing 8: the condition of If is a bool scalar.
    ("a condition is no bool scalar (typing 8)", r"error\[condition\]"),
    # Derivation 11.2.5: an argument that is not compatible with the parameter is an error.
    ("an argument that cannot fit (derivation 11.2.5)", r"error\[argument\]: dim \d+ of argument"),
    # docs/spec-coverage.md, "call_tir meets the PrimFunc": a stated dim that the kernel's own dims contradict.
    ("an output that the kernel does not make (derivation 11.2.5)", r"error\[argument\]: a dim of output \d+ of"),
    ("a cast that always fails (shapes in Relax, test E)", r"error\[match-cast\]: (this cast always fails|match_cast of ret(, field \d+)*: (the value is not|.* is wanted))"),
    # unify_struct_info: of two functions of which one has params the join is an object.
    ("a PrimFunc or a closure that is joined with a packed function", r"error\[call\]: `\w+` is called but is no function: R\.Any"),
    ("an object in the signature of an entry", r"error\[parameter\]: parameter \w+: an object of unknown structure"),
    # Well-formedness 11: "Every IRModule must have an entry": there is nothing to compile.
    ("nothing is exported (well-formedness 11)", r"no function (of the module is exported|to export)"),
    ("an attribute out of its range", r"must be \d+ positive integers|integers of at least 0|mode must be|does not fit into|axis -?\d+ is out of range|R\.tile: a repeat is negative"),
    # docs/spec-coverage.md, "shape constraints": no tensor has a negative dim.
    ("a tensor with a negative dim", r"error\[tensor-size\]: `\w+` has a negative dim"),
    # Proved different is an error (shape_inference.md): gamma says how many channels there are, beta another count. TVM compares each with
    # the data alone, whose dim is a variable.
    ("two dims of one operator that no call makes equal", r"R\.nn\.(group|instance)_norm: beta has dim \d+, the data has [A-Za-z_]\w*$"),
    ("a gradient of another shape than its result", r"R\.grad\.\w+: output_grad must have \d+ dims"),
    ("strides known at run time only", r"R\.strided_slice: strides must be integers"),
    # decisions.md, "Handles of kernels are tensors, calls of libraries stand between kernels".
    ("the struct of a tensor in lowered code", r"error\[tir\]: `T\.tvm_struct_get` is not supported|error\[tir-struct\]"),
    # TVM compiles it, and its runtime refuses any data.
    ("a shape from floats", r"R\.tensor_to_shape: the elements must be integers"),
    ("a CUDA graph", r"R\.call_builtin_with_ctx cannot be compiled"),
    # docs/spec-coverage.md, "Verdicts": TVM returns a result of memory that is not the kernel's.
    ("a kernel that for certain leaves its arrays", r"error\[access-outside\]"),
    ("functions in Python", r"functions of `@I\.pyfunc` are not supported"),
    ("one device", r"R\.dist\.\w+ is not supported: a compiled library runs on one device|error\[type\]: `R\.device_mesh"),
    ("a library called in a loop or an expression of a kernel", r"error\[tir-extern\]"),
]
# ... or TVM builds it, and every call of it fails: where it was run, its call must have failed.
WE_REFUSE_EARLIER = [
    # A function of its module gets no arguments.
    ("a kernel that calls a function of its module", r"error\[tir-call\]"),
    # An offset of an argument is 0, its strides are those of a dense tensor.
    ("a call of what is no function", r"error\[call\]: what is called is not a function"),
    ("an argument that begins elsewhere than its tensor", r"error\[tir\]: an argument begins where its tensor does"),
    ("an argument that is not dense", r"error\[check-fails\]: \w+: parameter \w+, stride \d+ of a dense tensor"),
]
# ... or TVM refuses at a stage for a reason of its own, and we accept (with what the text must have, where the message alone
# says too little).
CHECKED = "dims that may be equal, which we check at run time"
TVM_REFUSES = [
    ("TVM does not read what it prints", "parse", r"value has to be scalar or Tensor.*R\.const|mismatched types. False type|has no attribute '(as_ty|inspect|get_symbolic_vars)'|Cannot redefine a non-PrimType object"
     r"|unexpected keyword argument 'mode'|alloc_tensor\(\) got an unexpected keyword argument 'ty_args'|got multiple values for argument 'format'"
     r"|Mismatched type on argument #\d+ when calling.*(R\.(call_packed|invoke_p)|Expected `Array<ir\.Type>` but got `Array\[index 0: ffi\.Function)|= T\.int64\(\) \| \d+ \| +\w+ = R\.reshape|Expected `Optional<ir\.Expr>` but got `ffi\.BigInt`"),
    # Its printer writes the least float64 in digits, its parser reads these as a float32 first.
    ("TVM does not read what it prints: the least float64", "parse", r"Literal value -?[\d.e+]+ exceeds (minimum|maximum) of float32", r"T\.float64\("),
    # Evaluating expressions, MatchCast 1: "`shape` must be either a `Var` already bound in the current scope or a `ShapeExpr`". ONNX's
    # ConstantOfShape is written so.
    ("TVM does not read what it prints: a variable as the shape of a tensor", "parse", r"not well-formed", r"\b(lv\d*): R\.Shape\((?s:.*)R\.Tensor\(\1, dtype=\"\w+\"\) = R\.broadcast_to\("),
    # decisions.md, "All dialects through one parser".
    ("an older dialect", "parse", r"Prim\(\) got an unexpected keyword argument 'value'|(call_tir|DtypeConstructor\.__call__)\(\) got an unexpected keyword argument '(tir_vars|out_sinfo|is_size_var)'"
     r"|has no attribute '(block|LetStmt|power|indexdiv|indexmod|struct_info)'"),
    # Older versions print "void" for a dtype that is not stated.
    ("an older dialect", "parse", r"given input dtype is T\.void", r'out_dtype="void"'),
    # Its attribute holds numbers; here each place is a dim of the tensor, or its formula.
    ("places of a split that are dims", "parse", r"relax\.op\.split\(.*Expected `Variant<ir\.IntImm, Array<ir\.IntImm>>` but got `ffi\.Array`"),
    # relax_spec.md, "Evaluating expressions": call_tir takes a PrimFunc object of the module, which a variable may be bound to.
    ("a kernel by a name of its own", "parse", r"expects the first argument to be a GlobalVar.*instead has type ir\.Var"),
    # TVM 0.26 prints dims in quotes that the body declares; since 0.27 they are int32 by themselves.
    ("an older dialect: dims in quotes that the body declares", "parse", r"Expected the same dtype for PrimVars but got int(32|64) vs int32", r"T\.Buffer\(\((?s:.*?)\""),
    ("the imports of a Python file", "parse", r"Only 'from __future__ import annotations' is supported"),
    # "Scopes": a binding to a name that is bound shadows it.
    ("a local function that is called like something in scope", "parse", r"Var \w+ is defined more than once", r"(?m)^        +def \w+\("),
    ("a local function that is called like something in scope", "build", r"Variable \w+ was defined multiple times", r"(?m)^        +def \w+\("),
    ("a local function that is called like something in scope", "parse", r"Expression of type .* cannot be called", r"(?m)^ +(\w+) = .*\n(?s:.*)^        +def \1\("),
    # "Scopes": global functions are visible to each other, wherever they stand; derivation of `Function`s looks at them one at a time.
    ("a result that a later function does not state", "parse", r"AnyType does not support subscript|has Type R\.Any", r"(?:Module|cls)\.(\w+)\((?s:.*)def \1\([^\n]*\):\n"),
    # Evaluating expressions, MatchCast: any value may be cast to any structural information. TVM's build puts the value itself for the
    # name of the scalar.
    ("a cast of an object to a scalar", "build", r"Explicit binding for symbolic variable \w+ must be a primitive expression", r"R\.match_cast\(.*R\.Prim\("),
    # Normal form 1: tuples of leaves are leaves, arguments may be such. TVM prints them and does not read them.
    ("a tuple as an argument of a closure", "parse", r"Expected `Array<ir\.Expr>` but got `Array\[index \d+: ffi\.Array\]`", r"\w\(.*\(\w+, "),
    # Derivation 11.2.6: the result of a call forgets what the caller does not know; TVM's keeps the callee's scalar parameter.
    ("a result with a scalar parameter of the callee (derivation 11.2.6)", "parse", r"not well-formed.*Var (\w+) is not defined", r"def \w+\((?:.*, )?(\w+): T\.int64.*\) -> .*\b\1\b(?s:.*)(Module|cls)\.\w+\("),
    # Well-formedness 13: the shape of a tensor may be a variable that is in scope.
    ("a parameter as the shape of a later one (well-formedness 13)", "parse", r"Undefined variable: \w+", r"\b(\w+): R\.Shape(?s:.*)R\.Tensor\(\1,"),
    # Python 3.12's own syntax: `def main[n](..)`.
    ("type parameters, which the Python of TVM's wheel does not read", "parse", r"^SyntaxError: expected '\('"),
    ("outputs that are stated as a tuple", "parse", r"Expected `Array<relax\.TensorType>` but got `Array\[index 0: ir\.TupleType\]`", r"out_ty=R\.Tuple\("),
    # The library computes the dim that is left open in the call.
    ("-1 in a reshape of a tensor of unknown shape", "parse", r"Reshape expects the input tensor to have known shape when there is some dimension"),
    # Typing 10.1.3 asks for a warning; it is one where no call needs to come by.
    ("a cast that always fails in a branch or a local function", "parse", r"It is impossible to match cast any value into the target ty"),
    # Derivation 11.2.5: what may fit is a warning, and a check at run time.
    ("an argument of unknown dtype or rank that may fit, which we check at run time", "parse", r"Argument \d+ type mismatch: expected R\.Tensor\(.*given R\.(Any|Tensor(?!\()|Tensor\((\)|dtype=|ndim=\d+\)|\([^()]*\)\)))"),
    # Derivation 8.2 warns and takes what an annotation says, type rule 10.1.2 refuses it: decisions.md, "A more precise annotation is checked".
    ("an annotation that says more than is known", "parse", r"not well-formed.* dtype None which is other than", r"\w+: R\.Tensor\(\(.*\), dtype=\"\w+\"\) = \w+", r"R\.Tensor\(\([^()]*\)\)"),
    ("TVM does not read what it prints: a view of a buffer without dims", "parse", r"reduce\(\) of empty iterable", r"(\w+): T\.Buffer\(\(\), (?s:.*)\b\1\.view\("),
    ("TVM does not read what it prints: a pragma before its loop", "parse", r"not well-formed", r"(?m)^ +(\w+) = T\.int(?:32|64)\(\)\n +(?:with )?T\.attr\(\1, \"pragma_"),
    ("TVM does not read what it prints: T.Div of a dim", "parse", r"mismatched types\. int(32|64) vs\. int", r"T\.Div\("),
    ("TVM does not read what it prints: fget_param and fset_output", "parse", r"ty_args|fget_param|fset_output|call_packed|[Ff]uncType|R\.Callable", r"fget_param|fset_output"),
    # Elements 8, 5 and 2 of [8:0:-3]: TVM counts one more and would read the element before the first.
    ("TVM's length of a slice backwards with assume_inbound", "parse", r"not well-formed", r"R\.strided_slice\(.*-\d.*assume_inbound=True"),
    ("TVM has no lowering for it", "build", r"^InternalError: CodeGenVM cannot emit|[Uu]nknown shape|Expect value to be constant|non-symbolic shape|op is not supported yet|only supports? "
     r"|has no attribute '\w+'$|unknown intrinsic|Cannot decide min_value for type|do not work for local functions|power only applies|is invalid for axis|src_tensor_dim|multiple types of integer divisions|^InternalError: not implemented"
     r"|PrimExpr .* has not been comp"),
    ("TVM's lowering gives wrong code", "build", r"LLVM module verification failed|MatchesCode|IsFloatType|Cannot convert from type|Back optional access|split_indices must be sorted|cannot make uint from negative"
     r"|x not in list|^AssertionError|Check not null: ty|Invalid operand types for FCmp"
     r"|calling: `prim\._OpGT\(.*Expected `ir\.Expr` but got `ir\.TensorRegion`"),
    # Schedules count what they make in int32, and the axes stay int64.
    ("TVM's lowering mixes int32 with int64", "build", r"\(a_ty->dtype == b_ty->dtype\) is false: mismatched types\. int32 vs\. int64", r"\b(range|T\.vectorized|T\.grid)\(\d"),
    ("a function without a module, which relax.build does not take", "build", r"^TypeError: Mismatched type on argument #\d+ when calling: `transform\.RunPass"),
    # shape_inference.md, "errors": only what fails for certain is an error at compile time.
    (CHECKED, "build", r"EqualCheck\(output_shape"),
    (CHECKED, "parse", r"SliceScatter op requires the src tensor's dimension"
     r"|fails to match the axes because of unknown dim|the input shape at dim \d+ is '.*', but size of (scale|zero)|updates\.shape = indices\.shape"
     r"|uniform_sample and sample_indices to have the same batch size|to have a known integer shape value|expects valid_count to have shape"),
    # The tensor carries its dtype, and the view keeps it.
    ("TVM's lowering of a view needs the dtype", "build", r"IsUnknownDtype\(\)\) is false: Legalization of .*name=\"relax\.memory\.view\""),
    # Lowering of the struct of a tensor asks for a device that no target has stated.
    ("TVM's build does not know the device of a handle", "build", r"Unknown device id in current IR", r"T\.tvm_struct_get\("),
    # decisions.md, "Floats of 8 bits and fewer are storage types too".
    ("TVM's code generation has no floats of 4 and 6 bits", "build", r"Cannot find intrinsic declaration, possible type mismatch", r"float[46]_"),
    # Its lowering reads the weight by the axes' positions, which all of the dims shift.
    ("TVM's lowering of rms_norm over all dims", "build", r"shape\.size\(\) == indices\.size\(\).*Tensor dimension mismatch", r"R\.nn\.rms_norm\(.*axes=\[0[,\]]"),
    # Its fusion asks for a root block, which lowered kernels have no more.
    ("a kernel without blocks, which TVM's passes do not take", "build", r"func->body->IsInstance<s_tir::SBlockRealizeNode>"),
    # As "not implemented" above: a loop over threads is a loop on a processor.
    ("a kernel for a GPU, of which TVM's build for processors makes no code", "build", r"Unknown device id in current IR", r"T\.(thread_binding|launch_thread)\("),
    ("a device that TVM's wheel makes no code for", "build", r"KeyError: 'key is not in Map'"),
    ("TVM crashes", "crash", r"^TVM died"),
    ("TVM takes too long", "timeout", r"^TVM takes too long"),
]


# What memory holds that nothing has written: numbers that no model of these computes.
UNWRITTEN = r"result \d+: (?s:.*)(\de[+-][1-4]\d|\b\d{9,}\b|\bnan\b)"
# Results that TVM's own types contradict, or that nothing defines: (part of the text, pattern of the difference, reason).
KNOWN_RESULTS = [
    # Its kernel takes the spatial axes by their order, whatever the letters say.
    ('data_layout="NCWH"', r"result \d+: \[", "a layout whose spatial axes stand in another order than the weights'"),
    # decisions.md, "uint1 is a truth value".
    ('"uint1"', r"result \d+: uint1 \[", "a result of uint1, of which TVM keeps the lowest bit"),
    ("avg_pool", r"int64.*ours u?int(8|16|32)", "the type says what the operand is"),
    ("R.mean", r"int64.*ours u?int(8|16|32)", "the type says what the operand is"),
    # TVM folds the two casts of `Cast("float32", Cast("bfloat16", x))`, and computes in float32 between them.
    ('T.Cast("float32", T.Cast("bfloat16"', r"^result \d+: \[", "rounded to bfloat16"),
    # TVM folds `x != x` to false, also where x is not a number.
    ("T.log(A[i]) != T.log(A[i])", r"^result", "a number that is none equals itself"),
    # TVM folds `Cast("float64", x - 1)` of an unsigned x as if it had no range.
    ('T.Cast("float64"', r"result \d+: \[(?s:.*)-1\.(?s:.*), ours \[(?s:.*)(255\.|4\.29|1\.84)", "an unsigned number below zero"),
    # The length that TVM counts is that of a slice that stays inside, ours ends where the tensor does.
    ("assume_inbound=True", r"^result 0: (\w+)\(.*\), ours \1\(", "a slice that is said to stay inside, and leaves the tensor"),
    ("eye_like", r"result 0: \w+\(\d+, \d+\), ours", "the dtype that is asked for"),
    ("resize", r"float32\(.*ours float16", "out_dtype"),
    ("grid_sample", r"float32\(.*ours float16", "the type says what the operand is"),
    ("R.outer", r"float(32|64)\(.*ours u?int", "the type says what the operand is"),
    # TVM takes a mode that it does not know for "constant".
    ('"edge"', r"^result", "padding with the edge"),
    ("R.nn.batch_norm", r"float32\(.*ours float16", "the type says float16"),
    ("R.unique", r"result [12]: int64\(\d+(, \d+)+\), ours int64\(\d+,\)", "the type says that indices are vectors"),
    ("_pool2d_backward", r"^result", "a gradient of another shape than the result"),
    ("R.unique", r"result [12]: int64\(\), ours int64\(1,\)", "the type says that indices are vectors"),
    ("x[0] = T.float32(0.0)", UNWRITTEN, "one element of two is written"),
    ("alloc_tensor", UNWRITTEN, "elements that nothing writes"),
    ("T.evaluate(0)", UNWRITTEN, "a kernel that writes nothing"),
    # `f // 8` is 0: TVM's loops of the reduction are empty, with the init in their first step.
    ("group_conv2d_nchw", UNWRITTEN, "a reduction over no channels"),
    ("adaptive_avg_pool", r"int32.*ours u?int(8|16)", "the type says what the operand is"),
    ("keepdims=True", r"result 0: \w+\(1,\)", "the median over all axes"),
    ("R.index_tensor", UNWRITTEN, "an index that does not exist"),
    ("R.gather_elements", UNWRITTEN, "an index that does not exist"),
    ('mode="fast"', UNWRITTEN, "an index that does not exist"),
    ("range(T.int64(-", UNWRITTEN, "loops that write nothing"),
    ("topk", r"^result", "more elements than there are"),
    ("all_class_non_max_suppression", r"^result", "rows behind the last box"),
    ("roi_", r"^result", "a batch index that does not exist"),
]


def rounding(program, path, text, answer, mine, folder):
    """Is it float16 or a float of 8 bits that makes results differ? Ours in float64 is the arbiter: where nothing is rounded
    to fewer bits, and of the same inputs, is our result as near to it as TVM's? (TVM's conversions of float8 are not
    those of ml_dtypes: decisions.md, "Floats of 8 bits and fewer are storage types too".)"""
    if not re.search(r"float16|float8_", text):
        return False
    wide = path.with_name("wide.rlx")
    wide.write_text(re.sub(r"\bfloat(16|32|8_\w+)\b", "float64", text))
    args = widened(answer["args"])
    done, _, exact = ours(program, wide, {**answer, "args": args}, folder)
    if done or not len(exact) == len(mine) == len(answer["outs"]):
        return False
    for a, b, e in zip(answer["outs"], mine, exact):
        if a.dtype.name.startswith("float8_") and b.dtype == np.uint8:
            b = b.view(a.dtype)  # numpy holds its codes
        if a.shape != b.shape or b.shape != e.shape or a.dtype != b.dtype:
            return False
        if e.dtype.kind != "f":
            if not any(b.dtype == x.dtype and np.array_equal(b, x) for x in (a, e)):
                return False
            continue
        a, b = a.astype("float64"), b.astype("float64")
        with np.errstate(all="ignore"):
            scale = np.maximum(1, np.abs(e))
            off, theirs = np.abs(b - e) / scale, np.abs(a - e) / scale
        # Where TVM's leaves the range of float16, or neither has a number, ours may do as it does.
        off = np.where((~np.isfinite(a) & ~np.isfinite(b)) | (np.isnan(b) & np.isnan(e)), 0, off)
        theirs = np.where(np.isfinite(theirs), theirs, 0)
        if not np.isfinite(off).all() or off.max(initial=0) > 2 * theirs.max(initial=0) + 2e-3:
            return False
    return True


def widened(value):
    if isinstance(value, list):
        return [widened(v) for v in value]
    return value.astype("float64") if value.dtype.kind == "f" else value


def solved(program, path, folder):
    """Does `--strict` refuse dims of a signature that we solve for (shapes_in_relax.md, test I; well-formedness 5)?"""
    done = subprocess.run([program, str(path), "-o", str(folder / "out.so"), "--strict"], capture_output=True, text=True)
    return done.returncode == 1 and "well-formedness 5" in done.stderr


def checked(program, path, folder, what):
    """Does the library check at run time what this pattern describes?"""
    done = subprocess.run([program, str(path), "-o", str(folder / "out.so"), "--report"], capture_output=True, text=True)
    return done.returncode == 0 and re.search(what, done.stdout) is not None


def outside(program, path, answer, folder):
    """Does a kernel of the module access elements outside of its arrays?"""
    name = ["--entry", answer.get("entry", "main")]
    done = subprocess.run([program, "run", str(path), "--inputs", str(folder / "in.npz"), "--check-bounds", *name], capture_output=True, text=True)
    return done.returncode != 0 and re.search(r"outside|out of bounds|not inside", done.stderr) is not None


def cached(o, text):
    """TVM's answer, from the cache where it is there."""
    if not o.cache:
        return oracle.ask(text, seed=o.seed, run=not o.no_run)
    at = pathlib.Path(o.cache, hashlib.sha256(f"{o.seed} {text}".encode() if "def main(" in text else f"{o.seed} entry {text}".encode()).hexdigest())
    if o.cached and not at.exists():
        return None
    if at.exists():
        return pickle.loads(at.read_bytes())
    answer = oracle.ask(text, seed=o.seed, run=not o.no_run)
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_bytes(pickle.dumps(answer))
    return answer


def known(theirs, code, message, text=""):
    if theirs["stage"] is None:
        earlier = WE_REFUSE_EARLIER if "outs" not in theirs else []
        return next((what for what, ours in WE_REFUSE + earlier if code in (1, 3) and re.search(ours, message, re.M)), None)
    for what, stage, reason, *needed in TVM_REFUSES:
        if theirs["stage"] == stage and code == 0 and re.search(reason, theirs["why"]) and all(re.search(part, text) for part in needed):
            return what
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("family")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=100)
    p.add_argument("--no-run", action="store_true")
    p.add_argument("--keep")
    p.add_argument("--cache", help="a folder that keeps TVM's answers")
    p.add_argument("--cached", action="store_true", help="only texts that it has an answer for")
    p.add_argument("--every", type=int, default=1, help="one of N texts of a folder")
    p.add_argument("--classes", action="store_true", help="the differences by kind and message, without the texts")
    o = p.parse_args()
    seen, classes = collections.Counter(), collections.defaultdict(list)
    folder = pathlib.Path(tempfile.mkdtemp())
    if pathlib.Path(o.family).is_dir():
        texts = [(f.name, f.read_text()) for f in sorted(pathlib.Path(o.family).rglob("*.rlx"))[::o.every]]
    else:
        make = importlib.import_module(o.family).module
        texts = [(f"{o.family}-{o.seed}-{i}", make(random.Random(f"{o.seed} {i}"))) for i in range(o.count)]
    for name, text in texts:
        path = folder / "module.rlx"
        path.write_text(text)
        theirs = cached(o, text)
        if theirs is None:
            continue
        code, message, results = ours(o.program, path, theirs, folder)
        accepted = theirs["stage"] is None
        kind = why = None
        if code not in (0, 1, 3):
            kind, why = "our fault", f"exit code {code}: {message}"
        elif accepted and "run_error" in theirs and not known(theirs, code, message, text):
            kind, why = (None, None) if code == 0 else ("TVM accepts, we refuse", message)
        elif accepted and code == 1 and " failed with code " in message:
            seen["a check at run time fails"] += 1  # TVM computes something of arrays that do not fit
            continue
        elif (reason := known(theirs, code, message, text)) and not (reason == CHECKED and not checked(o.program, path, folder, r"checks at run time: [1-9]")):
            seen[reason] += 1
            continue
        elif accepted and code:
            kind, why = "TVM accepts, we refuse", message
        elif not accepted and code == 0 and re.search(r"not well-formed|name '\w+' is not defined", theirs["why"]) and solved(o.program, path, folder):
            seen["dims that are solved for (shapes in Relax, test I), `--strict` refuses them"] += 1
            continue
        elif not accepted and code == 0 and "arguments of EwiseFMA must have the same shape" in theirs["why"] and checked(o.program, path, folder, r"R\.ewise_fma: the operands must have one shape"):
            seen["operands of ewise_fma that may be alike, which the library checks at run time"] += 1
            continue
        elif not accepted and code == 0 and theirs["stage"] == "parse" and "not well-formed" in theirs["why"] and checked(o.program, path, folder, r"of (argument|output) \d+ of `\w+` must be"):
            # Derivation 11.2.5: what may fit is a warning, and a check at run time.
            seen["dims of a kernel's argument or output that may fit, which the library checks at run time"] += 1
            continue
        elif not accepted and code == 0:
            kind, why = f"TVM refuses ({theirs['stage']}), we accept", theirs["why"]
        elif results is not None and theirs["tensors"] and filled(theirs["args"]) and (why := differ(theirs["outs"], results)):
            if rounding(o.program, path, text, theirs, results, folder):
                seen["results: rounded to float16 or float8 on the way, and no farther from float64 than TVM's"] += 1
                continue
            np.savez(folder / "in.npz", **{f"a{i}": a for i, a in enumerate(leaves(theirs["args"]))})
            reason = next((reason for part, pattern, reason in KNOWN_RESULTS if part in text and re.search(pattern, why)), None)
            if reason:
                seen[f"results: {reason}"] += 1
                continue
            if "-slip" in name and "T.prim_func" in text and re.search(UNWRITTEN, why):
                seen["results differ: a slip in a kernel, elements that nothing writes"] += 1
                continue
            if outside(o.program, path, theirs, folder):
                seen["a kernel accesses elements outside of its arrays"] += 1
                continue
            kind = "results differ"
        seen[("accepted" if accepted else "refused") if kind is None else kind] += 1
        if "outs" in theirs and kind is None:
            seen["ran alike"] += 1
        if kind:
            classes[kind, re.sub(r"\d+|`[^`]*`", "_", why.strip().splitlines()[0])[:150]].append(name)
            if not o.classes:
                print(f"--- {name}: {kind}\n{text}>> {why.strip()}\n", flush=True)
            if o.keep:
                pathlib.Path(o.keep, f"{name}.rlx").write_text(text)
    for (kind, why), names in sorted(classes.items(), key=lambda c: -len(c[1])) if o.classes else []:
        print(f"{len(names):4} {kind}: {why}\n       {', '.join(names[:3])}")
    print(dict(seen))
    bad = ("our fault", "TVM accepts, we refuse", "results differ", "TVM refuses (")
    sys.exit(1 if any(kind.startswith(bad) for kind in seen) else 0)


if __name__ == "__main__":
    main()
