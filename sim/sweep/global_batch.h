// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "models/job/change.h"

namespace tidemark {

/// The number of microbatches that makes a global batch: of so many sequences on all ranks together. Nothing where it
/// is no whole number, or a size is none.
inline std::optional<std::int64_t> AccumulationSteps(std::int64_t global_batch, std::int64_t micro_batch_size,
                                                     std::int64_t dp) {
  std::int64_t at_once = 0;
  const bool known = micro_batch_size > 0 && dp > 0 && !__builtin_mul_overflow(micro_batch_size, dp, &at_once);
  return known && global_batch % at_once == 0 ? std::optional(global_batch / at_once) : std::nullopt;
}

/// What a config of another tool is read with where a global batch decides how many microbatches there are: its own
/// global batch then binds nothing.
inline JobChange OneStepEach() { return {"accumulation_steps", {{"accumulation_steps", MakeScalar("1", "--vary")}}}; }

}  // namespace tidemark
