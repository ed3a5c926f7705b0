// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/activation_cuda.h"
#include "kernels/linear_cuda.h"
#include "kernels/norm_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/operands.h"
#include "profiler/calibrate/stopwatch.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Queue;
namespace on = kernels::on;

/// The kernels of a small layer's first half, none of which is of its neighbours' kind.
class SmallLayer {
 public:
  SmallLayer(Operands& operands, const CalibrationSizes& sizes)
      : width_(sizes.width),
        elements_(kRows * width_),
        x_(operands.Make(DType::bf16, elements_)),
        y_(operands.Make(DType::bf16, elements_)),
        z_(operands.Make(DType::bf16, elements_)),
        wide_(operands.Make(DType::fp32, elements_)),
        weight_(operands.Make(DType::bf16, width_ * width_)),
        row_(operands.Make(DType::bf16, width_)),
        rstd_(operands.Make(DType::fp32, kRows)) {}

  /// What the kernel with the fewest operands reads and writes.
  Bytes least_bytes() const { return SizeOf(DType::bf16) * (2 * elements_); }

  std::vector<Device::Work> Kernels() const {
    const kernels::Norm norm{.rows = kRows, .width = width_};
    const kernels::Linear linear{.rows = kRows, .in = width_, .out = width_};
    return {
        [=, this](const Queue& queue) { on::NormForward(queue, norm, x_, row_, {}, y_, rstd_, {}); },
        [=, this](const Queue& queue) {
          on::LinearForward(queue, linear, y_, weight_, {}, {&z_, 1});
        },
        [this](const Queue& queue) { on::ActivationForward(queue, kernels::Activation::gelu_tanh, z_, y_); },
        [this](const Queue& queue) { on::Copy(queue, y_, wide_); },
        [this](const Queue& queue) {
          const ConstTensor addends[] = {x_, y_};
          on::Add(queue, addends, z_);
        },
        [this](const Queue& queue) { on::Accumulate(queue, z_, wide_); },
    };
  }

 private:
  static constexpr std::int64_t kRows = 256;

  std::int64_t width_, elements_;
  kernels::Tensor x_, y_, z_, wide_, weight_, row_, rstd_;
};

/// What a kernel takes more in a step than behind itself.
struct More {
  double change = 0;  ///< behind others: its code and parameters come first, and nothing of it begins before their end
  double memory = 0;  ///< with operands that come from memory: the median of a layer's kernels
};

/// On an H200 a change takes 0.1 us, and operands from memory 1.3 us of kernels of up to 30 us: the median of 176, from
/// 1.0 of weight gradients to 1.9 of column sums. Of long ones nobody sees it
/// (tests/gpu/recorded/kernel-times-h200.json).
More SecondsMore(Device& device, const CalibrationSizes& sizes) {
  Operands operands(device, sizes.memory);
  std::deque<SmallLayer> layers;  // so many that a cache does not hold the operands of any one kernel in all of them
  std::vector<std::vector<Device::Work>> kernels;
  for (Bytes all; all <= sizes.held || kernels.size() < 2; all += layers.back().least_bytes()) {
    kernels.push_back(layers.emplace_back(operands, sizes).Kernels());
  }
  Stopwatch stopwatch(device, sizes.held);
  double alone = 0;
  std::vector<double> memory;
  for (std::size_t i = 0; i < kernels.front().size(); ++i) {
    const double in_cache = stopwatch.SecondsOfWork(kernels.front()[i]);
    std::size_t next = 0;
    const double from_memory =
        stopwatch.SecondsOf([&] { device.Give(Stopwatch::kStream, kernels[next++ % kernels.size()][i]); });
    alone += in_cache;
    memory.push_back(from_memory - in_cache);
  }
  const double in_turn = stopwatch.SecondsOf([&] {
    for (const Device::Work& kernel : kernels.front()) {
      device.Give(Stopwatch::kStream, kernel);
    }
  });
  const auto middle = memory.begin() + static_cast<std::ptrdiff_t>(memory.size() / 2);
  std::nth_element(memory.begin(), middle, memory.end());
  return {std::max(in_turn - alone, 0.0) / static_cast<double>(memory.size()), std::max(*middle, 0.0)};
}

}  // namespace

LaunchCost MeasureLaunch(Device& device, const CalibrationSizes& sizes) {
  Operands operands(device, sizes.memory);
  const kernels::Tensor one = operands.Make(DType::fp32, 1);
  const Device::Work scale = [one](const Queue& queue) { on::Scale(queue, -1.0, one); };  // 1: no kernel
  Stopwatch stopwatch(device, sizes.held);
  const double given = stopwatch.SecondsToGive(scale), alone = stopwatch.SecondsOfWork(scale);
  const More more = device.is_synchronous() ? More() : SecondsMore(device, sizes);
  return {RoundToNanos(given), RoundToNanos(alone), RoundToNanos(alone + more.change + more.memory)};
}

}  // namespace tidemark
