"""Relax modules of TVM's own tests, as texts.

Usage: harvest.py TVM_SOURCE OUT [--only PATTERN] [--jobs N] [--seconds S] [--test-seconds S]

Runs the test files of a source tree of TVM (tests/python/relax, ir and tvmscript) with pytest under the installed TVM, each file in
a process of its own, with hooks on what they touch: the sources of TVMScript that are parsed (those that do not parse as well),
what passes take and give, what a BlockBuilder has built, calls that it normalises (each becomes a function of its own; those
that it refuses as well), both sides of comparisons, and what is built. Writes every distinct Relax module as OUT/FILE-HASH.rlx;
`compare.py RELAX_AOT OUT --classes` then puts them before TVM and us. A step by hand: the sources are not in TVM's wheel, and
the texts are not ours. Tests of frontends run where the frontend's package is installed: run it once with each Python.
"""

import argparse
import concurrent.futures
import fnmatch
import hashlib
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

LIMIT = 40_000
DEVICES = {"adreno", "nvshmem", "distributed", "disco"}  # folders of tests that need them
FOLDERS = ["relax", "ir", "tvmscript"]  # those that have Relax
HEADER = "# from tvm.script import ir as I\n# from tvm.script import relax as R\n# from tvm.script import tirx as T\n\n"


class Writer:
    """The distinct modules of one test file."""

    def __init__(self, out, stem):
        self.out, self.stem, self.seen, self.busy = pathlib.Path(out), stem, set(), False

    def write(self, text):
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        if len(text) <= LIMIT and key not in self.seen:
            self.seen.add(key)
            (self.out / f"{self.stem}-{key}.rlx").write_text(text)

    def guarded(self, f, *args):
        """Hooks call TVM, whose functions have hooks."""
        if self.busy:
            return
        self.busy = True
        try:
            f(*args)
        except Exception:  # what TVM cannot print or build is no module for us
            pass
        finally:
            self.busy = False

    def module(self, mod):
        self.guarded(self._module, mod)

    def _module(self, mod):
        import tvm
        from tvm import relax

        if isinstance(mod, relax.Function):
            name = mod.attrs["global_symbol"] if mod.attrs and "global_symbol" in mod.attrs else "main"
            mod = tvm.IRModule({str(name): mod.with_attr("global_symbol", str(name))})
        if isinstance(mod, tvm.IRModule) and any(isinstance(f, relax.Function) for f in mod.functions.values()):
            self.write(mod.script(show_meta=True))

    def call(self, call):
        self.guarded(self._call, call)

    def _call(self, call):
        """`call` as the only binding of a function whose parameters are its free variables."""
        from tvm import relax

        if not isinstance(call, relax.Call):
            return
        params = list(relax.analysis.free_vars(call))
        try:
            builder = relax.BlockBuilder()
            with builder.function("main", params):
                builder.emit_func_output(builder.emit(call))
            self._module(builder.get())
        except Exception:
            result = relax.Var("gv", relax.AnyType())
            body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
            text = relax.Function(params, body, relax.AnyType(), True).with_attr("global_symbol", "main").script(show_meta=True)
            self.write(re.sub(r" -> R\.Any(?=:\n)|(?<=    gv): R\.Any(?= = )", "", text))

    def source(self, program, parse):
        """The text of a program as it stands in the test, where it needs nothing else of the test."""
        from tvm.script.parser.core.diagnostics import Source

        text = program if isinstance(program, str) else Source(program).source
        if not isinstance(text, str) or not re.search(r"\bR\.", text):
            return
        if not text.lstrip().startswith(("#", "from", "import")):
            text = HEADER + text
        missing = False
        try:
            parse(text)
        except BaseException as error:
            missing = "ndefined variable" in str(error) or isinstance(error, NameError)
        if not missing:
            self.write(text if text.endswith("\n") else text + "\n")


