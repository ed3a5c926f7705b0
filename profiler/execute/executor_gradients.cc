// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <variant>

#include "kernels/tensor.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/contents.h"
#include "profiler/execute/executor.h"
#include "sim/program/stages.h"

namespace tidemark {

void Executor::Note(const Compute& leaf, std::span<const Operand> reads, std::span<const Operand> writes) {
  const bool updates = std::holds_alternative<OptimizerUpdate>(leaf.op);
  if (options_.keep_gradients && ThisUpdate() == options_.kept_update && (updates || Measures(leaf))) {
    const bool reads_buckets = updates || WithoutStage(program_->names[leaf.name.index]) == kGradientNorms;
    const bool divides = std::any_of(writes.begin(), writes.end(), [](const Operand& write) {
      return !write.buffer->holds.empty() && write.buffer->holds.front().unpadded;
    });
    const auto counted = [&](const Contents& gradient) {
      return leaf.own_part && !updates
                 ? normed_.OwnPartOf(gradient)
                 : UpdatedPart(model_, gradient, leaf.own_part || divides ? writes : std::span<const Operand>());
    };
    KeepGradients(reads, counted, reads_buckets);
  }
  if (updates && BeginsUpdate()) {
    outcome_.parameters_changed_at.push_back(microbatch_);
    ++updates_;
  }
}

/// Whether what it reads are gradients as an update will find them, but for clipping: not where it only scales them in
/// place, nor where it is an update whose result is masked, in the middle of a window.
bool Executor::Measures(const Compute& leaf) const {
  const auto is_read = [&](const BufferRef& ref) {
    return std::find(leaf.reads.begin(), leaf.reads.end(), ref) != leaf.reads.end();
  };
  const bool in_place = !leaf.writes.empty() && std::all_of(leaf.writes.begin(), leaf.writes.end(), is_read);
  const bool masked = leaf.writes.empty() &&
                      std::any_of(leaf.reads.begin(), leaf.reads.end(),
                                  [&](const BufferRef& ref) { return BufferOf(ref).category == Category::parameter; });
  return leaf.work == Work::optimizer && !in_place && !masked;
}

/// As they are before anything changes them: clipping scales what updates read later. `counted`: what of a gradient
/// this rank's update will find reduced.
void Executor::KeepGradients(std::span<const Operand> reads, const std::function<Contents(const Contents&)>& counted,
                             bool reads_buckets) {
  const HeapScope scope(HeapOwner::verification);
  for (const Operand& read : reads) {
    const bool gradient = read.buffer->category == Category::gradient ||
                          read.buffer->category == Category::accumulator ||
                          (reads_buckets && read.buffer->category == Category::bucket);  // elsewhere: perhaps weights
    auto contents = gradient ? ContentsOf(model_, read) : nullptr;
    if (contents) {
      contents = std::make_shared<const Contents>(counted(*contents));
    }
    for (std::size_t i = 0; contents && i < contents->stretches.size(); ++i) {
      const Stretch& stretch = contents->stretches[i];
      const auto [part, is_new] = gradients_[{stretch.weight.name, stretch.block}].try_emplace(stretch.begin);
      if (is_new) {
        part->second.resize(static_cast<std::size_t>(stretch.elements));
        device_.Synchronize();  // whoever wrote it
        device_.Read(0,
                     kernels::Slice(static_cast<kernels::ConstTensor>(read.tensor), stretch.offset, stretch.elements),
                     part->second.data());
      }
    }
  }
}

}  // namespace tidemark
