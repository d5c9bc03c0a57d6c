"""Calls a library that relax-aot wrote: ctypes and numpy, nothing else."""

import ctypes
import json
import os
import re

import numpy


class Refused(Exception):
    """A call that the library refused: the code, the number of the check, what was wanted, what was got."""

    def __init__(self, call):
        super().__init__(call.message.decode())
        self.code, self.constraint = call.code, call.constraint
        self.wanted, self.got = call.wanted, call.got


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    """DLPack's DLManagedTensor: a result, released by its own deleter."""


Managed._fields_ = [
    ("tensor", Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))),
]


class Call(ctypes.Structure):
    """The call record; all zero is valid."""

    _fields_ = [
        ("optional", ctypes.c_void_p * 9),
        ("code", ctypes.c_int32),
        ("constraint", ctypes.c_int32),
        ("wanted", ctypes.c_int64),
        ("got", ctypes.c_int64),
        ("message", ctypes.c_char * 256),
        ("weights", ctypes.c_void_p),
        ("weights_size", ctypes.c_size_t),
    ]


# DLPack's type codes by numpy's kinds, and back.
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
KINDS = {code: kind for kind, code in CODES.items()}


def describe(array):
    """An array as a Tensor; the array must outlive it."""
    if array.dtype.kind not in CODES:
        raise TypeError(f"arrays of dtype {array.dtype} cannot be passed")
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    dtype = (CODES[array.dtype.kind], array.dtype.itemsize * 8, 1)
    return Tensor(array.ctypes.data, 1, 0, array.ndim, *dtype, shape, None, 0)


def copy_out(managed):
    """A result as an array of its own."""
    t = managed.contents.tensor
    kind = KINDS.get(t.code)
    if kind is None:
        raise TypeError(f"numpy has no dtype for results of DLPack type {t.code} with {t.bits} bits")
    dtype = numpy.dtype("bool" if kind == "b" else f"{kind}{t.bits // 8}")
    out = numpy.empty([t.shape[i] for i in range(t.ndim)], dtype)
    if out.nbytes:
        ctypes.memmove(out.ctypes.data, t.data + t.byte_offset, out.nbytes)
    return out


class Model:
    """A compiled model. Call it with arrays, one for each parameter; scalars are 0-d, shapes 1-d int64 arrays."""

    def __init__(self, path, prefix=None, weights=None):
        """`prefix` is what the library's names start with: `libmlp.so` has `mlp` unless --prefix said otherwise.

        `weights` is the file that `--weights external` wrote beside the library; it is mapped."""
        self.weights = weights and numpy.memmap(weights, "uint8", "r")
        prefix = prefix or re.sub(r"^lib|\..*$", "", os.path.basename(path))
        self.library = ctypes.CDLL(os.path.abspath(path))
        metadata = getattr(self.library, f"{prefix}_metadata")
        metadata.restype = ctypes.c_char_p
        self.metadata = json.loads(metadata())
        self.entries = {e["name"]: e for e in self.metadata["entries"]}
        self.run = getattr(self.library, f"{prefix}_run")

    def __call__(self, *arrays, entry="main"):
        """The result, or a list when there are several."""
        # Kept in a list: the tensors point into them until the call is over.
        arrays = [numpy.asarray(a, order="C") for a in arrays]
        tensors = [describe(a) for a in arrays]
        args = (ctypes.POINTER(Tensor) * len(tensors))(*map(ctypes.pointer, tensors))
        n = len(self.entries[entry]["results"])
        results = (ctypes.POINTER(Managed) * n)()
        call = Call()
        if self.weights is not None:
            call.weights, call.weights_size = self.weights.ctypes.data, self.weights.size
        if self.run(entry.encode(), args, len(tensors), results, n, ctypes.byref(call)) != 0:
            raise Refused(call)
        try:
            out = [copy_out(r) for r in results]
        finally:
            for r in results:
                r.contents.deleter(r)
        return out[0] if n == 1 else out
