// Calls a compiled model through its generic entry, which allocates workspace and results.
#include "mlp.h"
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Release {
    void operator()(DLManagedTensor *t) const { t->deleter(t); }
};
using Result = std::unique_ptr<DLManagedTensor, Release>;

struct Refused : std::runtime_error {
    int32_t code, constraint;
    explicit Refused(const mlp_call &call)
        : std::runtime_error(call.message), code(call.code), constraint(call.constraint) {}
};

// The probabilities for `x`, rows of `features` numbers.
static Result infer(std::vector<float> &x, int64_t features) {
    int64_t shape[] = {static_cast<int64_t>(x.size()) / features, features};
    DLTensor tensor = {x.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
    const DLTensor *args[] = {&tensor};
    DLManagedTensor *results[1] = {};
    mlp_call call = {};
    if (mlp_run("main", args, 1, results, 1, &call) != RELAX_OK) throw Refused(call);
    return Result(results[0]);
}

static std::vector<float> input(int64_t rows, int64_t features) {
    std::vector<float> x(static_cast<size_t>(rows * features));
    for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i % 7) * 0.25f - 0.75f;
    return x;
}

int main() {
    for (int64_t rows : {1, 3}) {
        auto x = input(rows, 16);
        Result y = infer(x, 16);
        const DLTensor &t = y->dl_tensor;
        std::printf("result of shape (%lld, %lld)\n", (long long)t.shape[0], (long long)t.shape[1]);
        const float *p = static_cast<const float *>(t.data);
        for (int64_t r = 0; r < t.shape[0]; r++, p += t.shape[1]) {
            auto best = std::max_element(p, p + t.shape[1]);
            std::printf("  row %lld: class %d with probability %.4f\n", (long long)r, (int)(best - p), *best);
        }
    }
    try {
        auto x = input(2, 15);
        infer(x, 15);
    } catch (const Refused &e) {
        std::printf("refused with code %d, check %d: %s\n", e.code, e.constraint, e.what());
        return 0;
    }
    return 1;
}
