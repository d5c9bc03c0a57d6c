/* Every way to call a model wrongly: each must give its code and say what was wanted and what came, and touch nothing.
   Prints one line per case; tests/abi/expected.txt holds them. Run under valgrind and with AddressSanitizer. */
#include "pair.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, M = 5 };

typedef struct {
    float x[N * 4], y[4 * M], e[N * M];
    int64_t k[N + 1], d[N];
    int64_t xs[2], ys[2], ks[1], es[2], ds[1], strides[2];
    DLTensor tx, ty, tk, te, td;
    pair_call call;
    unsigned char *memory;
} Set;

static DLTensor tensor(void *data, int ndim, int code, int bits, int64_t *shape) {
    DLTensor t = {data, {kDLCPU, 0}, ndim, {(uint8_t)code, (uint8_t)bits, 1}, shape, NULL, 0};
    return t;
}

/* A call without fault. */
static void good(Set *s) {
    memset(s, 0, sizeof *s);
    for (int i = 0; i < N * 4; i++) s->x[i] = (float)i * 0.1f;
    for (int i = 0; i < 4 * M; i++) s->y[i] = (float)(i % 3) - 1.0f;
    for (int i = 0; i < N; i++) s->k[i] = i + 1;
    s->xs[0] = N, s->xs[1] = 4, s->ys[0] = 4, s->ys[1] = M, s->ks[0] = N;
    s->es[0] = N, s->es[1] = M, s->ds[0] = N;
    s->tx = tensor(s->x, 2, kDLFloat, 32, s->xs);
    s->ty = tensor(s->y, 2, kDLFloat, 32, s->ys);
    s->tk = tensor(s->k, 1, kDLInt, 64, s->ks);
    s->te = tensor(s->e, 2, kDLFloat, 32, s->es);
    s->td = tensor(s->d, 1, kDLInt, 64, s->ds);
    s->call.workspace_size = pair_main_workspace_size(M, N);
    s->memory = malloc(s->call.workspace_size + 128);
    s->call.workspace = (void *)(((uintptr_t)s->memory + 63) / 64 * 64);
}

static void *no_memory(void *allocator, size_t bytes, size_t align) {
    (void)allocator, (void)bytes, (void)align;
    return NULL;
}
static void forget(void *allocator, void *pointer, size_t bytes) { (void)allocator, (void)pointer, (void)bytes; }

static int failures;

static void report(const char *name, Set *s, int32_t code, int32_t wanted) {
    if (code) printf("%s: %d, check %d, %s\n", name, code, s->call.constraint, s->call.message);
    else printf("%s: 0 ok\n", name);
    if (code != wanted || (code && s->call.code != code)) failures++, printf("  expected %d\n", wanted);
    for (int i = 0; code && i < N * M; i++)
        if (s->e[i] != 0) failures++, i = N * M, printf("  the result was touched\n");
    free(s->memory);
}

#define CASE(name, wanted, ...)                                                                                        \
    do {                                                                                                               \
        Set s;                                                                                                         \
        good(&s);                                                                                                      \
        DLTensor *x = &s.tx, *y = &s.ty, *k = &s.tk, *e = &s.te, *d = &s.td;                                           \
        __VA_ARGS__;                                                                                                   \
        report(name, &s, pair_main(x, y, k, e, d, &s.call), wanted);                                                   \
    } while (0)

int main(void) {
    CASE("right", RELAX_OK, (void)0);
    CASE("no rows", RELAX_OK, s.xs[0] = s.ks[0] = s.es[0] = s.ds[0] = 0);
    CASE("x is null", RELAX_E_NULL, x = NULL);
    CASE("a result is null", RELAX_E_NULL, e = NULL);
    CASE("data of k is null", RELAX_E_NULL, s.tk.data = NULL);
    CASE("shape of y is null", RELAX_E_NULL, s.ty.shape = NULL);
    CASE("device of x", RELAX_E_DEVICE, s.tx.device.device_type = (DLDeviceType)2);
    CASE("device of a result", RELAX_E_DEVICE, s.te.device.device_type = (DLDeviceType)2);
    CASE("dtype of x", RELAX_E_DTYPE, s.tx.dtype.code = kDLInt);
    CASE("bits of x", RELAX_E_DTYPE, s.tx.dtype.bits = 64);
    CASE("lanes of x", RELAX_E_DTYPE, s.tx.dtype.lanes = 4);
    CASE("dtype of a result", RELAX_E_DTYPE, s.td.dtype.bits = 32);
    CASE("rank of x", RELAX_E_RANK, s.tx.ndim = 1);
    CASE("rank of a result", RELAX_E_RANK, s.te.ndim = 3);
    CASE("constant dim of x", RELAX_E_DIM, s.xs[1] = 3);
    CASE("n twice", RELAX_E_DIM, s.ks[0] = N + 1);
    CASE("negative dim", RELAX_E_DIM, s.xs[0] = -1);
    CASE("dim of a result", RELAX_E_DIM, s.es[1] = M - 1);
    CASE("strides of y", RELAX_E_STRIDES, s.strides[0] = 1; s.strides[1] = 4; s.ty.strides = s.strides);
    CASE("dense strides", RELAX_OK, s.strides[0] = M; s.strides[1] = 1; s.ty.strides = s.strides);
    CASE("x is misaligned", RELAX_E_ALIGN, s.tx.byte_offset = 2);
    CASE("k by offset", RELAX_OK, s.tk.byte_offset = 8);
    CASE("workspace is missing", RELAX_E_WORKSPACE, s.call.workspace = NULL);
    CASE("workspace is too small", RELAX_E_WORKSPACE, s.call.workspace_size -= 1);
    CASE("workspace is misaligned", RELAX_E_ALIGN, s.call.workspace = (char *)s.call.workspace + 8);
    CASE("allocator has nothing", RELAX_E_MEMORY, s.call.workspace = NULL; s.call.allocate = no_memory;
         s.call.release = forget);

    /* Without a call record there is a code alone. */
    Set s;
    good(&s);
    int32_t code = pair_main(NULL, &s.ty, &s.tk, &s.te, &s.td, NULL);
    printf("no call record: %d\n", code);
    if (code != RELAX_E_NULL) failures++;

    /* The generic entry. */
    const DLTensor *args[3] = {&s.tx, &s.ty, &s.tk};
    DLManagedTensor *results[2] = {NULL, NULL};
    struct { const char *name, *entry; int n, m; int32_t wanted; } calls[] = {
        {"run", "main", 3, 2, RELAX_OK},
        {"run: no such entry", "other", 3, 2, RELAX_E_CALL},
        {"run: too few arguments", "main", 2, 2, RELAX_E_CALL},
        {"run: too few results", "main", 3, 1, RELAX_E_CALL},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        pair_call call = {0};
        code = pair_run(calls[i].entry, args, calls[i].n, results, calls[i].m, &call);
        printf("%s: %d %s\n", calls[i].name, code, code ? call.message : "ok");
        if (code != calls[i].wanted) failures++, printf("  expected %d\n", calls[i].wanted);
        for (int r = 0; r < 2; r++) {
            if (results[r] && results[r]->deleter) results[r]->deleter(results[r]);
            results[r] = NULL;
        }
    }
    /* More than any memory is no small number. */
    const int64_t large = INT64_C(1) << 40;
    int most = pair_main_workspace_size(large, large) == SIZE_MAX && pair_main_workspace_size(3, INT64_MAX) == SIZE_MAX;
    printf("workspace of enormous dims: %s\n", most ? "SIZE_MAX" : "another number");
    failures += !most;
    free(s.memory);
    return failures != 0;
}
