// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_values.h"

#include <algorithm>

#include "base/text.h"
#include "cli/prediction_report.h"
#include "sim/sweep/global_batch.h"

namespace tidemark {

SweepValues::SweepValues(const SweepSpace& space, std::optional<std::int64_t> global_batch, const Job& base)
    : space_(space), global_batch_(global_batch), micro_batch_size_(base.micro_batch_size), dp_(base.layout.dp) {
  for (const SweepAxis& axis : space.axes()) {
    keys_.push_back(axis.key);
  }
  if (global_batch_) {
    keys_.emplace_back("accumulation_steps");
  }
}

std::vector<std::string> SweepValues::Values(std::int64_t combination) const {
  std::vector<std::size_t> at(space_.axes().size());
  space_.At(combination, at);
  std::vector<std::string> values;
  for (std::size_t i = 0; i < at.size(); ++i) {
    values.push_back(space_.axes()[i].values[at[i]]);
  }
  if (global_batch_) {
    // Where there is none the combination is refused.
    const auto steps = AccumulationSteps(*global_batch_, NumberOf("micro_batch_size", micro_batch_size_, at),
                                         NumberOf("layout.dp", dp_, at));
    values.push_back(steps ? std::to_string(*steps) : "null");
  }
  return values;
}

std::int64_t SweepValues::NumberOf(const std::string& key, std::int64_t fixed,
                                   const std::vector<std::size_t>& at) const {
  const auto axis = std::ranges::find(space_.axes(), key, &SweepAxis::key);
  return axis == space_.axes().end()
             ? fixed
             : ParseWhole(axis->values[at[static_cast<std::size_t>(axis - space_.axes().begin())]]).value_or(0);
}

SweepRow SweepValues::Row(const PricedRow& row, bool on_front) const {
  SweepRow out;
  out.values = Values(row.combination);
  out.allocated = row.allocated;
  out.host = row.host;
  out.device = row.device;
  out.usable = row.usable;
  out.by_category = row.by_category;
  out.phase = std::string(Name(row.phase));
  out.time = MakeTime(row.time);
  out.tokens_per_s_per_gpu = row.tokens_per_s_per_gpu;
  out.mfu = row.mfu > 0 ? std::optional(row.mfu) : std::nullopt;
  out.fits = row.fits;
  out.pareto = on_front;
  return out;
}

}  // namespace tidemark
