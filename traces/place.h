// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "traces/trace.h"

namespace tidemark {

/// What is said in place of a phase of what happens before any.
inline constexpr const char* kBeforeStep = "before the step";

/// Where in a step something happens. No phase: before or after everything.
struct PhasePlace {
  std::string phase;
  std::int64_t microbatch = -1;  ///< -1: of the whole step
  std::int64_t step = -1;        ///< of several, counted from 0; -1: there is one step
  std::string side = {};         ///< as in Span

  friend auto operator<=>(const PhasePlace&, const PhasePlace&) = default;
};

/// The phase of a memory event.
PhasePlace PlaceOf(const Trace& trace, std::size_t event);

/// The step of a memory event, counted from 0; -1 where the trace does not tell several steps apart.
std::int64_t StepOf(const Trace& trace, std::size_t event);

}  // namespace tidemark
