#!/usr/bin/env python3
"""stack_bound.py FILE.ci FUNCTION: bytes of stack that a call takes at most, from what GCC writes with
-fcallgraph-info=su: the frames along the deepest path of calls.

Functions of the compiler's own library (__aeabi_..: arithmetic that the processor lacks) have no frame in the file: for
each LIBRARY bytes are assumed.
"""
import re, sys

LIBRARY = 64

frames, calls = {}, {}
for line in open(sys.argv[1]):
    if line.startswith("node:"):
        name = re.search(r'title: "([^"]*)"', line)[1].split(":")[-1]
        size = re.search(r"(\d+) bytes \((\w+)", line)
        if size and size[2] not in ("static", "dynamic,bounded"):
            sys.exit(f"{name}: its frame has no bound")
        frames[name] = int(size[1]) if size else LIBRARY
    elif line.startswith("edge:"):
        a, b = (re.search(rf'{k}: "([^"]*)"', line)[1].split(":")[-1] for k in ("sourcename", "targetname"))
        calls.setdefault(a, set()).add(b)


def depth(name, path=()):
    if name in path:
        sys.exit(f"{name}: recursion")
    # A call through a pointer: the allocator of the call and the caller's own hooks, which these images have not.
    if name == "__indirect_call":
        return 0
    return frames.get(name, LIBRARY) + max((depth(c, (*path, name)) for c in calls.get(name, ())), default=0)


print(depth(sys.argv[2]))
