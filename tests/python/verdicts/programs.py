"""Modules with control flow, closures, tuples, casts, calls of every kind, effects and scopes: templates with slips.

In a template `[[a||b||c]]` is one of its alternatives; the first is right and the most frequent.
"""

import re

HEADER = "# from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n"

ADD_ONE = '''
    @T.prim_func(private=True, s_tir=True)
    def add_one(x: T.Buffer(([[T.int64(2)||T.int64(3)]], T.int64(4)), "[[float32||int32]]"), y: T.Buffer((T.int64(2), T.int64(4)), "float32")):
        for i, j in T.grid(T.int64(2), T.int64(4)):
            with T.sblock("b"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[a, b] + T.float32(1)
'''
SYM_ONE = '''
    @T.prim_func([[private=True, s_tir=True||s_tir=True]])
    def sym_one(vx: T.handle, vy: T.handle):
        n = T.int64()
        x = T.match_buffer(vx, (n, T.int64(4)))
        y = T.match_buffer(vy, (n, T.int64(4)))
        for i, j in T.grid(n, T.int64(4)):
            with T.sblock("b"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = x[a, b] + T.float32(1)
'''
TWO_OUT = '''
    @T.prim_func(private=True, s_tir=True)
    def two(x: T.Buffer((T.int64(2),), "float32"), y: T.Buffer((T.int64(2),), "float32"), z: T.Buffer((T.int64(2),), "float32")):
        for i in range(T.int64(2)):
            with T.sblock("b"):
                a = T.axis.spatial(T.int64(2), i)
                y[a] = x[a] + T.float32(1)
                z[a] = x[a] * T.float32(2)
'''
SCALAR_ARG = '''
    @T.prim_func(private=True, s_tir=True)
    def scale(x: T.Buffer((T.int64(2),), "float32"), [[s: T.int64||s: T.float32]], y: T.Buffer((T.int64(2),), "float32")):
        for i in range(T.int64(2)):
            with T.sblock("b"):
                a = T.axis.spatial(T.int64(2), i)
                y[a] = x[a] * T.Cast("float32", s)
'''

