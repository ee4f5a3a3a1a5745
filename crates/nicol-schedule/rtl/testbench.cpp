// Drives the scheduler with a trace of operations from standard input, and compares each decision with
// the one in the trace, which the Rust model has made. Says how many cycles that took.
//
// An operation is a letter and what follows it:
//   R  a vector of 64 bytes, what of it is written, the hint, the worker that is to be chosen
//   D  a vector of 64 bytes, what of it is written, the worker at which that request is done
//   V  512 weights, 512 workers that steer, 31 for nobody
//
// For the second half of the requests decisions are not always taken at once.
//
// PLANES says which module is driven: with 1 the one that looks at vectors and hints, with 2 the one that
// looks at vectors and what is written.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "Vscheduler.h"
#include "verilated.h"

namespace {

constexpr int FEATURES = 512;

struct Operation {
    char kind = 0;
    uint32_t vector[FEATURES / 32], written[FEATURES / 32];
    uint8_t hint = 0, worker = 0;
    uint8_t weights[FEATURES], steering[FEATURES];
};

void need(void *into, size_t bytes) {
    if (fread(into, 1, bytes, stdin) != bytes) {
        fprintf(stderr, "the trace ends within an operation\n");
        exit(2);
    }
}

bool read(Operation &operation) {
    int kind = getchar();
    if (kind == EOF) return false;
    operation.kind = static_cast<char>(kind);
    switch (kind) {
    case 'R':
        need(operation.vector, sizeof operation.vector);
        need(operation.written, sizeof operation.written);
        need(&operation.hint, 1);
        need(&operation.worker, 1);
        return true;
    case 'D':
        need(operation.vector, sizeof operation.vector);
        need(operation.written, sizeof operation.written);
        need(&operation.worker, 1);
        return true;
    case 'V':
        need(operation.weights, sizeof operation.weights);
        need(operation.steering, sizeof operation.steering);
        return true;
    default:
        fprintf(stderr, "the trace has an unknown operation\n");
        exit(2);
    }
}

struct Bench {
    VerilatedContext context;
    std::unique_ptr<Vscheduler> top = std::make_unique<Vscheduler>(&context);
    uint64_t cycle = 0;

    void clock() {
        top->clk = 1;
        top->eval();
        top->clk = 0;
        top->eval();
        ++cycle;
    }
};

} // namespace

int main(int argc, char **argv) {
    Bench bench;
    bench.context.commandArgs(argc, argv);
    Vscheduler &top = *bench.top;
    top.clk = 0;
    top.reset = 1;
    top.eval();
    for (int cycle = 0; cycle < 4; ++cycle) bench.clock();
    top.reset = 0;
    const uint64_t half = argc > 1 ? strtoull(argv[1], nullptr, 10) : ~0ULL;

    std::deque<std::pair<uint8_t, uint64_t>> expected;
    Operation now, next;
    bool has_now = read(now), has_next = has_now && read(next);
    uint64_t requests = 0, decisions = 0, filled = 0, filled_cycles = 0, depth = 0, random = 1;
    uint64_t last_taken = 0, idle = 0;
    int feature = 0;
    auto step = [&] {
        now = next;
        has_now = has_next;
        has_next = has_now && read(next);
    };
    while (has_now || !expected.empty()) {
        top.request_valid = top.done_valid = top.vector_valid = top.swap_valid = 0;
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        top.decision_ready = requests < half || (random >> 60) < 10;
        bool ends = has_now && now.kind == 'D';
        const Operation *request = nullptr;
        if (has_now && now.kind == 'R') request = &now;
        if (ends && has_next && next.kind == 'R') request = &next;
        if (ends) {
            memcpy(top.done_vector.data(), now.vector, sizeof now.vector);
#if PLANES == 2
            memcpy(top.done_written.data(), now.written, sizeof now.written);
#endif
            top.done_worker = now.worker;
            top.done_valid = 1;
        }
        if (request != nullptr) {
            memcpy(top.request_vector.data(), request->vector, sizeof request->vector);
#if PLANES == 2
            memcpy(top.request_written.data(), request->written, sizeof request->written);
#else
            top.request_hint = request->hint;
#endif
            top.request_valid = 1;
        }
        if (has_now && now.kind == 'V') {
            if (feature < FEATURES) {
                top.vector_valid = 1;
                top.vector_feature = feature;
                top.vector_weight = now.weights[feature];
                top.vector_steering = now.steering[feature];
            } else {
                top.swap_valid = 1;
            }
        }
        top.eval();
        bool ended = top.done_valid && top.done_ready;
        // A request that follows a completion in the trace is never taken before it.
        if (ends && !ended && request != nullptr) {
            top.request_valid = 0;
            top.eval();
        }
        bool took = top.request_valid && top.request_ready;
        bool swapped = top.swap_valid && top.swap_ready;
        if (top.decision_valid && top.decision_ready) {
            if (expected.empty() || expected.front().first != top.decision_worker) {
                fprintf(stderr, "decision %llu: worker %d, not %d\n",
                        static_cast<unsigned long long>(decisions), top.decision_worker,
                        expected.empty() ? -1 : expected.front().first);
                return 1;
            }
            if (decisions == 0) depth = bench.cycle - expected.front().second;
            expected.pop_front();
            ++decisions;
            idle = 0;
        }
        if (took) {
            expected.emplace_back(request->worker, bench.cycle);
            if (requests < half && requests > 0) {
                filled += bench.cycle - last_taken == 1;
                ++filled_cycles;
            }
            last_taken = bench.cycle;
            ++requests;
        }
        bench.clock();
        if (has_now && now.kind == 'V') {
            if (feature < FEATURES) {
                ++feature;
            } else if (swapped) {
                feature = 0;
                step();
            }
        } else {
            if (ended) step();
            if (took) step();
        }
        if (++idle > 100000) {
            fprintf(stderr, "nothing is decided any more\n");
            return 1;
        }
    }
    printf("%llu decisions equal the model's; pipeline of %llu cycles; %llu of %llu requests were taken "
           "in the cycle after the one before; %llu cycles in all\n",
           static_cast<unsigned long long>(decisions), static_cast<unsigned long long>(depth),
           static_cast<unsigned long long>(filled), static_cast<unsigned long long>(filled_cycles),
           static_cast<unsigned long long>(bench.cycle));
    return 0;
}
