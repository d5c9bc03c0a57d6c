/* Runs a compiled model on batches of two sizes, then makes a call that the library must refuse and shows its message.
   mlp.h is written by relax-aot beside libmlp.so. */
#include "mlp.h"
#include <stdio.h>
#include <stdlib.h>

/* One call: x is batch rows of `features` numbers, the result batch rows of 10 probabilities. */
static int32_t run(int64_t batch, int64_t features) {
    float *in = malloc(sizeof(float) * (size_t)(batch * features));
    float *out = malloc(sizeof(float) * (size_t)(batch * 10));
    for (int64_t i = 0; i < batch * features; i++) in[i] = (float)(i % 7) * 0.25f - 0.75f;

    /* Tensors are DLPack's: data, device, number of dims, dtype, dims, strides (null: dense), offset. */
    int64_t in_shape[2] = {batch, features}, out_shape[2] = {batch, 10};
    DLTensor x = {in, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, in_shape, NULL, 0};
    DLTensor y = {out, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};

    /* The library allocates nothing: lend it the workspace that this batch needs. */
    mlp_call call = {0};
    call.workspace_size = mlp_main_workspace_size(batch);
    call.workspace = aligned_alloc(64, (call.workspace_size + 63) / 64 * 64);

    int32_t code = mlp_main(&x, &y, &call);
    printf("batch %lld, %lld features:\n", (long long)batch, (long long)features);
    if (code == RELAX_OK)
        for (int64_t r = 0; r < batch; r++)
            for (int c = 0; c < 10; c++) printf("%s%.4f%s", c ? " " : "  ", out[r * 10 + c], c == 9 ? "\n" : "");
    else
        printf("  refused with code %d, check %d, wanted %lld, got %lld: %s\n", code, call.constraint,
               (long long)call.wanted, (long long)call.got, call.message);
    free(call.workspace), free(in), free(out);
    return code;
}

int main(void) {
    int32_t one = run(1, 16), three = run(3, 16), wrong = run(2, 15);
    return one == RELAX_OK && three == RELAX_OK && wrong == RELAX_E_DIM ? 0 : 1;
}
