// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/quantity.h"
#include "kernels/tensor.h"
#include "profiler/device/tensor_memory.h"
#include "sim/program/program.h"
#include "traces/trace.h"

namespace tidemark {

/// Writes down what one rank's device handed out and what its kernels took: a Trace. Sizes are those of the tensors
/// that kernels declared, times those of the clock.
class Recorder {
 public:
  /// Since StartClock; until then, while what is resident is made, it is 0.
  Nanos Now() const;
  void StartClock();

  void BeginStep(const Program& program, std::string_view kind);
  void EndStep();
  void Memory(bool alloc, const Buffer& buffer, std::int64_t index0, std::int64_t index1,
              const kernels::TensorType& type, const TensorMemory::Piece& piece, const Allocator& allocator);
  void Busy(const std::string& stream, std::string_view kind, const std::string& name, Nanos start, Nanos end);
  void Begin(Phase phase, std::int64_t microbatch, Side side);
  void End();

  /// The phase that runs, "" outside of any.
  std::string phase() const { return open_.empty() ? std::string() : trace_.spans[open_.back()].phase; }
  const Trace& trace() const { return trace_; }
  Trace Take() && { return std::move(trace_); }

 private:
  using TensorKey = std::tuple<std::string, Category, DType, std::int64_t>;

  std::optional<std::chrono::steady_clock::time_point> zero_;
  Trace trace_;
  std::map<TensorKey, std::uint32_t> tensors_;
  std::map<std::string, std::uint32_t> streams_, strings_;
  std::vector<std::uint16_t> open_;  ///< spans
};

}  // namespace tidemark
