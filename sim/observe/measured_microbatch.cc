// SPDX-License-Identifier: Apache-2.0
#include "sim/observe/measured_microbatch.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/category.h"
#include "base/quantity.h"

namespace tidemark {
namespace {

constexpr std::size_t kNever = MeasuredTensor::kNever;
constexpr std::string_view kForward = "forward", kBackward = "backward", kOptimizer = "optimizer";

bool IsPass(const Span& span) { return span.phase == kForward || span.phase == kBackward; }

bool Contains(const Span& outer, const Span& inner) { return outer.begin <= inner.begin && inner.end <= outer.end; }

/// Memory events [first, last] of a pass.
struct Range {
  std::size_t first = kNever, last = 0;
};

/// What a tensor may be by its category.
enum class Role { activation, gradient, either, of_strategy };

Role RoleOf(Category category) {
  switch (category) {
    case Category::gradient:
      return Role::gradient;
    case Category::unknown:
      return Role::either;
    case Category::parameter:
    case Category::accumulator:
    case Category::optimizer:
    case Category::bucket:
      return Role::of_strategy;
    default:
      return Role::activation;
  }
}

class Search {
 public:
  Search(const Trace& trace, const std::vector<std::optional<std::size_t>>& passes) : trace_(trace), passes_(passes) {
    FindFrees();
    FindRanges();
  }

  Result<MeasuredMicrobatch> Find() const {
    std::vector<std::pair<MeasuredMicrobatch, Bytes>> candidates = Candidates();
    if (candidates.empty()) {
      return BadInput("there is no forward pass with its backward pass right behind it",
                      "annotate both with record_function(\"forward\") and record_function(\"backward\") (or NVTX "
                      "ranges of these names), one microbatch after the other, without a pipeline");
    }
    Bytes most;
    for (const auto& [microbatch, gradients] : candidates) {
      most = std::max(most, gradients);
    }
    if (most == Bytes(0)) {
      return BadInput("no backward pass leaves gradients behind, which tell the parameters",
                      "record the first microbatch of a step, after zero_grad(set_to_none=True), on one rank "
                      "without sharding or gradient buckets");
    }
    // What little a later backward pass leaves beside gradients that were there already makes it no first one.
    while (candidates.back().second < most - candidates.back().second) {
      candidates.pop_back();
    }
    MeasuredMicrobatch found = candidates.back().first;
    AddTensors(found);
    return found;
  }

 private:
  Category CategoryOf(std::size_t event) const { return trace_.tensors[trace_.memory[event].tensor.index].category; }
  Bytes BytesOf(std::size_t event) const { return trace_.tensors[trace_.memory[event].tensor.index].bytes; }

  std::optional<std::size_t> PassOf(std::size_t event) const {
    const std::uint16_t span = trace_.memory[event].span;
    return span == kNoSpan ? std::nullopt : passes_[span];
  }

  bool InOptimizer(std::size_t event) const {
    const std::uint16_t span = trace_.memory[event].span;
    return span != kNoSpan && trace_.spans[span].phase == kOptimizer;
  }

  void FindFrees() {
    std::map<std::tuple<std::uint32_t, std::int32_t, std::int32_t>, std::size_t> alive;
    freed_.assign(trace_.memory.size(), kNever);
    for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
      const MemoryEvent& event = trace_.memory[i];
      const std::tuple key(event.tensor.index, event.index0, event.index1);
      if (event.alloc) {
        alive[key] = i;
      } else if (const auto found = alive.find(key); found != alive.end()) {
        freed_[found->second] = i;
        alive.erase(found);
      }
    }
  }

  void FindRanges() {
    ranges_.resize(trace_.spans.size());
    for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
      if (const std::optional<std::size_t> pass = PassOf(i)) {
        ranges_[*pass].first = std::min(ranges_[*pass].first, i);
        ranges_[*pass].last = i;
      }
      annotates_optimizer_ = annotates_optimizer_ || InOptimizer(i);
    }
  }

