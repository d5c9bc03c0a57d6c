"""Where each Relax operator of the installed TVM is compared with it.

Usage: coverage.py

Columns: texts of the corpus (results recorded from TVM), modules of tests/lang, single operators (singles/, run beside TVM
by compare.py), and whether the random modules of operators.py and programs.py have it. Operators that name other devices
are refused. Exits with 1 when an operator is neither refused nor compared.
"""

import pathlib
import re
import sys

import tvm
from tvm import relax  # noqa: F401, registers operators

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parents[1]
# Refused by name, with a message that says so.
REFUSED = re.compile(r"dist\.|to_vdevice$")


def texts(folder):
    found = {}
    for path in sorted(folder.rglob("*.rlx")):
        for name in set(re.findall(r"\bR\.((?:\w+\.)*\w+)\(", path.read_text())):
            found[name] = found.get(name, 0) + 1
    return found


def main():
    columns = [texts(TESTS / "corpus"), texts(TESTS / "lang"), texts(HERE / "singles")]
    random = "".join((HERE / f).read_text() for f in ["operators.py", "programs.py"])
    names = sorted(n[len("relax."):] for n in tvm.ir.Op.list_op_names() if n.startswith("relax."))
    print(f"{'operator':36} corpus   lang  single  random")
    count, missing = [0, 0], []
    for name in names:
        if REFUSED.match(name):
            print(f"{name:36} refused")
            count[1] += 1
            continue
        row = [c.get(name, 0) for c in columns]
        drawn = bool(re.search(rf"""(?:\bR\.|["' ]){re.escape(name)}(?!\w)""", random))
        print(f"{name:36} {row[0]:6} {row[1]:6} {row[2]:7} {'yes' if drawn else '':>7}")
        count[0] += 1
        if not any(row) and not drawn:
            missing.append(name)
    print(f"{len(names)} operators: {count[0]} compiled and compared, {count[1]} refused by name")
    if missing:
        sys.exit(f"not compared: {', '.join(missing)}")


main()