TEMPLATES = [
# branches
'''
    @R.function[[||(pure=False)||(private=True)]]
    def main(c: R.Tensor([[()||(1,)||("n",)]], "[[bool||int32||float32]]"), x: R.Tensor((2, 3), "float32")) [[||-> R.Tensor((2, 3), "float32")||-> R.Tensor((3, 2), "float32")]]:
        [[if||if||while]] c:
            y = R.add(x, x)
        else:
            [[y = R.exp(x)||z = R.exp(x)||y = R.sum(x)||y = R.astype(x, "int32")||y = (x, x)]]
        return [[y||z||w||x]]
''',
'''
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("m", 3), "float32")):
        [[n = T.int64()||]]
        [[m = T.int64()||]]
        if c:
            a = R.add(x, x)
            [[r = R.concat((a, y), axis=0)||r = a||r = R.print(a, format="")]]
        else:
            b = R.exp(y)
            r = [[b||a||R.concat((x, b), axis=0)||x]]
        z = R.[[exp(r)||sum(r)||concat((r, r), axis=1)||reshape(r, R.shape([n + m, 3]))||add(r, x)]]
        return z
''',
'''
    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")):
        if c:
            if d:
                a = R.exp(x)
            else:
                a = [[x||R.log(x)||c]]
            r = [[a||x||R.add(a, x)]]
        else:
            r = x
        return r
''',
'''
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")):
        [[y = R.exp(x)||with R.dataflow():
            y = R.exp(x)
            R.output(y)]]
        [[with R.dataflow():
            z = R.add(y, y)
            R.output(z)||with R.dataflow():
            if c:
                z = R.exp(y)
            else:
                z = y
            R.output(z)||z = y]]
        return [[z||y]]
''',
# dataflow
'''
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        [[n = T.int64()||]]
        with R.dataflow():
            a = R.add(x, x)
            b = R.multiply(a, x)
            R.output([[b||a, b||a||c||x||]])
        return [[b||a||(a, b)||x]]
''',
'''
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.[[add(x, x)||print(x, format="{}")||call_packed("f", x, ty_args=R.Tensor((2,), "float32"))||call_pure_packed("f", x, ty_args=R.Tensor((2,), "float32"))||call_dps_packed("f", (x,), out_ty=R.Tensor((2,), "float32"))||assert_op(R.const(True, "bool"), format="")||zeros(R.shape([2]), "float32")]]
            b = R.add([[x||a||b]], x)
            R.output(b)
        [[c = R.exp(b)||c = R.exp(a)||a = R.exp(b)
        c = a||b = R.exp(b)
        c = b]]
        return c
''',
'''
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            R.output(a)
        with R.dataflow():
            b = R.add(a, x)
            [[R.output(b)||R.output(a)||pass]]
        return (a, b)
''',
# casts
'''
    @R.function
    def main(x: R.Tensor([["float32"||]][[|| , ndim=2]])):
        [[n, m = T.int64(), T.int64()||n = T.int64()
        m = T.int64()||n = T.int64()||]]
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        return [[y||R.reshape(y, R.shape([n * m]))||R.zeros(R.shape([n, m]), "float32")]]
'''.replace('R.Tensor([["float32"||]][[|| , ndim=2]])', 'R.Tensor([[dtype="float32", ndim=2||dtype="float32"||dtype="float32", ndim=3||(3, 4), "float32"||(3, 4), "int32"||ndim=2]])'),
'''
    @R.function
    def main(x: R.Tensor((4, 6), "float32"), s: R.Shape([["(ndim=2)||([2, 3])||(ndim=1)||([\\"a\\", \\"b\\"])"]])):
        n = T.int64()
        m = T.int64()
        t = R.match_cast(s, R.Shape([n, [[m||n||3||n * 2]]]))
        y = R.broadcast_to([[R.const(1.0, "float32")||x]], [[t||s||R.shape([n, m])]])
        return y
'''.replace('R.Shape([["(ndim=2)||([2, 3])||(ndim=1)||([\\"a\\", \\"b\\"])"]])', 'R.Shape[[(ndim=2)||([2, 3])||(ndim=1)||(["a", "b"])]]'),
'''
    @R.function
    def main(x: [[R.Tuple(R.Tensor((2,), "float32"), R.Tensor(ndim=1, dtype="float32"))||R.Any||R.Tuple(R.Tensor((2,), "float32"))||R.Tensor((2,), "float32")]]):
        n = T.int64()
        y = R.match_cast(x, R.Tuple(R.Tensor((2,), "float32"), R.Tensor(([[n||2||n + 1]],), "float32")))
        a = y[[[0||1]]]
        b = [[y[1]||y[2]||y[-1]||x[1]]]
        return R.[[concat((a, b), axis=0)||add(a, a)||add(a, b)]]
''',
'''
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")) [[||-> R.Tensor(("n", "m"), "float32")||-> R.Tensor(("m", "n"), "float32")||-> R.Tensor(ndim=2, dtype="float32")||-> R.Any]]:
        n = T.int64()
        m = T.int64()
        [[||k = T.int64()]]
        y [[||: R.Tensor((n, m), "float32")||: R.Tensor((m, n), "float32")||: R.Tensor((k, m), "float32")||: R.Tensor(ndim=2)||: R.Tensor(ndim=3)||: R.Tensor(dtype="int32")||: R.Any]] = R.[[exp(x)||add(x, x)||permute_dims(x)]]
        return y
''',
# signatures and shape variables
'''
    @R.function
    def main(x: R.Tensor((["n"]), "float32"), y: R.Tensor(([["n * 2"||"n"||"n + m"||"m"||"n // 2"||"n % 2"||2]],), "float32")):
        [[n = T.int64()||n = T.int32()]]
        [[||m = T.int64()]]
        return R.[[concat((x, x), axis=0)||add(R.concat((x, x), axis=0), y)||add(x, y)||exp(y)]]
'''.replace('(["n"])', '("n",)'),
'''
    @R.function
    def main(x: R.Tensor(("n",), "float32"), s: R.Shape([["m"||"n"||"n * 2"||3]])):
        n = T.int64()
        [[m = T.int64()||]]
        return R.[[zeros(R.shape([n]), "float32")||zeros(R.shape([n, m]), "float32")||zeros(R.shape([n, k]), "float32")||full(s, R.const(1, "float32"))||zeros(s, "float32")]]
'''.replace('R.Shape([["m"||"n"||"n * 2"||3]])', 'R.Shape([ [["m"||"n"||"n * 2"||3]] ])'),
# functions
'''
    @R.function[[(private=True)||]]
    def helper(x: R.Tensor((["n"]), "float32"), y: R.Tensor((["n"]), "float32")) [[||-> R.Tensor((["n"]), "float32")||-> R.Tensor(([["m"]]), "float32")||-> R.Tensor(ndim=1, dtype="float32")]]:
        n = T.int64()
        return R.add(x, y)

    @R.function
    def main(a: R.Tensor(([[3,||"k",||3, 1]]), "[[float32||float32||int32]]"), b: R.Tensor(([[3,||"k",||4,||"j",]]), "float32")) [[||-> R.Tensor((3,), "float32")]]:
        cls = Module
        r = [[cls.helper(a, b)||Module.helper(a, b)||cls.helper(a)||cls.helper(a, b, b)||cls.helper||cls.nope(a, b)||helper(a, b)||cls.helper(b, b)]]
        return r
'''.replace('(["n"])', '("n",)').replace('([["m"]])', '("m",)'),
'''
    @R.function
    def fact(i: R.Tensor((), "int32"), x: R.Tensor((2,), "float32")) [[-> R.Tensor((2,), "float32")||||-> R.Tensor((3,), "float32")||-> R.Any]]:
        cls = Module
        c = R.less(i, R.const(1, "int32"))
        if c:
            r = x
        else:
            j = R.subtract(i, R.const(1, "int32"))
            r = [[cls.fact(j, R.add(x, x))||cls.fact(j, x)||cls.fact(x, j)||cls.fact(j)]]
        return r

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        return cls.fact(R.const(3, "int32"), x)
''',
'''
    @R.function(private=True)
    def even(i: R.Tensor((), "int32")) [[-> R.Tensor((), "bool")||]]:
        cls = Module
        c = R.less(i, R.const(1, "int32"))
        if c:
            r = R.const(True, "bool")
        else:
            r = cls.odd(R.subtract(i, R.const(1, "int32")))
        return r

    @R.function(private=True)
    def odd(i: R.Tensor((), "int32")) [[-> R.Tensor((), "bool")||-> R.Tensor((), "int32")]]:
        cls = Module
        c = R.less(i, R.const(1, "int32"))
        if c:
            r = R.const(False, "bool")
        else:
            r = cls.even(R.subtract(i, R.const(1, "int32")))
        return r

    @R.function
    def main(i: R.Tensor((), "int32")) -> R.Tensor((), "bool"):
        cls = Module
        r: R.Tensor((), "bool") = cls.even(i)
        return r
''',
'''
    @R.function[[||(private=True)]]
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        @R.function[[||(private=True)||(pure=False)]]
        def inner(a: R.Tensor((2,), "float32")) [[-> R.Tensor((2,), "float32")||||-> R.Tensor((3,), "float32")]]:
            b = R.add(a, [[y||a||z]])
            return b
        [[r = inner(x)||r = inner(x, y)||r = inner(R.const(1.0, "float32"))||with R.dataflow():
            r = inner(x)
            R.output(r)]]
        return [[r||inner||(r, inner)]]
''',
'''
    @R.function[[(private=True)||]]
    def apply(f: [[R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"))||R.Any||R.Callable((R.Tensor((3,), "float32"),), R.Tensor((2,), "float32"))||R.Callable]], x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        r = f(x)
        return r

    @R.function(private=True)
    def double(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        r = R.add(x, x)
        return r

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Module
        r: R.Tensor((2,), "float32") = cls.apply([[cls.double||x||cls.apply]], x)
        return r
''',
# tuples
'''
    @R.function
    def main(x: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Tensor((3,), "float32"), [[R.Tuple||R.Tensor((2,), "int32")||R.Tuple()]]))):
        a = x[0]
        b = x[1]
        c = b[[[0||1||2||-1]]]
        t = ([[a, c||a, (c, a)||a,||]])
        return [[t||t[0]||(t, b)||t[1]||R.add(a, c)]]
''',
'''
    @R.function
    def main(x: R.Tensor((6, 2), "float32")):
        s = R.split(x, [[2||3||4||[1, 3]||[3, 1]]], axis=[[0||1||2||-1]])
        a = s[0]
        b = s[1]
        return R.[[concat((b, a), axis=0)||add(a, b)||add(a, s)||concat(s, axis=0)]]
''',
# call_tir
ADD_ONE + '''
    @R.function
    def main(x: R.Tensor(([[2, 4||2, 3||"n", 4||8,]]), "float32")):
        cls = Module
        y = R.call_tir(cls.[[add_one||nope||main]], [[(x,)||x||(x, x)||R.tuple(x)]], out_ty=[[R.Tensor((2, 4), dtype="float32")||R.Tensor((4, 2), dtype="float32")||R.Tensor((2, 4), dtype="int32")||[R.Tensor((2, 4), dtype="float32")]||R.Tensor(ndim=2, dtype="float32")]])
        return y
''',
SYM_ONE + '''
    @R.function
    def main(x: R.Tensor(([["m", 4||"m", 3||5, 4||"m"]]), "float32")):
        [[m = T.int64()||]]
        cls = Module
        y = R.call_tir[[||_inplace]](cls.sym_one, (x,), [[||inplace_indices=[0], ||inplace_indices=[-1], ||inplace_indices=[1], ]]out_ty=R.Tensor(([[m||m + 1||5]], 4), dtype="float32"))
        return y
'''.replace('[["m", 4||"m", 3||5, 4||"m"]]', '[["m", 4||"m", 3||5, 4||"m",]]'),
TWO_OUT + '''
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        y = R.call_tir(cls.two, (x,), out_ty=[[ [R.Tensor((2,), dtype="float32"), R.Tensor((2,), dtype="float32")]||R.Tensor((2,), dtype="float32")||[R.Tensor((2,), dtype="float32")]||R.Tuple(R.Tensor((2,), dtype="float32"), R.Tensor((2,), dtype="float32"))]])
        return y[ [[0||1||2]] ]
''',
SCALAR_ARG + '''
    @R.function
    def main(x: R.Tensor((2,), "float32"), s: R.Shape(["n"])):
        n = T.int64()
        cls = Module
        y = R.call_tir(cls.scale, (x, [[n||n * 2||3||T.int64(3)||2.5]]), out_ty=R.Tensor((2,), dtype="float32"))
        return y
''',
ADD_ONE.replace('private=True, ', '') + '''
    @R.function(pure=[[False||True]])
    def main(x: R.Tensor((2, 4), "float32")):
        cls = Module
        y = R.builtin.alloc_tensor(R.shape([2, 4]), R.dtype("float32"), R.prim_value([[0||1]]))
        _ = cls.add_one(x, y)
        return y
''',
'''
    @T.prim_func(private=True, s_tir=True)
    def inc(x: T.Buffer((T.int64(2),), "float32")):
        for i in range(T.int64(2)):
            with T.sblock("b"):
                a = T.axis.spatial(T.int64(2), i)
                x[a] = x[a] + T.float32(1)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        z = R.add(x, x)
        y = R.call_tir_inplace(cls.inc, (z,), inplace_indices=[[ [0]||[1]||[-1]||[0, 0]||[] ]], out_ty=R.Tensor(([[2||3]],), dtype="float32"))
        return y
''',
# packed, effects, purity
'''
    @R.function([[pure=False||pure=True||private=False]])
    def main(x: R.Tensor((2,), "float32")):
        [[y = R.call_packed("my.f", x, ty_args=R.Tensor((2,), "float32"))||y = R.call_packed("my.f", x, ty_args=[R.Tensor((2,), "float32")])||y = R.call_packed("my.f", x)||y = R.call_pure_packed("my.f", x, ty_args=R.Tensor((2,), "float32"))||f = R.ExternFunc("my.f")
        y = f(x)||y = R.call_dps_packed("my.f", (x,), out_ty=R.Tensor((2,), "float32"))||y = R.call_dps_packed("my.f", x, out_ty=R.Tensor((2,), "float32"))||y = R.call_inplace_packed("my.f", x, inplace_indices=[0], ty_args=R.Tensor((2,), "float32"))]]
        return [[y||x||R.add(y, x)]]
''',
'''
    @R.function[[(pure=False)||||(pure=True)]]
    def main(x: R.Tensor((2,), "float32")):
        [[||R.func_attr({"relax.force_pure": True})||R.func_attr({"relax.force_pure": 1})||R.func_attr({"global_symbol": "other"})||R.func_attr({"foo": "bar", "n": [1, 2]})]]
        [[_ = R.print(x, format="{}")||R.print(x, format="{}")||_ = R.print(format="hello")||_ = R.assert_op(R.const(True, "bool"), [x], format="x {}")||R.assert_op(x, format="")||R.print(R.str("a"), x, format="{} {}")]]
        y = R.add(x, x)
        return y
''',
'''
    @R.function([[private=True, pure=False||private=True]])
    def noisy(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        R.print(x, format="{}")
        return x

    @R.function([[pure=False||pure=True]])
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Module
        r: R.Tensor((2,), "float32") = cls.noisy(x)
        return r
''',
# scalars, shapes, strings
'''
    @R.function
    def main([[n: R.Prim("int64")||n: T.int64||n: R.Prim(value="n")||n: R.Shape]], x: R.Tensor((2,), "float32")):
        [[y = n||y = R.shape([n, 2])||y = R.const(1)||y = R.str("hello")||y = R.dtype("float32")||y = R.prim_value(3)||y = R.shape([2, 3])||y = R.null_value()||y = R.tuple()||y = 3||y = "a"||y = None]]
        return [[y||(x, y)||R.add(x, x)||R.add(x, y)]]
''',
'''
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        s = R.shape_of(x)
        t = R.shape([[ [n * 3]||[3, n]||[n, 3, 1]||[n + 1]||[m]||[n // 2, 6]||n ]])
        y = R.reshape(x, [[t||s||R.shape([n * 3])||(n * 3,)||(-1,)]])
        return y
''',
'''
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        s: R.Shape([2, [[3||4]]]) = R.shape([2, 3])
        t: R.Shape(ndim=[[2||3]]) = s
        y: R.Tensor([[(2, 3)||(3, 2)||t||s]], dtype="[[float32||int32]]") = R.reshape(x, [[t||s]])
        return y
''',
# scopes and names
'''
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        x = R.add(x, x)
        [[x||y]] = R.exp(x)
        [[||y = z]]
        [[||del x]]
        return [[x||y||z]]
''',
'''
    @R.function
    def main(x: R.Tensor((2,), "float32"), [[y||x]]: R.Tensor((2,), "float32")) [[||:||-> R.Tensor((2,))]]:
        z = R.add(x, y)
        [[return z||return z, x||||return||return z
        return x||pass]]
'''.replace("[[||:||-> R.Tensor((2,))]]", "[[||-> R.Tensor((2,))]]"),
'''
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = [[R.add(x, x)||x + x||R.add(x1=x, x2=x)||R.add(x)||R.add(x, x, x)||R.nope(x)||R.add(x, y)||R.add(x, x2=x)||R.add||x * 2||-x||x[0]||R.exp(R.log(x))||R.add(x, 1)||R.sum(x, nope=1)||R.sum(x, 0, True)||R.sum(x, axis="a")||R.sum(x, keepdims=1)]]
        return y
''',
# data dependent
'''
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        [[m = T.int64()||]]
        u = R.[[unique(x)||nonzero(x)||unique(x, sorted=True, return_index=False, return_inverse=False, return_counts=False)]]
        v = R.match_cast(u, R.Tensor(([[m||4||m, 2]],), "float32"))
        return [[v||R.add(v, v)||R.sum(v)||R.reshape(v, R.shape([m, 1]))||u]]
''',
# vm and memory
'''
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        st = R.memory.alloc_storage(R.shape([[ [8]||[4]||[] ]]), R.prim_value(0), R.str("global"), R.dtype("[[float32||uint8]]"))
        t = R.memory.alloc_tensor(st, R.prim_value(0), R.shape([2]), R.dtype("float32"))
        y = R.add(x, x)
        [[_ = R.memory.kill_tensor(t)||]]
        [[_1 = R.memory.kill_storage(st)||]]
        return y
''',
# closures
'''
    @R.function(private=True)
    def f(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        r = R.add(x, y)
        return r

    @R.function([[pure=False||pure=True]])
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        c = R.make_closure(cls.f, ([[x,||x, x||]]))
        r = R.invoke_[[||pure_]]closure(c, ([[x,||x, x||]]), ty_args=R.Tensor((2,), "float32"))
        return r
''',
# several entries, private only, nothing
'''
    @R.function[[||(private=True)]]
    def one(x: R.Tensor((2,), "float32")):
        return x

    @R.function[[||(private=True)]]
    def [[two||one]](x: R.Tensor((2,), "float32")):
        [[R.func_attr({"global_symbol": "two"})||R.func_attr({"global_symbol": "x"})||]]
        y = R.add(x, x)
        return y
''',
]

CHOICE = re.compile(r"\[\[((?:(?!\[\[).)*?)\]\](?!\])", re.S)


def fill(text, rng, right):
    """One choice of each alternative, the innermost first."""
    while True:
        found = None
        for found in CHOICE.finditer(text):
            if "||" in found.group(1):
                break
        else:
            return text
        ways = found.group(1).split("||")
        way = ways[0] if rng.random() < right else rng.choice(ways)
        text = text[:found.start()] + way + text[found.end():]


def module(rng):
    text = fill(rng.choice(TEMPLATES), rng, rng.choice([0.5, 0.7, 0.85]))
    lines = [line for line in text.strip("\n").splitlines() if line.strip()]
    return HEADER + "\n".join(lines) + "\n"
