// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/title.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

/// "dp 8, tp 4", only what is divided at all.
std::string LayoutText(const Layout& layout) {
  const std::array<std::pair<const char*, std::int64_t>, 6> axes = {{{"dp", layout.dp},
                                                                     {"tp", layout.tp},
                                                                     {"cp", layout.cp},
                                                                     {"pp", layout.pp},
                                                                     {"vpp", layout.vpp},
                                                                     {"ep", layout.ep}}};
  std::vector<std::string> parts;
  for (const auto& [name, size] : axes) {
    if (size > 1) {
      parts.push_back(fmt::format("{} {}", name, size));
    }
  }
  if (layout.ExpertTp() != layout.tp) {
    parts.push_back(fmt::format("etp {}", layout.etp));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// "4 microbatches", and of a short window "3 of 4 microbatches".
std::string MicrobatchText(const Job& job) {
  const std::int64_t runs = job.CachesRepresentations() ? job.accumulation_steps : job.Microbatches();
  const std::string of = runs == job.accumulation_steps ? "" : fmt::format(" of {}", job.accumulation_steps);
  return fmt::format("{}{} microbatch{}", runs, of, job.accumulation_steps == 1 ? "" : "es");
}

/// "512 tokens", and of uneven sequences "8192 tokens at most, 3000 on average".
std::string LengthText(const Job& job) {
  const std::string mean =
      job.mean_sequence_length > 0 ? fmt::format(" at most, {} on average", job.mean_sequence_length) : "";
  return fmt::format("{} tokens{}", job.sequence_length, mean);
}

}  // namespace

std::string JobTitle(const Job& job) {
  const std::string layout = LayoutText(job.layout);
  const std::string ranks = layout.empty() ? "1 rank" : fmt::format("{} ranks ({})", job.Ranks(), layout);
  if (job.CachesRepresentations()) {
    const std::int64_t batch = job.micro_batch_size * job.accumulation_steps;
    return fmt::format("{}, {}, {}, {} pairs in {} chunk{} of {} x {}", job.network.name, job.strategy, ranks, batch,
                       job.Microbatches(), job.Microbatches() == 1 ? "" : "s", batch / job.Microbatches(),
                       LengthText(job));
  }
  return fmt::format("{}, {}, {}, {} of {} x {}", job.network.name, job.strategy, ranks, MicrobatchText(job),
                     job.micro_batch_size, LengthText(job));
}

}  // namespace tidemark
