/* Runs a compiled MLP on batches of two sizes, then shows a failed check. */
#include "mlp.h"
#include <stdio.h>
#include <stdlib.h>

static int run(int64_t batch, int64_t features) {
    int64_t in_shape[2] = {batch, features}, out_shape[2] = {batch, 10};
    float *in = malloc(sizeof(float) * (size_t)(batch * features)), *out = malloc(sizeof(float) * (size_t)(batch * 10));
    for (int64_t i = 0; i < batch * features; i++) in[i] = (float)(i % 7) * 0.25f - 0.75f;
    DLTensor x = {in, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, in_shape, NULL, 0};
    DLTensor y = {out, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};
    mlp_call call = {0};
    call.workspace_size = mlp_main_workspace_size(batch);
    call.workspace = aligned_alloc(64, (call.workspace_size + 63) / 64 * 64);
    int32_t code = mlp_main(&x, &y, &call);
    if (code != 0)
        printf("refused with code %d, check %d: %s\n", code, call.constraint, call.message);
    else
        for (int64_t r = 0; r < batch; r++)
            for (int c = 0; c < 10; c++) printf("%.6f%c", out[r * 10 + c], c == 9 ? '\n' : ' ');
    free(call.workspace), free(in), free(out);
    return code;
}

int main(void) {
    return run(1, 16) != 0 || run(3, 16) != 0 || run(2, 15) == 0;
}
