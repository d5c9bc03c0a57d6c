"""One or two slips in a text."""

import re

DTYPES = ["float32", "float16", "float64", "int32", "int64", "bool", "int8", "uint8"]
NAME = re.compile(r"(?<![\w.\"])([a-z_]\w*)(?![\w(=\".])")
WORDS = set("def return with if else class for in cls and or not True False None T R I pass metadata".split())


def _pick(rng, text, pattern):
    found = list(re.finditer(pattern, text))
    return rng.choice(found) if found else None


def _replace(text, m, new, group=0):
    return text[:m.start(group)] + new + text[m.end(group):]


def drop_line(rng, lines):
    i = rng.randrange(len(lines))
    return lines[:i] + lines[i + 1:]


def swap_lines(rng, lines):
    i = rng.randrange(len(lines) - 1)
    return lines[:i] + [lines[i + 1], lines[i]] + lines[i + 2:]


def repeat_line(rng, lines):
    i = rng.randrange(len(lines))
    return lines[:i + 1] + lines[i:]


def other_name(rng, lines):
    text = "\n".join(lines)
    found = [m for m in NAME.finditer(text) if m.group(1) not in WORDS]
    if len(found) < 2:
        return None
    a, b = rng.choice(found), rng.choice(found)
    return _replace(text, a, b.group(1), 1).split("\n")


def other_number(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"(?<![\w.])\d+(?![\w.])")
    if not m:
        return None
    v = int(m.group())
    return _replace(text, m, str(rng.choice([v + 1, max(v - 1, 0), v * 2, 1, 0, -1]))).split("\n")


def other_dtype(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"float32|float16|float64|int32|int64|bool|int8|uint8")
    return m and _replace(text, m, rng.choice(DTYPES)).split("\n")


def drop_argument(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"(?<=[(,]) ?[\w.\"]+,|, ?[\w.\"]+(?=[,)])")
    return m and _replace(text, m, "").split("\n")


def add_argument(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"(?<=\()\w+(?=[,)])")
    return m and _replace(text, m, f"{m.group()}, {m.group()}").split("\n")


def drop_annotation(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r": R\.\w+\([^=\n]*\)(?= = )|, dtype=\"\w+\"| -> [^\n]*(?=:\n)")
    return m and _replace(text, m, "").split("\n")


def other_operator(rng, lines):
    text = "\n".join(lines)
    a, b = _pick(rng, text, r"\bR\.((nn\.)?[a-z_]\w*)\("), _pick(rng, text, r"\bR\.((nn\.)?[a-z_]\w*)\(")
    if not a:
        return None
    new = rng.choice([b.group(1), b.group(1), "add", "exp", "sum", "multiply", "nn.softmax", "shape_of", "permute_dims"])
    return _replace(text, a, new, 1).split("\n")


def other_dim(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"\(((?:\"?\w+\"?, ?)*\"?\w+\"?,?)\), dtype")
    if not m:
        return None
    dims = [d for d in m.group(1).replace(" ", "").split(",") if d]
    i = rng.randrange(len(dims))
    way = rng.randrange(4)
    dims = dims[:i] + dims[i + 1:] if way == 0 else dims + [dims[i]] if way == 1 else dims[::-1] if way == 2 else dims[:i] + [rng.choice(dims)] + dims[i + 1:]
    return _replace(text, m, ", ".join(dims) + ("," if len(dims) == 1 else ""), 1).split("\n")


def other_flag(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"True|False|None")
    return m and _replace(text, m, rng.choice(["True", "False", "None", "0"])).split("\n")


def open_type(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"R\.Tensor\(\(([^()]*)\), dtype=(\"\w+\")\)")
    if not m:
        return None
    rank = len([d for d in m.group(1).split(",") if d.strip()])
    return _replace(text, m, rng.choice([f"R.Tensor(dtype={m.group(2)}, ndim={rank})", f"R.Tensor(dtype={m.group(2)})", "R.Tensor", "R.Any", f"R.Tensor(ndim={rank + 1})"])).split("\n")


WAYS = [drop_line, swap_lines, repeat_line, other_name, other_name, other_name, other_number, other_number, other_dtype, other_dtype, drop_argument, add_argument, drop_annotation,
        drop_annotation, other_operator, other_dim, other_dim, other_flag, open_type, open_type]


def mutate(rng, text):
    """`text` with a slip, or None. The header stays."""
    lines = text.rstrip("\n").split("\n")
    head = next((i for i, line in enumerate(lines) if line.startswith("class ")), -1) + 1
    body = lines[head:]
    if len(body) < 3:
        return None
    done = rng.choice(WAYS)(rng, body)
    if not done or done == body:
        return None
    return "\n".join(lines[:head] + done) + "\n"
