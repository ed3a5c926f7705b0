// SPDX-License-Identifier: Apache-2.0
// What kernels take on the first GPU with the same operands each time, which its cache may hold, and with others in
// turn, which come from memory. Prints one JSON object. tests/gpu/recorded/kernel-times-h200.json is of a first
// version, which measured a few kinds more and other sizes.
//
//   kernel_times [SECONDS]     measures for so many seconds at most (default: 120)
//
// The bundle has no room for it; on a machine with a bundle it runs with the bundle's lib/ in LD_LIBRARY_PATH.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention_cuda.h"
#include "kernels/linear_cuda.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/operands.h"
#include "profiler/calibrate/stopwatch.h"
#include "profiler/device/cuda_device.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Queue;
using nlohmann::ordered_json;
namespace on = kernels::on;

constexpr double kMicroseconds = 1e6;
constexpr Bytes kRoom(std::int64_t{40} << 30);

/// A layer of `rows` tokens.
struct Layer {
  std::int64_t rows, in, out;
};

std::vector<Layer> Layers() {
  std::vector<Layer> layers;
  for (const std::int64_t rows : {1024, 4096, 16384}) {  // GPT-2's
    layers.insert(layers.end(), {{rows, 768, 768}, {rows, 768, 3072}, {rows, 3072, 768}});
  }
  layers.insert(layers.end(), {{4096, 1600, 1600}, {4096, 1600, 6400}, {4096, 6400, 1600}});  // GPT-2 XL's
  for (const auto& [in, out] : {std::array{2048, 2048},
                                {2048, 256},
                                {2048, 5632},
                                {5632, 2048},
                                {4096, 4096},
                                {4096, 1024},
                                {4096, 14336},
                                {14336, 4096}}) {  // Llamas'
    layers.push_back({8192, in, out});
  }
  for (const std::int64_t rows : {2048, 8192}) {
    for (const std::int64_t in : {512, 1024, 2048, 4096}) {
      for (const std::int64_t out : {512, 1024, 2048, 4096}) {
        layers.push_back({rows, in, out});
      }
    }
  }
  layers.insert(layers.end(), {{4096, 768, 50257}, {16384, 768, 50257}, {8192, 2048, 32000}});  // heads'
  return layers;
}

/// A kernel with operands of its own.
using Make = std::function<Device::Work(Operands& operands)>;

class Times {
 public:
  Times(Device& device, const CalibrationSizes& sizes, double seconds)
      : device_(device),
        sizes_(sizes),
        end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3))) {}

  /// `bytes`: of a kernel's operands, of which there are more in turn than a cache holds.
  void Measure(const std::string& kernel, const std::vector<std::int64_t>& shape, std::int64_t bytes,
               const Make& make) {
    if (std::chrono::steady_clock::now() > end_) {
      return;
    }
    Operands operands(device_, kRoom);
    std::vector<Device::Work> works;
    for (std::int64_t all = 0; all <= sizes_.held.count() || works.size() < 2; all += bytes) {
      works.push_back(make(operands));
    }
    Stopwatch stopwatch(device_, sizes_.held);
    const double warm = stopwatch.SecondsOfWork(works.front());
    std::size_t next = 0;
    const double cold = stopwatch.SecondsOf([&] { device_.Give(Stopwatch::kStream, works[next++ % works.size()]); });
    times_.push_back(
        {{"kernel", kernel}, {"shape", shape}, {"warm_us", warm * kMicroseconds}, {"cold_us", cold * kMicroseconds}});
  }
  ordered_json Take() && { return std::move(times_); }

 private:
  Device& device_;
  const CalibrationSizes& sizes_;
  std::chrono::steady_clock::time_point end_;
  ordered_json times_ = ordered_json::array();
};

