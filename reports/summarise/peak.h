// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/quantity.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

/// The members of one family of tensors that are alive at the peak, as one line of a report.
struct LiveBuffers {
  std::string name;  ///< of the family
  Category category = Category::activation;
  std::int64_t count = 0;
  Bytes bytes;                 ///< of all `count` members
  Nanos since;                 ///< when the first of them was allocated
  std::optional<Nanos> until;  ///< when the last of them is freed; nothing: it outlives the step
  /// "forward 0", of several steps "forward 0, step 2"; "before the step": was resident; outside of phases "at 3.20 ms"
  std::string since_phase;
  std::string until_phase;  ///< the same; "after the step": is kept
  DType dtype = DType::bf16;
  std::string sharding;     ///< as in TraceTensor
  std::int64_t copies = 1;  ///< microbatches in whose passes the living members were born
  PhasePlace born, died;    ///< since and until, as places
};

/// The highest point of a role's memory, at the first instant of the highest total.
struct Peak {
  Bytes allocated;
  CategoryBytes by_category;      ///< sums to `allocated`
  std::string phase;              ///< innermost phase of that instant
  std::int64_t microbatch = -1;   ///< of that phase; -1: none, or not known
  std::string side;               ///< as in Span
  std::int64_t step = -1;         ///< of several steps the one of that instant, counted from 0; -1: there is one step
  std::optional<Nanos> at;        ///< host time; known from a trace only
  std::vector<LiveBuffers> live;  ///< largest first; from a trace only
};

/// The peak of what a trace recorded. The trace is sound (Verify).
Peak SummarisePeak(const Trace& trace);

/// What is alive when a trace ends, largest first: what a device that ran out of memory was full of.
std::vector<LiveBuffers> SummariseEnd(const Trace& trace);

/// The highest total seen in all spans of one phase, together with what was alive when they began.
struct PhasePeak {
  std::string phase;
  Bytes allocated;
  std::string where;  ///< the first span that reaches it: "microbatch 2", "query chunk 2, step 1"; empty: the only one
};

/// In order of first appearance.
std::vector<PhasePeak> SummarisePhases(const Trace& trace);

/// "backward 2", "optimizer", for tables; empty for no phase. Of several steps: "backward 2, step 1" (steps count from
/// 1 in text, from 0 in `step`; -1: there is one step).
/// Of one side of a dual encoder's pairs: "C_backward query 2".
std::string PhaseLabel(const std::string& phase, std::int64_t microbatch, std::int64_t step = -1,
                       const std::string& side = {});
std::string PhaseLabel(const PhasePlace& place);

/// "backward of microbatch 2", "C_backward of query chunk 2", "optimizer of step 3", within sentences; empty for no
/// phase.
std::string PhaseText(const std::string& phase, std::int64_t microbatch, std::int64_t step = -1,
                      const std::string& side = {});
/// "in backward of microbatch 2"; kBeforeStep for no phase.
std::string InPhaseText(const std::string& phase, std::int64_t microbatch, std::int64_t step = -1,
                        const std::string& side = {});
std::string InPhaseText(const PhasePlace& place);

}  // namespace tidemark
