// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/owned_parts.h"

#include <fmt/format.h>

#include <utility>

#include "sim/lower/window.h"

namespace tidemark {
namespace {

/// Whether an update is the last that a step does: no window behind it stays incomplete.
bool EndsWithUpdate(const Job& job) {
  const Result<std::vector<WindowRun>> windows = WindowsOf(job);
  return windows.ok() && !windows->empty() && windows->back().place.last;
}

}  // namespace

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
  const bool copies = precision_.master && precision_.optimizer == DType::fp32 && precision_.accumulate != DType::fp32;
  const bool copies_at_end = copies && EndsWithUpdate(role.job);
  copies_at_start_ = copies_at_end && role.step != StepKind::first;
  std::vector<OptimizerState::Slot> moments;
  for (std::size_t slot = 0; slot < owned.size(); ++slot) {
    const auto holds = [&buffer, slot](bool masters) {
      return [&buffer, slot, masters](std::int64_t position) {
        std::vector<Holding> held;
        if (const auto buckets = buffer.CompletedIn(position); slot < buckets.size()) {
          held.push_back(buffer.HoldsOwned(buckets[slot]));
          held.back().masters = masters;
        }
        return held;
      };
    };
    if (precision_.master) {
      masters_.emplace_back().Declare(role, fmt::format("master weights of bucket {} of", slot), Category::optimizer,
                                      *precision_.master, owned[slot], true, true, Place::device, holds(true));
    }
    if (copies) {
      copies_.emplace_back().Declare(role, fmt::format("fp32 gradient of bucket {} of", slot), Category::gradient,
                                     DType::fp32, owned[slot], copies_at_start_, copies_at_end, Place::device,
                                     holds(true));
    }
    OptimizerState::Slot& state = moments.emplace_back();
    state.name = fmt::format("moments of bucket {} of", slot);
    state.holds = holds(false);
    for (const std::int64_t elements : owned[slot]) {
      state.sizes.push_back({elements});
    }
  }
  slots_ = moments.size();
  optimizer_.Declare(role, moments);
}

std::vector<std::int64_t> OwnedParts::Key(std::int64_t position) const {
  std::vector<std::int64_t> families;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    families.push_back(optimizer_.FamilyOf(slot, position));
  }
  return families;
}

void OwnedParts::FreeCopy(const GradientBucket& bucket) {
  role_.Free(copies_[bucket.slot](role_, bucket.completed_in));
}

void OwnedParts::CopyGradients(const GradientBucket& bucket, const std::vector<BufferRef>& gradients) {
  const BufferRef copy = copies_[bucket.slot](role_, bucket.completed_in);
  role_.Alloc(copy);
  role_.MemoryKernel("gradients to fp32", role_.compute, Work::optimizer, gradients, {copy}, bucket.owned,
                     (SizeOf(precision_.accumulate) + SizeOf(DType::fp32)) * bucket.owned);
}

TensorUpdate OwnedParts::UpdateOf(const GradientBucket& bucket, const std::vector<BufferRef>& gradients,
                                  const std::vector<BufferRef>& weights) const {
  const std::vector<BufferRef> updated =
      precision_.master ? std::vector<BufferRef>{masters_[bucket.slot](role_, bucket.completed_in)} : weights;
  const std::vector<BufferRef> read =
      CopiesGradients() ? std::vector<BufferRef>{copies_[bucket.slot](role_, bucket.completed_in)} : gradients;
  const DType dtype = CopiesGradients() ? DType::fp32 : precision_.accumulate;
  const Bytes moved = SizeOf(dtype) + SizeOf(precision_.master.value_or(precision_.params)) * 2;
  return {bucket.slot, bucket.owned, read, updated, moved, true};
}

void OwnedParts::CopyToWeights(const GradientBucket& bucket, std::vector<BufferRef> weights) {
  if (precision_.master) {
    role_.MemoryKernel("masters to weights", role_.compute, Work::optimizer,
                       {masters_[bucket.slot](role_, bucket.completed_in)}, std::move(weights), bucket.owned,
                       (SizeOf(*precision_.master) + SizeOf(precision_.params)) * bucket.owned);
  }
}

}  // namespace tidemark
