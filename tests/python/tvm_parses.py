"""Does TVM parse what we print?

Usage: tvm_parses.py PRINTED_DIR [CORPUS_DIR]

PRINTED_DIR holds our print of corpus texts under their own names (PRINT_DIR=... cargo test -p relax-frontend --test
roundtrip). Every text that TVM 0.27 reads in its original form (`reparsed_and_agrees` in MANIFEST.json) must be read
in our form too, and be the same module; its normal form (PRINTED_DIR/normal) must be read. Texts that TVM refuses in its own print are counted apart: ours may do better.
"""

import collections
import functools
import json
import multiprocessing
import os
import re
import sys

import ml_dtypes
import numpy as np
import tvm
import tvm.script


def parse(text):
    return tvm.script.from_source(text)


def last_lines(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n    ".join(lines[-6:])


FLOAT = re.compile(r"T\.(float16|bfloat16|float32)\((-?[0-9][0-9.e+-]*)\)|R\.const\((-?[0-9][0-9.e+-]*), \"(float16|bfloat16|float32)\"\)")


def rounded(match):
    dtype = match.group(1) or match.group(4)
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}[dtype]
    return f"{dtype} {float(kind(float(match.group(2) or match.group(3))))!r}"


def normal(module):
    """The module's text without what we leave out or write otherwise with the same meaning."""
    lines = []
    for line in module.script(show_meta=True).splitlines():
        # Spans of constants; imports; offsets that say "anywhere".
        if re.match(r'\s*(#|\\"(line|column|end_line|end_column)\\")|\w+ = TypeVar', line):
            continue
        line = re.sub(r", elem_offset=\w+", "", line)
        # TVM keeps more digits of a float than its type has.
        line = FLOAT.sub(rounded, line)
        # Casts to the type that a value has; the remainder of floats.
        line = re.sub(r'T\.Cast\("int64", (v_\w+)\)', r"\1", line).replace("T.fmod(", "T.truncmod(")
        # Ranges, whose end TVM computes anew each time it reads them.
        while (shorter := re.sub(r"(v_\w+) \+ \((.*) - \1\)", r"\2", line)) != line:
            line = shorter
        lines.append(line)
    return lines


def difference(a, b):
    """The first line where two modules differ."""
    try:
        tvm.ir.assert_structural_equal(a, b, map_free_vars=True)
        return None
    except ValueError:
        pass
    a, b = normal(a), normal(b)
    for x, y in zip(a, b):
        if x != y:
            return f"{x.strip()[:300]}\n    {y.strip()[:300]}"
    return None if len(a) == len(b) else f"{len(a)} lines, {len(b)} lines"


def verdict(printed, corpus, text):
    """`None` for what was rightly not printed, or ("same" | "better" | "other" | "failure", a message)."""
    name = text["file"]
    agrees = text["reparsed_and_agrees"] is True
    path = os.path.join(printed, name)
    if not os.path.exists(path):
        if agrees and name != "median_bucketize.legalized.rlx":
            return "failure", f"{name}: not printed"
        return None
    with open(path) as f:
        ours = f.read()
    try:
        module = parse(ours)
    except BaseException as error:  # TVM raises DiagnosticError, TypeError, SystemExit...
        return ("failure", f"{name}: {last_lines(error)}") if agrees else ("other", "")
    if not agrees:
        return "better", ""
    normal_form = os.path.join(printed, "normal", name)
    if os.path.exists(normal_form):
        with open(normal_form) as f:
            try:
                parse(f.read())
            except BaseException as error:
                return "failure", f"normal form of {name}: {last_lines(error)}"
    with open(os.path.join(corpus, name)) as f:
        original = parse(f.read())
    differs = difference(module, original)
    return ("same", "") if differs is None else ("failure", f"{name}: another module:\n    {differs}")


def main():
    printed = sys.argv[1]
    here = os.path.dirname(os.path.abspath(__file__))
    corpus = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "..", "corpus")
    with open(os.path.join(corpus, "MANIFEST.json")) as f:
        manifest = json.load(f)
    texts = [text for case in manifest["cases"] for text in case["texts"]]
    with multiprocessing.Pool() as pool:
        verdicts = pool.map(functools.partial(verdict, printed, corpus), texts, chunksize=8)
    count = collections.Counter(v[0] for v in verdicts if v)
    print(f"{count['same']} printed texts are the same module to TVM")
    print(f"{count['better']} more are read by TVM (older dialects, and texts that TVM refuses in its own print), "
          f"{count['other']} are not")
    for kind, message in filter(None, verdicts):
        if kind == "failure":
            print("FAIL", message)
    sys.exit(1 if count["failure"] or not count["same"] else 0)


if __name__ == "__main__":
    main()