def install(writer):
    """The hooks."""
    import tvm
    import tvm.relax
    import tvm.script
    from tvm import relax
    from tvm.script.parser.core import entry

    # A tree that is newer than the installed TVM has moved some names.
    for old, new in [(relax, tvm.ir), (tvm.s_tir, tvm.tirx), (tvm.tirx, tvm.s_tir), (tvm.tirx, tvm.ir)]:
        for name in dir(old):
            if name[0].isupper() and not hasattr(new, name):
                setattr(new, name, getattr(old, name))
    parse = entry.parse
    tvm.script.from_source  # noqa: B018, it is made on demand

    def parsed(program, *args, **kwargs):
        try:
            result = parse(program, *args, **kwargs)
        finally:
            writer.guarded(writer.source, program, parse)
        writer.module(result)
        return result

    def replace(old, new):
        """In every module of TVM that has taken the name."""
        for name, module in list(sys.modules.items()):
            if name.startswith("tvm") and module is not None:
                for key, value in list(vars(module).items()):
                    if value is old:
                        setattr(module, key, new)

    def both(old):
        def new(lhs, rhs, *args, **kwargs):
            writer.module(lhs)
            writer.module(rhs)
            return old(lhs, rhs, *args, **kwargs)
        return new

    def first(old):
        def new(mod, *args, **kwargs):
            writer.module(mod)
            return old(mod, *args, **kwargs)
        return new

    def method(owner, name, given=None, made=None):
        old = getattr(owner, name)

        def new(self, *args, **kwargs):
            if given and args:
                given(args[0])
            result = old(self, *args, **kwargs)
            if made:
                made(result)
            return result
        setattr(owner, name, new)

    replace(parse, parsed)
    for old in [tvm.ir.structural_equal if hasattr(tvm.ir, "structural_equal") else None, tvm.ir.assert_structural_equal]:
        if old is not None:
            replace(old, both(old))
    for old in [relax.build, tvm.compile, relax.analysis.well_formed, relax.analysis.check_well_formed]:
        replace(old, first(old))
    method(tvm.ir.transform.Pass, "__call__", writer.module, writer.module)
    method(relax.BlockBuilder, "get", None, writer.module)
    method(relax.BlockBuilder, "finalize", None, writer.module)
    method(relax.BlockBuilder, "normalize", writer.call, None)
    method(relax.BlockBuilder, "emit", writer.call, None)


def pytest_configure(config):
    """pytest loads this file as a plugin, in the process of one test file."""
    install(Writer(os.environ["HARVEST_OUT"], os.environ["HARVEST_STEM"]))


def pytest_runtest_protocol(item, nextitem):
    """Each test in a child: some crash TVM, some never end. Nothing is reported."""
    pid = os.fork()
    if pid == 0:
        seconds = int(os.environ["HARVEST_SECONDS"])
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            from _pytest.runner import runtestprotocol

            runtestprotocol(item, log=False, nextitem=None)
        finally:
            os._exit(0)
    end = time.time() + 6 * int(os.environ["HARVEST_SECONDS"])
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.time() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("source")
    p.add_argument("out")
    p.add_argument("--only", default="*", help="files whose name matches")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=int, default=400, help="for a file")
    p.add_argument("--test-seconds", type=int, default=10, help="of the processor, for a test")
    o = p.parse_args()
    out = pathlib.Path(o.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    tests = pathlib.Path(o.source).resolve() / "tests/python"
    files = [f for folder in FOLDERS for f in sorted((tests / folder).rglob("test_*.py")) if fnmatch.fnmatch(f.stem, o.only)]
    files = [f for f in files if not DEVICES & set(f.parts)]
    here = pathlib.Path(__file__).resolve().parent

    def run(path):
        stem = path.stem.removeprefix("test_")
        began = time.time()
        env = dict(os.environ, HARVEST_OUT=str(out), HARVEST_STEM=stem, HARVEST_SECONDS=str(o.test_seconds), CUDA_VISIBLE_DEVICES="",
                   PYTHONPATH=os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=line", "-p", "harvest", "-p", "no:cacheprovider", str(path)]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=o.seconds, cwd=out)
            said = "" if done.returncode in (0, 5) else next((line for line in done.stdout.splitlines() if re.search(r"Error|error", line)), f"code {done.returncode}")
        except subprocess.TimeoutExpired:
            said = "stopped"
        return stem, f"{time.time() - began:.0f} s {said}"

    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for stem, said in pool.map(run, files):
            print(f"{stem}: {len(list(out.glob(stem + '-*.rlx')))} modules, {said}", flush=True)
    # The same text may come from two files.
    seen = set()
    for path in sorted(out.glob("*.rlx")):
        key = hashlib.sha256(path.read_bytes()).hexdigest()
        path.unlink() if key in seen else seen.add(key)
    print(f"{len(seen)} modules")


if __name__ == "__main__":
    main()
