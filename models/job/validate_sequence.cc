// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <numeric>
#include <utility>

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

Status CheckContextParallel(const Job& job) {
  const std::int64_t cp = job.layout.cp;
  if (cp == 1) {
    return Done{};
  }
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  if (decoder == nullptr) {
    return BadKey("layout.cp",
                  std::holds_alternative<Table>(job.network.shape)
                      ? "the rows of a table network hold for whole sequences"
                      : "a dual encoder makes one representation of each sequence, which must lie on one rank",
                  "set layout.cp to 1");
  }
  if (decoder->attention_kernel != Decoder::AttentionKernel::flash) {
    return BadKey(
        "layout.cp",
        "attention over keys of other ranks needs a kernel that says what its softmax was divided by, and "
        "single operations do not",
        "set network.attention_kernel to flash (of a Megatron-LM command line: leave out --attention-backend), or "
        "layout.cp to 1");
  }
  // Two stretches for each rank, and a part of its rows for each rank of sequence parallelism.
  const std::int64_t parts = std::lcm(2 * cp, cp * (job.layout.sp ? job.layout.tp : 1));
  for (const auto& [key, tokens] : {std::pair("sequence_length", job.sequence_length),
                                    std::pair("sequence_length.mean", job.mean_sequence_length)}) {
    if (tokens % parts != 0) {
      return BadKey(
          key,
          fmt::format("{} tokens do not divide over {} context-parallel ranks, two stretches for each{}", tokens, cp,
                      job.layout.sp ? fmt::format(", and over {} sequence-parallel ones", job.layout.tp) : ""),
          fmt::format("expected a multiple of {}", parts));
    }
  }
  return Done{};
}

}  // namespace tidemark