void MeasureLayer(Times& times, const Layer& layer) {
  const auto& [rows, in, out] = layer;
  const kernels::Linear linear{.rows = rows, .in = in, .out = out};
  const std::int64_t x = rows * in, w = in * out, y = rows * out, bytes = 2 * (x + w + y);
  const std::vector<std::int64_t> shape = {rows, in, out};
  const auto of = [](Operands& operands, std::int64_t elements) { return operands.Make(DType::bf16, elements); };
  times.Measure("LinearForward", shape, bytes, [=](Operands& operands) -> Device::Work {
    const ConstTensor input = of(operands, x), weight = of(operands, w);
    return [=, output = of(operands, y)](const Queue& queue) {
      on::LinearForward(queue, linear, input, weight, {}, {&output, 1});
    };
  });
  times.Measure("LinearInputGradient", shape, bytes, [=](Operands& operands) -> Device::Work {
    const ConstTensor weight = of(operands, w), gradient = of(operands, y);
    return [=, to = of(operands, x)](const Queue& queue) {
      on::LinearInputGradient(queue, linear, {&gradient, 1}, weight, to);
    };
  });
  times.Measure("LinearWeightGradient", shape, bytes, [=](Operands& operands) -> Device::Work {
    const ConstTensor input = of(operands, x), gradient = of(operands, y);
    return [=, to = of(operands, w)](const Queue& queue) {
      on::LinearWeightGradient(queue, linear, input, {&gradient, 1}, to);
    };
  });
  times.Measure("LinearBiasGradient", shape, 2 * y, [=](Operands& operands) -> Device::Work {
    const ConstTensor gradient = of(operands, y);
    return [=, to = of(operands, out)](const Queue& queue) {
      on::LinearBiasGradient(queue, linear, {&gradient, 1}, to);
    };
  });
}

void MeasureAttention(Times& times, const kernels::HeadShape& heads) {
  const kernels::Attention op{.shape = heads};
  const std::int64_t bytes =
      2 * heads.batch * heads.sequence * heads.head_size * (2 * heads.heads + 2 * heads.kv_heads);
  const std::vector<std::int64_t> shape = {heads.batch, heads.sequence, heads.heads, heads.kv_heads, heads.head_size};
  const kernels::AttentionTypes made = AttentionOutputs(op, DType::bf16);
  const kernels::AttentionGradientTypes types = AttentionGradients(op, DType::bf16);
  times.Measure("AttentionForward", shape, bytes, [=](Operands& operands) -> Device::Work {
    const ConstTensor q = operands.Make(types.dq), k = operands.Make(types.dk), v = operands.Make(types.dv);
    return [=, output = operands.Make(made.output), lse = operands.Make(made.lse)](const Queue& queue) {
      on::AttentionForward(queue, op, q, k, v, output, lse);
    };
  });
  times.Measure("AttentionBackward", shape, 2 * bytes, [=](Operands& operands) -> Device::Work {
    const ConstTensor q = operands.Make(types.dq), k = operands.Make(types.dk), v = operands.Make(types.dv);
    const ConstTensor output = operands.Make(made.output), lse = operands.Make(made.lse);
    return [=, gradient = ConstTensor(operands.Make(made.output)), dq = operands.Make(types.dq),
            dk = operands.Make(types.dk), dv = operands.Make(types.dv), sum = operands.Make(types.dq_accumulator),
            delta = operands.Make(types.delta)](const Queue& queue) {
      on::AttentionBackward(queue, op, q, k, v, output, lse, gradient, dq, dk, dv, sum, delta);
    };
  });
}

int Run(double seconds) {
  const Result<std::unique_ptr<GpuDevice>> device = OpenCudaDevice(0);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().Text().c_str());
    return 3;
  }
  const CalibrationSizes sizes = GpuSizes();
  WarmUp(**device, sizes);
  const LaunchCost launch = MeasureLaunch(**device, sizes);
  Times times(**device, sizes, seconds);
  for (const Layer& layer : Layers()) {
    MeasureLayer(times, layer);
  }
  for (const kernels::HeadShape& heads : {kernels::HeadShape{4, 1024, 12, 12, 64},
                                          {16, 1024, 12, 12, 64},
                                          {4, 1024, 25, 25, 64},
                                          {1, 8192, 32, 4, 64},
                                          {1, 8192, 32, 32, 64},
                                          {1, 8192, 32, 8, 128},
                                          {1, 8192, 32, 32, 128},
                                          {4, 2048, 32, 8, 128}}) {
    MeasureAttention(times, heads);
  }
  const ordered_json all = {{"launch_us", static_cast<double>(launch.alone.count()) * 1e-3},
                            {"launch_among_others_us", static_cast<double>(launch.device.count()) * 1e-3},
                            {"times", std::move(times).Take()}};
  std::printf("%s\n", all.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace tidemark

int main(int count, char** words) { return tidemark::Run(count > 1 ? std::atof(words[1]) : 120); }