  /// Forward passes with the backward pass of the same microbatch behind them, and what that leaves.
  std::vector<std::pair<MeasuredMicrobatch, Bytes>> Candidates() const {
    std::vector<std::pair<MeasuredMicrobatch, Bytes>> candidates;
    std::optional<std::size_t> last;
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) {
      if (passes_[i] != i || ranges_[i].first == kNever) {
        continue;
      }
      const Span& span = trace_.spans[i];
      if (last && span.phase == kBackward && trace_.spans[*last].phase == kForward &&
          trace_.spans[*last].microbatch == span.microbatch && trace_.spans[*last].side == span.side &&
          ranges_[*last].last < ranges_[i].first) {
        MeasuredMicrobatch microbatch{*last, i, ranges_[*last].first, ranges_[i].first, ranges_[i].last + 1, {}, {}};
        const Bytes gradients = GradientsOf(microbatch);
        candidates.emplace_back(std::move(microbatch), gradients);
      }
      last = i;
    }
    return candidates;
  }

  bool IsGradient(const MeasuredMicrobatch& microbatch, std::size_t event) const {
    const Role role = RoleOf(CategoryOf(event));
    return (role == Role::gradient || role == Role::either) && event >= microbatch.backward &&
           (freed_[event] == kNever || freed_[event] >= microbatch.end);
  }

  Bytes GradientsOf(const MeasuredMicrobatch& microbatch) const {
    Bytes bytes;
    for (std::size_t i = microbatch.backward; i < microbatch.end; ++i) {
      if (trace_.memory[i].alloc && IsGradient(microbatch, i)) {
        bytes += BytesOf(i);
      }
    }
    return bytes;
  }

  void AddTensors(MeasuredMicrobatch& microbatch) const {
    AddInputs(microbatch);
    for (std::size_t i = microbatch.forward; i < microbatch.end; ++i) {
      if (!trace_.memory[i].alloc || RoleOf(CategoryOf(i)) == Role::of_strategy) {
        continue;
      }
      MeasuredTensor tensor{MeasuredTensor::Part::transient, i, freed_[i]};
      if (i < microbatch.backward && freed_[i] >= microbatch.backward) {
        tensor.part = MeasuredTensor::Part::saved;
      } else if (IsGradient(microbatch, i)) {
        tensor.part = MeasuredTensor::Part::gradient;
      }
      microbatch.tensors.push_back(tensor);
    }
  }

  /// What a loop over microbatches makes right before the forward pass, and gives up before the next one is over:
  /// batches. Where nothing follows they need not be given up, unless what was made could as well be the optimizer's,
  /// or the model.
  void AddInputs(MeasuredMicrobatch& microbatch) const {
    std::size_t first = microbatch.forward;
    while (first > 0 && !PassOf(first - 1) && !InOptimizer(first - 1)) {
      --first;
    }
    const std::size_t next = EndOfNextForward(microbatch.end);
    const bool may_stay = next == trace_.memory.size() && first > 0 && annotates_optimizer_;
    for (std::size_t i = 0; i < microbatch.forward; ++i) {
      if (!trace_.memory[i].alloc || freed_[i] < microbatch.forward) {
        continue;
      }
      const Role role = RoleOf(CategoryOf(i));
      const bool goes = freed_[i] == kNever ? may_stay : freed_[i] < next;
      if (i >= first && goes && (role == Role::activation || role == Role::either)) {
        microbatch.tensors.push_back({MeasuredTensor::Part::saved, i, freed_[i]});
      } else {
        microbatch.before += BytesOf(i);
      }
    }
  }

  std::size_t EndOfNextForward(std::size_t from) const {
    for (std::size_t i = from; i < trace_.memory.size(); ++i) {
      if (const std::optional<std::size_t> pass = PassOf(i); pass && trace_.spans[*pass].phase == kForward) {
        return ranges_[*pass].last + 1;
      }
    }
    return trace_.memory.size();
  }

  const Trace& trace_;
  const std::vector<std::optional<std::size_t>>& passes_;
  std::vector<std::size_t> freed_;  // by the event that allocates
  std::vector<Range> ranges_;       // by span; of passes only
  bool annotates_optimizer_ = false;
};

}  // namespace

std::vector<std::optional<std::size_t>> PassesOfSpans(const Trace& trace) {
  std::vector<std::optional<std::size_t>> passes(trace.spans.size());
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    while (!open.empty() && !Contains(trace.spans[open.back()], span)) {
      open.pop_back();
    }
    const std::optional<std::size_t> outer = open.empty() ? std::nullopt : passes[open.back()];
    const bool own = IsPass(span) && !(outer && trace.spans[*outer].phase == span.phase &&
                                       trace.spans[*outer].microbatch == span.microbatch);
    passes[i] = own ? i : outer;
    open.push_back(i);
  }
  return passes;
}

Result<MeasuredMicrobatch> FindMeasuredMicrobatch(const Trace& trace,
                                                  const std::vector<std::optional<std::size_t>>& passes) {
  return Search(trace, passes).Find();
}

}  // namespace tidemark
