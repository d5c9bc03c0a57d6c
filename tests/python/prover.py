"""Judges the answers of the shape prover with z3: reads `ANSWER<tab>SMT-LIB` lines (ir/tests/prover.rs)
from standard input. An answer is wrong when its SMT-LIB has a solution. What z3 does not decide within its time is
counted."""

import sys
import time

import z3

LIMIT_SECONDS = 25


def main():
    begin = time.monotonic()
    right = open_ = left_out = 0
    wrong = []
    for line in sys.stdin:
        answer, text = line.rstrip("\n").split("\t")
        if time.monotonic() - begin > LIMIT_SECONDS:
            left_out += 1
            continue
        solver = z3.Solver()
        solver.set("timeout", 60)
        solver.from_string(text)
        verdict = solver.check()
        if verdict == z3.sat:
            wrong.append(f"{answer} is wrong where {solver.model()}:\n  {text}")
        elif verdict == z3.unsat:
            right += 1
        else:
            open_ += 1
    print(f"{right} answers confirmed, {open_} not decided by z3, {left_out} not asked, {len(wrong)} wrong")
    for w in wrong[:20]:
        print(w)
    # A judge that decides nothing has judged nothing.
    return 1 if wrong or right < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
