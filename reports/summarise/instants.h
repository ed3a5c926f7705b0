// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/category.h"
#include "base/quantity.h"
#include "reports/summarise/peak.h"
#include "traces/trace.h"

namespace tidemark {

inline constexpr const char* kOptimizerFirst = "optimizer, first step";
inline constexpr const char* kOptimizerLater = "optimizer, later steps";

/// The members of one family of tensors that are alive at an instant.
struct InstantTensors {
  std::string name;
  Category category = Category::activation;
  std::int64_t count = 0;
  Bytes bytes;  ///< of all `count` members
};

/// A moment of a step that has a name, and what is alive then.
struct Instant {
  std::string name;
  PhasePlace place;  ///< where this moment came
  Nanos at;          ///< host time
  Bytes allocated;
  CategoryBytes by_category;         ///< sums to `allocated`
  std::vector<InstantTensors> live;  ///< largest first
};

/// The named moments of a trace, in the order in which they come; a moment that it does not have is absent. Most come
/// once for each microbatch: then it is the one at which most is alive, the first of these.
///
/// * "end of forward": after the last event of a forward pass;
/// * "loss": where the logits take most, or the pass of the loss by itself has most alive;
/// * "start of backward": with what a backward pass allocates before it frees anything;
/// * "window end": after the last event of the last backward pass before an optimizer step, or of the trace;
/// * "reduce", "clip", "gather": while gradients are synchronised, clipped, parameters gathered: phases of these names,
///   and Trace::marks;
/// * "optimizer, first step", "optimizer, later steps": within the optimizer's phase; "optimizer" where the trace does
///   not tell which step it is.
///
/// Cost: two walks over the trace.
std::vector<Instant> FindInstants(const Trace& trace);

}  // namespace tidemark
