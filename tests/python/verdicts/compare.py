"""Are our verdicts on modules TVM's, and our results?

Usage: compare.py RELAX_AOT FAMILY [--seed S] [--count N] [--no-run] [--keep DIR] [--cache DIR] [--cached] [--every N] [--classes]

FAMILY: operators, programs, or a folder of .rlx texts. TVM's verdict is that of its parser, of well_formed and of relax.build; ours
that of compiling. Where both accept, TVM's VM and our library run on the same random inputs. Prints every difference
and exits with 1 when there is one that KNOWN does not explain.
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
    if len(theirs) != len(mine):
        return f"{len(theirs)} results, ours has {len(mine)}"
    for i, (a, b) in enumerate(zip(theirs, mine)):
        if a.shape != b.shape or (a.dtype != b.dtype and a.ndim):
            return f"result {i}: {a.dtype}{a.shape}, ours {b.dtype}{b.shape}"
        if a.dtype.kind == "f":
            tol = 2e-2 if a.dtype == np.float16 else 2e-4
            a, b = a.astype("float64"), b.astype("float64")
            if not np.allclose(a, b, rtol=tol, atol=tol, equal_nan=True):
                return f"result {i}: {a.ravel()[:6]}, ours {b.ravel()[:6]}"
        elif not np.array_equal(a, b):
            return f"result {i}: {a.ravel()[:6]}, ours {b.ravel()[:6]}"
    return None


# Differences that the specification or a limit of TVM explains: (what, pattern of TVM's reason, pattern of our message).
KNOWN = [
    ("the stated result is wrong (typing 11.4)", None, r"error\[result\]: (the result (has|is)|dim|field )"),
    ("lowered for TVM's virtual machine", None, r"error\[lowered-text\]"),
    ("TVM does not read what it prints", r"value has to be scalar or Tensor.*R\.const|mismatched types. False type", None),
    ("an annotation that cannot be true (typing 10.1.2)", None, r"error\[annotation\]"),
    ("a recursive function states no result (well-formedness 7)", None, r"error\[missing-annotation\]"),
    ("a condition is no bool scalar (typing 8)", None, r"error\[condition\]"),
    ("an argument that cannot fit (derivation 11.2.5)", None, r"error\[argument\]: dim \d+ of argument"),
    ("a cast that always fails (shapes in Relax, test E)", None, r"error\[match-cast\]: (this cast always fails|match_cast of ret: the value is not)"),
    ("types narrower than a byte, floats of 8 bits", None, r"error\[dtype\]|has dtype u?int[124], which kernels do not support"),
    ("an object in the signature of an entry", None, r"error\[parameter\]: parameter \w+: an object of unknown structure"),
    ("nothing is exported (well-formedness 11)", None, r"no function (of the module is exported|to export)"),
    ("an attribute out of its range", None, r"must be \d+ positive integers|integers of at least 0|mode must be|does not fit into"
     r"|axis -?\d+ is out of range"),
    ("not supported yet", None, r"an axis is supported for vectors only|the elements must be int64"
     r"|is a Relax value, a scalar is needed"),
    ("TVM has no lowering for it", r"CodeGenVM cannot emit|has no attribute|[Uu]nknown shape|Expect value to be constant|non-symbolic shape|op is not supported yet"
     r"|^TypeError: Mismatched type"
     r"|do not work for local functions|split_indices must be sorted|MatchesCode|power only applies|is invalid for axis|IsFloatType"
     r"|Cannot convert from type|src_tensor_dim|Back optional access|^AssertionError", None),
    ("TVM crashes", r"^TVM died", None),
    ("TVM's script has no name for it", r"has no attribute 'inspect'", None),
]


# Results that TVM's own types contradict: (part of the text, pattern of the difference).
KNOWN_RESULTS = [
    ("avg_pool", r"int64.*ours int32"),  # the type says int32
    ("keepdims=True", r"result 0: \w+\(1,\)"),  # the median over all axes
    ('mode="fast"', r"^result"),  # an index that does not exist
    ("range(T.int64(-", r"^result"),  # loops that write nothing
    ("topk", r"^result"),  # more elements than there are
    ("all_class_non_max_suppression", r"^result"),  # rows behind the last box
    ("roi_", r"^result"),  # a batch index that does not exist
]


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


def known(theirs, code, message):
    for what, reason, ours in KNOWN:
        if theirs["stage"] is None and ours and code in (1, 3) and re.search(ours, message):
            return what
        if theirs["stage"] in ("parse", "build", "crash", "timeout") and reason and code == 0 and re.search(reason, theirs["why"]):
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
        if theirs["stage"] == "parse" and re.search(r"fget_param|fset_output", text):
            seen["TVM does not read what it prints"] += 1  # the types of those functions
            continue
        kind = why = None
        if code not in (0, 1, 3):
            kind, why = "our fault", f"exit code {code}: {message}"
        elif accepted and "run_error" in theirs and not known(theirs, code, message):
            kind, why = (None, None) if code == 0 else ("TVM accepts, we refuse", message)
        elif accepted and code == 1 and " failed with code " in message:
            seen["a check at run time fails"] += 1  # TVM computes something of arrays that do not fit
            continue
        elif (reason := known(theirs, code, message)):
            seen[reason] += 1
            continue
        elif accepted and code:
            kind, why = "TVM accepts, we refuse", message
        elif not accepted and code == 0:
            kind, why = f"TVM refuses ({theirs['stage']}), we accept", theirs["why"]
        elif results is not None and theirs["tensors"] and filled(theirs["args"]) and (why := differ(theirs["outs"], results)):
            if any(part in text and re.search(pattern, why) for part, pattern in KNOWN_RESULTS):
                seen["TVM's result contradicts its type, or is undefined"] += 1
                continue
            if "-slip" in name and "T.prim_func" in text:
                seen["results differ: a slip in a kernel, elements that nothing writes"] += 1
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
    bad = {"our fault", "TVM accepts, we refuse", "results differ"}
    sys.exit(1 if bad & set(seen) else 0)


if __name__ == "__main__":
    main()
