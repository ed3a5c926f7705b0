// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/optimizer.h"

#include <algorithm>

namespace tidemark {
namespace {

/// Whether the state is there when the role's program has come to its end: not if this is the first step and a loop
/// that drops an incomplete window never updates.
bool ExistsAtEnd(const Role& role) {
  if (role.step != StepKind::first) {
    return true;
  }
  const Result<std::vector<WindowRun>> windows = WindowsOf(role.job);
  return windows.ok() &&
         std::any_of(windows->begin(), windows->end(), [](const WindowRun& run) { return run.place.last; });
}

}  // namespace

std::int64_t MomentsOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw:
      return 2;
    case OptimizerKind::sgd_momentum:
      return 1;
    case OptimizerKind::sgd:
      return 0;
  }
  TIDEMARK_CHECK(false && "unknown optimizer");
}

std::int64_t UpdateFlopsPerElement(OptimizerKind kind) { return kind == OptimizerKind::adamw ? 12 : 4; }

void OptimizerState::Declare(Role& role, const std::vector<std::int64_t>& elements) {
  Declare(role, "moments of", ByPosition(role, elements));
}

void OptimizerState::Declare(Role& role, const std::string& name, const std::vector<std::int64_t>& elements) {
  moments_ = MomentsOf(role.job.optimizer);
  std::vector<std::int64_t> sizes;
  for (const std::int64_t count : elements) {
    sizes.push_back(count * moments_);
  }
  state_.Declare(role, name, Category::optimizer, role.job.axes.precision.optimizer, sizes,
                 role.step != StepKind::first, ExistsAtEnd(role));
}

void OptimizerState::Update(Role& role, std::int64_t position, std::int64_t elements,
                            const std::vector<BufferRef>& gradients, const std::vector<BufferRef>& updated,
                            Bytes moved_per_element, bool own_part) {
  std::vector<BufferRef> reads = gradients;
  std::vector<BufferRef> writes = updated;
  if (moments_ > 0) {
    const BufferRef state = state_(role, position);
    if (role.step == StepKind::first && made_.insert(position).second) {
      role.Alloc(state);
      role.ZeroKernel("zero moments", role.compute, Work::optimizer, state);
    }
    writes.push_back(state);
  }
  reads.insert(reads.end(), writes.begin(), writes.end());
  const Bytes moved = (moved_per_element + SizeOf(role.job.axes.precision.optimizer) * 2 * moments_) * elements;
  Compute update{role.builder.Named("optimizer update"),
                 OptimizerUpdate{elements, moved.count(), UpdateFlopsPerElement(role.job.optimizer)},
                 role.compute,
                 Work::optimizer,
                 Rational(1),
                 false,
                 std::move(reads),
                 std::move(writes)};
  update.own_part = own_part;
  role.builder.Emit(std::move(update));
}

}  // namespace tidemark
