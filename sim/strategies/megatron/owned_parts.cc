// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/owned_parts.h"

#include <fmt/format.h>

#include <utility>

namespace tidemark {

OwnedParts::OwnedParts(Role& role, const GradientBuffer& buffer) : role_(role), precision_(role.job.axes.precision) {
  std::vector<std::vector<std::int64_t>> owned;  // by slot and position
  for (std::int64_t position = 0; position < role.stage.blocks; ++position) {
    for (const GradientBucket& bucket : buffer.CompletedIn(position)) {
      if (bucket.slot == owned.size()) {
        owned.emplace_back(static_cast<std::size_t>(role.stage.blocks));
      }
      owned[bucket.slot][static_cast<std::size_t>(position)] = bucket.owned;
    }
  }
  for (std::size_t slot = 0; slot < owned.size(); ++slot) {
    if (precision_.master) {
      masters_.emplace_back().Declare(role, fmt::format("master weights of bucket {} of", slot), Category::optimizer,
                                      *precision_.master, owned[slot], true, true);
    }
    moments_.emplace_back().Declare(role, fmt::format("moments of bucket {} of", slot), owned[slot]);
  }
}

std::vector<std::int64_t> OwnedParts::Key(std::int64_t position) const {
  std::vector<std::int64_t> families;
  for (const OptimizerState& moments : moments_) {
    families.push_back(moments.FamilyOf(position));
  }
  return families;
}

void OwnedParts::Update(const GradientBucket& bucket, const std::vector<BufferRef>& gradients,
                        const std::vector<BufferRef>& weights) {
  const std::vector<BufferRef> updated =
      precision_.master ? std::vector<BufferRef>{masters_[bucket.slot](role_, bucket.completed_in)} : weights;
  const Bytes moved = SizeOf(precision_.accumulate) + SizeOf(precision_.master.value_or(precision_.params)) * 2;
  moments_[bucket.slot].Update(role_, bucket.completed_in, bucket.owned, gradients, updated, moved,
                               role_.job.layout.dp > 1);
}

void OwnedParts::CopyToWeights(const GradientBucket& bucket, std::vector<BufferRef> weights) {
  if (precision_.master) {
    role_.MemoryKernel("masters to weights", role_.compute, Work::optimizer,
                       {masters_[bucket.slot](role_, bucket.completed_in)}, std::move(weights), bucket.owned,
                       (SizeOf(*precision_.master) + SizeOf(precision_.params)) * bucket.owned);
  }
}

}  // namespace tidemark
