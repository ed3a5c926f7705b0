// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "sim/lower/block_writer.h"

namespace tidemark {
namespace {

/// Whether what the block before `position` hands on is a view of the pool.
bool HandsOnPooled(const Stage& stage, std::int64_t position) {
  const Block* before = position > 0 ? &stage.BlockAt(position - 1) : nullptr;
  return before != nullptr && before->output.valid() && !before->tensors[before->output.index].pool.empty();
}

std::string OutputName(const Block& block) { return block.name + "." + block.tensors[block.output.index].name; }

}  // namespace

void BlockWriter::DeclareBoundaries() {
  const Stage& stage = role_.stage;
  const std::int64_t microbatches = role_.MicrobatchBuffers();
  const auto tensor_at = [&](std::int64_t position) -> const Tensor* {
    if (position < stage.blocks && stage.BlockAt(position).input.valid()) {
      return &stage.BlockAt(position).tensors[stage.BlockAt(position).input.index];
    }
    if (position > 0 && stage.BlockAt(position - 1).output.valid()) {
      return &stage.BlockAt(position - 1).tensors[stage.BlockAt(position - 1).output.index];
    }
    return nullptr;
  };
  for (std::int64_t position = 0; position <= stage.blocks; ++position) {
    const Tensor* tensor = tensor_at(position);
    const Tensor* previous =
        boundaries_.empty() || boundaries_.back().end != position ? nullptr : tensor_at(position - 1);
    const bool pooled = tensor != nullptr && HandsOnPooled(stage, position);
    if (tensor == nullptr) {
      continue;
    }
    if (previous != nullptr && previous->elements == tensor->elements && previous->dtype == tensor->dtype &&
        boundaries_.back().pooled == pooled) {
      boundaries_.back().end = position + 1;
    } else {
      boundaries_.push_back({position, position + 1, {}, {}, pooled});
    }
  }
  for (BoundaryRun& run : boundaries_) {
    const Tensor& tensor = *tensor_at(run.base);
    const std::string tower = TowerPrefix(stage.BlockAt(std::min(run.base, stage.blocks - 1)));
    const auto declare = [&](std::string name, Category category) {
      // Where the residual stream is a view of the pool, it is in several pieces.
      const bool first = &run == &boundaries_.front() || !tower.empty();
      name = fmt::format("{}{}{}", tower, name, first ? "" : fmt::format(" from block {}", run.base));
      return role_.builder.AddBuffer({std::move(name),
                                      category,
                                      tensor.dtype,
                                      tensor.elements,
                                      {microbatches, run.end - run.base},
                                      role_.compute});
    };
    run.value = run.pooled ? pool_.AddView(OutputName(stage.BlockAt(run.base - 1)), tensor, microbatches, 1)
                           : declare("residual", tensor.category);
    run.gradient = declare("residual gradient", tensor.category);
  }
}

bool BlockWriter::InputIsPooled(std::int64_t position) const { return HandsOnPooled(role_.stage, position); }

const BlockWriter::BoundaryRun& BlockWriter::BoundaryRunOf(std::int64_t position) const {
  const auto run = std::find_if(boundaries_.begin(), boundaries_.end(),
                                [&](const BoundaryRun& candidate) { return position < candidate.end; });
  TIDEMARK_CHECK(run != boundaries_.end() && position >= run->base);
  return *run;
}

BufferRef BlockWriter::Boundary(const Microbatch& microbatch, std::int64_t position) const {
  const BoundaryRun& run = BoundaryRunOf(position);
  if (run.pooled && pool_.OutputInSmall()) {
    return pool_.small_view();
  }
  return {run.value, {MicrobatchIndex(microbatch), role_.AtStage(position, run.base)}};
}

BufferRef BlockWriter::BoundaryGradient(const Microbatch& microbatch, std::int64_t position) const {
  const BoundaryRun& run = BoundaryRunOf(position);
  return {run.gradient, {MicrobatchIndex(microbatch), role_.AtStage(position, run.base)}};
}

}  // namespace tidemark
