// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <limits>
#include <vector>

#include "sim/memory/allocator.h"
#include "sim/memory/capacity.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

/// The log of training steps: resident weights; per microbatch a forward pass that saves tensors layer by layer beside
/// short-lived ones, and a backward pass that takes them back in reverse with a gradient and a communication buffer.
class TrainingLog {
 public:
  TrainingLog(int layers, int microbatches) {
    for (int layer = 0; layer < layers; ++layer) {
      for (const std::int64_t bytes : {32 * kMiB, 86 * kMiB, std::int64_t{8192}}) {
        New(bytes, 0);
      }
    }
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      std::vector<std::uint32_t> saved;
      for (int layer = 0; layer < layers; ++layer) {
        Forward(saved);
      }
      while (!saved.empty()) {
        Backward(saved);
      }
    }
  }

  std::span<const Request> requests() const { return requests_; }

 private:
  static constexpr std::int64_t kSaved[] = {16 * kMiB, 24 * kMiB + 4096, 33 * kMiB, 8192, 65536, 57 * kMiB};

  void Forward(std::vector<std::uint32_t>& saved) {
    for (const std::int64_t bytes : kSaved) {
      const std::uint32_t transient = New(bytes / 3 + 1, 0);
      saved.push_back(New(bytes, 0));
      Gone(transient);
    }
  }

  void Backward(std::vector<std::uint32_t>& saved) {
    const std::uint32_t bucket = New(64 * kMiB, 1);
    for (std::size_t i = 0; i < std::size(kSaved); ++i) {
      const std::uint32_t gradient = New(kSaved[std::size(kSaved) - 1 - i], 0);
      Gone(saved.back());
      saved.pop_back();
      Gone(gradient);
    }
    Gone(bucket);
  }

  std::uint32_t New(std::int64_t bytes, std::uint32_t stream) {
    std::uint32_t id = ids_;
    if (spare_.empty()) {
      ++ids_;
    } else {
      id = spare_.back();
      spare_.pop_back();
    }
    requests_.push_back({true, id, Bytes(bytes), stream});
    return id;
  }

  void Gone(std::uint32_t id) {
    requests_.push_back({false, id, Bytes(0), 0});
    spare_.push_back(id);
  }

  std::vector<Request> requests_;
  std::vector<std::uint32_t> spare_;
  std::uint32_t ids_ = 0;
};

void ReplayLog(benchmark::State& state, const AllocatorOptions& options) {
  const TrainingLog log(32, 16);
  for (auto _ : state) {
    benchmark::DoNotOptimize(Replay(log.requests(), options, kUnlimited));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(log.requests().size()));
}
BENCHMARK_CAPTURE(ReplayLog, exact, {.kind = AllocatorKind::exact, .expandable_segments = false});
BENCHMARK_CAPTURE(ReplayLog, torch_caching, {.kind = AllocatorKind::torch_caching, .expandable_segments = false});
BENCHMARK_CAPTURE(ReplayLog, expandable, {.kind = AllocatorKind::torch_caching, .expandable_segments = true});

void FindMinimumCapacity(benchmark::State& state, const AllocatorOptions& options) {
  const TrainingLog log(32, 16);
  for (auto _ : state) {
    benchmark::DoNotOptimize(MinimumCapacity(log.requests(), options));
  }
}
BENCHMARK_CAPTURE(FindMinimumCapacity, torch_caching,
                  {.kind = AllocatorKind::torch_caching, .expandable_segments = false})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(FindMinimumCapacity, expandable, {.kind = AllocatorKind::torch_caching, .expandable_segments = true})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidemark
