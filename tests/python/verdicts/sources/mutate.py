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


def purity(rng, lines):
    """Another promise of a Relax function, or of an operator."""
    text = "\n".join(lines)
    m = _pick(rng, text, r"@R\.function(\([^)\n]*\))?|R\.call_pure_packed|R\.call_packed|R\.invoke_pure_closure|R\.invoke_closure")
    if not m:
        return None
    way = m.group()
    if way.startswith("@"):
        new = rng.choice(["@R.function", "@R.function(pure=False)", "@R.function(private=True)", "@R.function(private=True, pure=False)"])
    else:
        new = {"R.call_pure_packed": "R.call_packed", "R.call_packed": "R.call_pure_packed", "R.invoke_pure_closure": "R.invoke_closure"}.get(way, "R.invoke_pure_closure")
    return _replace(text, m, new).split("\n")


def bind_twice(rng, lines):
    """A binding takes the name of another variable."""
    bound = [(i, m) for i, line in enumerate(lines) if (m := re.match(r"(\s+)([a-z_]\w*)((?:: [^=]*)? = (?!T\.).*)$", line))]
    if len(bound) < 2:
        return None
    (i, m), (_, other) = rng.sample(bound, 2)
    return lines[:i] + [m.group(1) + other.group(2) + m.group(3)] + lines[i + 1:]


def earlier(rng, lines):
    """A line moves before what it uses, or into the block before it."""
    i = rng.randrange(1, len(lines))
    to = max(i - rng.randrange(1, 6), 0)
    moved = lines[i]
    if rng.random() < 0.5 and lines[to].strip():
        moved = lines[to][: len(lines[to]) - len(lines[to].lstrip())] + moved.lstrip()
    return lines[:to] + [moved] + lines[to:i] + lines[i + 1:]


def other_field(rng, lines):
    """Another field of a tuple."""
    text = "\n".join(lines)
    m = _pick(rng, text, r"(?<=\w\[)\d(?=\])")
    return m and _replace(text, m, rng.choice(["0", "1", "2", "7", "-1"])).split("\n")


def other_outputs(rng, lines):
    """Another list of what leaves a dataflow block, or a block that ends elsewhere."""
    found = [i for i, line in enumerate(lines) if line.lstrip().startswith("R.output(")]
    if not found:
        return None
    i = rng.choice(found)
    indent, names = re.match(r"(\s*)R\.output\((.*)\)", lines[i]).groups()
    names = [n.strip() for n in names.split(",") if n.strip()]
    bound = [m.group(1) for line in lines[:i] if (m := re.match(r"\s+([a-z_]\w*)(?:: [^=]*)? = ", line))]
    way = rng.randrange(4)
    if way == 0 and bound:
        names = names + [rng.choice(bound)]
    elif way == 1 and len(names) > 1:
        names.pop(rng.randrange(len(names)))
    elif way == 2 and bound:
        names = [rng.choice(bound)]
    else:
        return lines[:i] + lines[i + 1: i + 2] + [lines[i]] + lines[i + 2:]
    return lines[:i] + [f"{indent}R.output({', '.join(names)})"] + lines[i + 1:]


def no_dataflow(rng, lines):
    """The bindings of a dataflow block stand alone."""
    found = [i for i, line in enumerate(lines) if line.strip() == "with R.dataflow():"]
    if not found:
        return None
    i = rng.choice(found)
    depth = len(lines[i]) - len(lines[i].lstrip())
    out, k = lines[:i], i + 1
    while k < len(lines) and (not lines[k].strip() or len(lines[k]) - len(lines[k].lstrip()) > depth):
        if not lines[k].lstrip().startswith("R.output(") or rng.random() < 0.3:
            out.append(lines[k][4:])
        k += 1
    return out + lines[k:]


def dataflow(rng, lines):
    """Some bindings become a dataflow block."""
    bound = [i for i, line in enumerate(lines) if re.match(r"        [a-z_]\w*(?:: [^=]*)? = (?!T\.|Module)", line)]
    if not bound:
        return None
    i = rng.choice(bound)
    k = i
    while k + 1 < len(lines) and k + 1 in bound and rng.random() < 0.7:
        k += 1
    name = re.match(r"\s+(\w+)", lines[k]).group(1)
    return lines[:i] + ["        with R.dataflow():"] + ["    " + line for line in lines[i:k + 1]] + [f"            R.output({name})"] + lines[k + 1:]


