// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/whole_parts.h"

#include <utility>

namespace tidemark {

WholeParts::WholeParts(Role& role) : role_(role), precision_(role.job.axes.precision) {
  if (precision_.master) {
    std::vector<std::int64_t> elements;
    for (const StageRun& run : role.stage.runs) {
      elements.push_back(TrainableElements(run.block()));
    }
    masters_ =
        role.PerBlock("master weights of", Category::optimizer, *precision_.master, role.compute, elements, true, true);
  }
  optimizer_.Declare(role, [&](std::int64_t position) { return TrainedSizes(role, position); });
}

std::vector<TensorUpdate> WholeParts::UpdatesOf(std::int64_t position, std::vector<BufferRef> gradients,
                                                std::vector<BufferRef> weights) const {
  const std::int64_t elements = ElementsOf(position);
  if (elements == 0) {
    return {};
  }
  std::vector<BufferRef> updated =
      precision_.master ? std::vector<BufferRef>{role_.Ref(masters_, position)} : std::move(weights);
  const Bytes moved = SizeOf(precision_.accumulate) + SizeOf(precision_.master.value_or(precision_.params)) * 2;
  return {{0, elements, std::move(gradients), std::move(updated), moved}};
}

void WholeParts::CopyToWeights(std::int64_t position, std::vector<BufferRef> weights) {
  const std::int64_t elements = ElementsOf(position);
  if (elements > 0 && precision_.master) {
    role_.MemoryKernel("masters to weights", role_.compute, Work::optimizer, {role_.Ref(masters_, position)},
                       std::move(weights), elements,
                       (SizeOf(*precision_.master) + SizeOf(precision_.params)) * elements);
  }
}

}  // namespace tidemark
