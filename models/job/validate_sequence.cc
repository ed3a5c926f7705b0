// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "models/job/validate.h"
#include "models/job/validate_parts.h"

namespace tidemark {

Status CheckMeanLength(const Job& job) {
  const std::int64_t mean = job.mean_sequence_length, longest = job.sequence_length;
  if (mean == 0) {
    return Done{};
  }
  if (mean > longest) {
    return BadKey("sequence_length.mean",
                  fmt::format("sequences of {} tokens on average are longer than the longest, {}", mean, longest),
                  fmt::format("set sequence_length.mean to {}, or less", longest));
  }
  if (std::holds_alternative<Table>(job.network.shape)) {
    return BadKey("sequence_length.mean", "the rows of a table network hold for samples of one size",
                  "give sequence_length as a number");
  }
  const std::int64_t tp = job.layout.tp;
  if (job.layout.sp && mean % tp != 0) {
    return BadKey("sequence_length.mean",
                  fmt::format("{} tokens do not divide over {} sequence-parallel ranks", mean, tp),
                  fmt::format("set sequence_length.mean to {}, a multiple of {}", CeilDiv(mean, tp) * tp, tp));
  }
  return Done{};
}

}  // namespace tidemark
