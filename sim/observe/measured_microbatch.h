// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "traces/trace.h"

namespace tidemark {

/// A tensor of a measured microbatch. What belongs to the strategy (parameters, buckets, optimizer state) is none.
struct MeasuredTensor {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  enum class Part : std::uint8_t {
    saved,      ///< alive when the backward pass begins
    transient,  ///< within one of the passes, or left by the backward pass and no gradient
    gradient,   ///< left by the backward pass
  } part = Part::saved;
  std::size_t born = 0, freed = kNever;  ///< memory events; an input is born before the forward pass
};

/// A forward pass and the backward pass behind it, as memory events: [forward, backward), [backward, end).
struct MeasuredMicrobatch {
  std::size_t forward_span = 0, backward_span = 0;  ///< indices into Trace::spans
  std::size_t forward = 0, backward = 0, end = 0;
  std::vector<MeasuredTensor> tensors;  ///< by birth
  Bytes before;                         ///< alive when the forward pass begins, and none of these
};

/// Phases within phases: for each span the outermost span of its own forward or backward pass; nothing where it is in
/// neither.
std::vector<std::optional<std::size_t>> PassesOfSpans(const Trace& trace);

/// The last microbatch whose backward pass leaves gradients, as ObserveNetwork (observed_network.h) describes it.
/// `passes`: PassesOfSpans.
Result<MeasuredMicrobatch> FindMeasuredMicrobatch(const Trace& trace,
                                                  const std::vector<std::optional<std::size_t>>& passes);

}  // namespace tidemark