def swap_arguments(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"\(([\w.\"]+), ([\w.\"]+)(?=[,)])")
    return m and _replace(text, m, f"({m.group(2)}, {m.group(1)}").split("\n")


def other_callee(rng, lines):
    """Another function or kernel of the module."""
    text = "\n".join(lines)
    names = re.findall(r"^    def (\w+)\(", text, re.M)
    m = _pick(rng, text, r"(?<=\bcls\.)\w+|(?<=\bModule\.)\w+")
    return m and names and _replace(text, m, rng.choice(names)).split("\n")


def drop_function(rng, lines):
    starts = [i for i, line in enumerate(lines) if re.match(r"    @[RT]\.", line)]
    if len(starts) < 2:
        return None
    k = rng.randrange(len(starts))
    end = starts[k + 1] if k + 1 < len(starts) else len(lines)
    return lines[:starts[k]] + lines[end:]


def other_axis(rng, lines):
    text = "\n".join(lines)
    m = _pick(rng, text, r"(?<=axis=)-?\d+|(?<=axes=\[)-?\d+|(?<=axis=\[)-?\d+|(?<=dim=)-?\d+")
    return m and _replace(text, m, rng.choice(["0", "1", "2", "-1", "-2", "3", "-5", "None"])).split("\n")


def other_symbol(rng, lines):
    """One use of a symbolic dim: a literal, another expression of it, or a new name."""
    text = "\n".join(lines)
    names = sorted(set(re.findall(r"(\w+) = T\.int64\(\)", text)) | set(re.findall(r"\"(\w+)\"(?=[,)])", text)) & set("nmkbsdhw"))
    if not names:
        return None
    name = rng.choice(names)
    m = _pick(rng, text, rf"(?<=[(\[, ])\"?{name}\"?(?=[,)\] ])")
    if not m:
        return None
    quote = '"' if m.group().startswith('"') else ""
    new = rng.choice(["2", f"{quote}{name} + 1{quote}", f"{quote}{name} * 2{quote}", f"{quote}new{quote}", f"{quote}{rng.choice(names)}{quote}", f"{quote}{name} // 2{quote}", f"{quote}{name} % 3{quote}"])
    return _replace(text, m, new).split("\n")


def other_result(rng, lines):
    """Another type of a function's result, or another value."""
    text = "\n".join(lines)
    m = _pick(rng, text, r"(?<=-> )R\.[^\n]*(?=:\n)")
    if not m or rng.random() < 0.3:
        m = _pick(rng, text, r"(?<=return )\w+(?=\n|$)")
        return m and _replace(text, m, rng.choice([f"({m.group()},)", f"({m.group()}, {m.group()})", f"{m.group()}[0]", "R.tuple()"])).split("\n")
    return _replace(text, m, rng.choice(["R.Any", "R.Tensor", "R.Tuple", "R.Shape", "R.Tensor(ndim=2)", "R.Tensor(dtype=\"float32\")", f"R.Tuple({m.group()})", f"R.Tuple({m.group()}, {m.group()})"])).split("\n")


def cast_instead(rng, lines):
    """A binding with a type becomes a cast to it, or the other way round."""
    found = [(i, m) for i, line in enumerate(lines) if (m := re.match(r"(\s+\w+): (R\.[^=]*(?:=[^=,)]*[^=]*)?) = (\w+|R\.\w+\(.*\))$", line))]
    if not found:
        return None
    i, m = rng.choice(found)
    return lines[:i] + [f"{m.group(1)} = R.match_cast({m.group(3)}, {m.group(2)})"] + lines[i + 1:]


_BLOCKS = [purity, bind_twice, earlier, other_field, other_outputs, no_dataflow, dataflow, swap_arguments, other_callee, drop_function, other_axis, other_symbol, other_symbol,
            other_result, cast_instead]
WAYS = [drop_line, swap_lines, repeat_line, other_name, other_name, other_name, other_number, other_number, other_dtype, other_dtype, drop_argument, add_argument, drop_annotation,
        drop_annotation, other_operator, other_dim, other_dim, other_flag, open_type, open_type] + _BLOCKS


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
