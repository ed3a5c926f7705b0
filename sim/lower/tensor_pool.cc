// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/tensor_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

/// The largest pooled tensor of a rank; nullptr where there is none. All are of one pool and dtype.
const Tensor* LargestPooled(const std::vector<Stage>& chunks) {
  const Tensor* largest = nullptr;
  const auto compare = [&](const Tensor& tensor) {
    if (tensor.pool.empty()) {
      return;
    }
    TIDEMARK_CHECK(largest == nullptr || (tensor.pool == largest->pool && tensor.dtype == largest->dtype));
    if (largest == nullptr || tensor.elements > largest->elements) {
      largest = &tensor;
    }
  };
  for (const Stage& stage : chunks) {
    for (const StageRun& run : stage.runs) {
      std::for_each(run.block().tensors.begin(), run.block().tensors.end(), compare);
    }
  }
  return largest;
}

TensorPool::First FirstPooled(const Block& block) {
  for (const Action& action : block.forward) {
    for (const TensorId written : std::visit([](const auto& leaf) { return leaf.writes; }, action)) {
      if (!block.tensors[written.index].pool.empty()) {
        return {written, written == block.output};
      }
    }
  }
  return {};
}

}  // namespace

TensorPool::TensorPool(Role& role) : role_(role), pool_(role.program.pool) {
  const Tensor* largest = LargestPooled(role.program.chunks);
  if (largest == nullptr || role.stage.chunk > 0) {
    return;
  }
  pool_.exists = role.step != StepKind::first;
  const auto block = [&](std::string name, std::int64_t elements, bool stays) {
    return role.builder.AddBuffer({.name = std::move(name),
                                   .category = Category::tp_gather,
                                   .dtype = largest->dtype,
                                   .elements = elements,
                                   .stream = role.compute,
                                   .resident = stays && pool_.exists,
                                   .kept = stays});
  };
  pool_.id = block("pool " + largest->pool, largest->elements, true);
  first_ = FirstPooled(role.stage.runs.front().block());
  if (pool_.exists || !first_.tensor.valid()) {
    return;
  }
  const Tensor& first = role.stage.runs.front().block().tensors[first_.tensor.index];
  if (first.elements < largest->elements) {
    small_ = block("first pool " + largest->pool, first.elements, false);
    small_view_ = role.builder.AddBuffer({.name = "first " + first.name,
                                          .category = first.category,
                                          .dtype = first.dtype,
                                          .elements = first.elements,
                                          .stream = role.compute,
                                          .base = small_});
  }
}

BufferId TensorPool::AddView(std::string name, const Tensor& tensor, std::int64_t microbatches, std::int64_t blocks) {
  return role_.builder.AddBuffer({.name = std::move(name),
                                  .category = tensor.category,
                                  .dtype = tensor.dtype,
                                  .elements = tensor.elements,
                                  .extents = {microbatches, blocks},
                                  .stream = role_.compute,
                                  .base = pool_.id});
}

void TensorPool::Request(const BufferRef& pooled) {
  const Buffer& buffer = role_.builder.buffer(pooled.buffer);
  if (!buffer.is_view()) {
    return;
  }
  if (small_.valid() && buffer.base == small_) {
    if (!small_alive_) {
      role_.Alloc({small_, {}});
      small_alive_ = true;
    }
    return;
  }
  if (pool_.exists) {
    return;
  }
  role_.Alloc({pool_.id, {}});
  pool_.exists = true;
  if (small_alive_ && !first_.leaves_block) {
    role_.Free({small_, {}});
    small_alive_ = false;
  }
}

std::optional<WrongNumbers> WhatIsWrongWithPool(const Job& job) {
  const bool unsafe = job.axes.buffers.tp_gather == Buffers::TpGather::pooled_unsafe;
  if (!unsafe || !job.layout.sp || job.layout.tp == 1) {
    return std::nullopt;
  }
  return WrongNumbers{
      "shared-pool",
      "gathered and scattered tensors share one pooled block, which is written again before they are read",
      "set buffers.tp_gather to pooled: one use at a time, and a second gather"};
}

void TensorPool::DropOutput() {
  if (OutputInSmall()) {
    role_.Free({small_, {}});
    small_alive_ = false;
  }
}

}  // namespace tidemark
