// SPDX-License-Identifier: Apache-2.0
#include "sim/program/verify_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/rational_text.h"
#include "sim/program/gradient_exchange.h"
#include "sim/program/gradient_sources.h"
#include "sim/program/gradient_value.h"
#include "sim/program/kernel_reads.h"
#include "sim/program/parameter_sources.h"
#include "sim/program/slices.h"

namespace tidemark {
namespace {

using Rule = Finding::Rule;

/// What is shared by the roles: the names of weight gradients, and messages on their way.
struct Exchange {
  GradientSources sources;
  std::map<std::string, std::deque<GradientValue>> in_flight;  ///< by channel
};

class GradientFollower {
 public:
  GradientFollower(const Program& program, Exchange& exchange, Findings& findings)
      : program_(program),
        exchange_(exchange),
        findings_(findings),
        cursor_(program),
        ranks_(program),
        calls_(program, exchange.sources),
        parameters_(program) {
    for (const Buffer& buffer : program.buffers) {
      first_slot_.push_back(values_.size());
      values_.resize(values_.size() + static_cast<std::size_t>(buffer.count()));
    }
    slices_ = SlicesByWhole(program, first_slot_);
    meter_ = WindowMeter(ranks_.shards, ranks_.replicas);
  }

  /// Goes on to the end, or to a message that was not sent yet. True when something was done.
  bool Advance() {
    bool moved = false;
    for (; !cursor_.at_end() && !findings_.full(); cursor_.Next()) {
      at_ = cursor_.node();
      loops_ = cursor_.loops();
      const Node& node = program_.nodes[at_];
      if (const auto* recv = std::get_if<Recv>(&node); recv != nullptr && Messages(recv->channel).empty()) {
        return moved;
      }
      std::visit([&](const auto& leaf) { On(leaf); }, node);
      moved = true;
    }
    EndWindow();
    return moved;
  }

  void ReportUnfinished() {
    if (!cursor_.at_end() && !findings_.full()) {
      Report(Rule::deadlock, "it waits for a message that the other role sends only behind one that it waits for");
    }
  }

  /// The windows, one for each time the optimizer stepped and one for what is left.
  const std::vector<WindowFactor>& windows() {
    if (!window_.empty()) {
      meter_.End(window_, false);
      window_.clear();
    }
    return meter_.windows();
  }

 private:
  std::size_t SlotOf(const BufferRef& ref) const {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    return first_slot_[ref.buffer.index] + static_cast<std::size_t>(MemberOf(buffer, ref, loops_));
  }
  GradientValue& Value(const BufferRef& ref) { return values_[SlotOf(ref)]; }

  template <class Other>
  void On(const Other&) {}
  void Forget(const BufferRef& ref) {
    Value(ref) = {};
    for (const std::size_t slice : slices_[ref.buffer.index]) {
      values_[slice] = {};
    }
  }
  void On(const Alloc& leaf) { Forget(leaf.buffer); }
  void On(const Free& leaf) { Forget(leaf.buffer); }
  void On(const Scale& leaf) { Value(leaf.buffer).Scale(leaf.factor); }
  void On(const Copy& leaf) {
    const GradientValue sum = Sum(leaf.reads);
    for (const BufferRef& ref : leaf.writes) {
      Value(ref) = parameters_.PartFor(ref.buffer, sum);
    }
  }
  std::deque<GradientValue>& Messages(ChannelId channel) {
    return exchange_.in_flight[program_.channels[channel.index].name];
  }
  void On(const Send& leaf) { Messages(leaf.channel).push_back(Value(leaf.buffer)); }
  void On(const Recv& leaf) {
    std::deque<GradientValue>& messages = Messages(leaf.channel);
    Value(leaf.buffer) = std::move(messages.front());
    messages.pop_front();
  }

  void On(const Begin& leaf) {
    phase_ = leaf.phase == Phase::chunk_backward ? Phase::backward : leaf.phase;
    if (phase_ == Phase::backward) {
      EndWindow();
      microbatch_ = Resolve(leaf.microbatch, loops_);
      window_.insert(microbatch_);
      calls_.BeginPass();
    }
    if (phase_ == Phase::backward || phase_ == Phase::loss) {
      loss_.reset();
    }
  }

  void On(const End& leaf) {
    stepped_ |= leaf.phase == Phase::optimizer;
    phase_.reset();
  }

  /// Behind a step; the chunks of a pipeline rank are updated one after the other.
  void EndWindow() {
    if (!std::exchange(stepped_, false)) {
      return;
    }
    CheckNothingIsLost();
    meter_.End(window_, true);
    window_.clear();
    calls_.EndWindow();
    made_.clear();
    arrived_.clear();
    updated_.clear();
  }

  void On(const Compute& leaf) {
    if (std::holds_alternative<OptimizerUpdate>(leaf.op)) {
      Check(leaf);
      Write(leaf.writes, {});
      return;
    }
    const std::optional<Factors> loss = LossOf(leaf);
    if (loss) {
      Differentiate(leaf, *loss * leaf.scale);
      return;
    }
    if (leaf.own_part && !Measures(program_, leaf)) {
      WriteOwnPart(leaf);
      return;
    }
    GradientValue sum = Measures(program_, leaf) ? GradientValue() : Sum(leaf.reads);
    sum.Scale(leaf.scale);
    if (leaf.writes.size() == 1) {
      parameters_.Written(sum, leaf.writes.front().buffer);
    }
    ScalesInPlace(leaf) ? WriteToEach(leaf.writes, sum) : Write(leaf.writes, sum);
  }

  /// What is added to this rank's part of a buffer is in no other part. Without reading its target it overwrites it.
  void WriteOwnPart(const Compute& leaf) {
    for (const BufferRef& target : leaf.writes) {
      if (!Reads(leaf, target)) {
        GradientValue part = Sum(leaf.reads);
        part.Scale(leaf.scale);
        Value(target).StoreOwnPart(part);
        continue;
      }
      GradientValue sum;
      for (const BufferRef& ref : leaf.reads) {
        GradientValue part = Value(ref);
        if (ref != target) {
          part.DropRest();
          part.Scale(leaf.scale);
        }
        sum.Add(part);
      }
      Value(target) = std::move(sum);
    }
  }

  void On(const Collective& leaf) {
    if (IsShift(leaf.kind)) {  // others had what this rank had, and each buffer goes to one of its own
      for (std::size_t i = 0; i < leaf.writes.size(); ++i) {
        Value(leaf.writes[i]) = Value(leaf.reads[i]);
      }
      return;
    }
    GradientValue sum = Sum(leaf.reads);
    PassThrough(sum, program_, leaf, ranks_);
    leaf.reads == leaf.writes ? WriteToEach(leaf.writes, sum) : Write(leaf.writes, sum);
  }

  /// What is done to a list of buffers in place is done to each; their gradients are different ones.
  void WriteToEach(const std::vector<BufferRef>& list, const GradientValue& sum) {
    for (const BufferRef& ref : list) {
      GradientValue kept = sum;
      kept.KeepThoseOf(Value(ref));
      Value(ref) = std::move(kept);
    }
  }

  GradientValue Sum(const std::vector<BufferRef>& reads) {
    GradientValue sum;
    for (auto ref = reads.begin(); ref != reads.end(); ++ref) {
      if (std::find(reads.begin(), ref, *ref) == ref) {
        sum.Add(Value(*ref));
      }
    }
    return sum;
  }

  void Write(const std::vector<BufferRef>& writes, const GradientValue& value) {
    for (const BufferRef& ref : writes) {
      Value(ref) = value;
    }
  }

  /// The factor of the loss's gradient that a kernel of the backward pass is given; nothing for any other kernel.
  std::optional<Factors> LossOf(const Compute& leaf) {
    for (const BufferRef& ref : leaf.reads) {
      if (const Factors* loss = Value(ref).loss()) {
        return *loss;
      }
    }
    const auto* entropy = std::get_if<CrossEntropy>(&leaf.op);
    const bool begins = (entropy != nullptr && entropy->backward) || std::holds_alternative<Tabulated>(leaf.op);
    if ((phase_ != Phase::backward && phase_ != Phase::loss) || !begins) {
      return std::nullopt;
    }
    if (!loss_ || entropy != nullptr) {
      // Blocks of a table pass no gradients on: the first one's factor is that of all. Each cross-entropy has its own.
      loss_ = Factors::Own(leaf.scale, ranks_.shards > 1, ranks_.replicas > 1);
      return Factors::Own(Rational(1), ranks_.shards > 1, ranks_.replicas > 1);
    }
    return loss_;
  }

  /// A kernel of the backward pass: gradients of weights, and the loss's gradient handed on.
  void Differentiate(const Compute& leaf, const Factors& factors) {
    for (std::size_t i = 0; i < leaf.writes.size(); ++i) {
      const BufferRef& ref = leaf.writes[i];
      const Category category = program_.buffers[ref.buffer.index].category;
      if (category != Category::gradient && category != Category::accumulator && category != Category::bucket) {
        Value(ref) = GradientValue::Of(GradientValue::kLoss, microbatch_, factors);
        continue;
      }
      const std::int64_t source = calls_.Next(at_, i, microbatch_);
      made_.insert({source, microbatch_});
      Factors own = factors;
      own.of_own_part |= leaf.own_heads;
      GradientValue value = GradientValue::Of(source, microbatch_, own);
      parameters_.Written(value, ref.buffer);
      if (Reads(leaf, ref)) {
        value.Add(Value(ref));
      }
      Value(ref) = std::move(value);
    }
  }

  void Check(const Compute& leaf) {
    const GradientValue sum = Sum(leaf.reads);
    std::int64_t read_elements = 0;
    for (const BufferRef& ref : leaf.reads) {
      read_elements += Value(ref).empty() ? 0 : program_.buffers[ref.buffer.index].elements;
    }
    const bool whole = !leaf.own_part && std::get<OptimizerUpdate>(leaf.op).elements >= read_elements;
    CheckOnce(leaf, sum);
    for (const GradientValue::Term& term : sum.terms()) {
      bool arrives = false;
      for (std::int64_t microbatch = term.first; microbatch <= term.last; ++microbatch) {
        if (window_.contains(microbatch)) {
          arrived_.insert({term.source, microbatch});
          arrives = true;
        } else if (findings_.IsNew(Here(Rule::stale_gradient))) {
          Report(Rule::stale_gradient, fmt::format("it contains {} of microbatch {}, which an earlier window was for",
                                                   NameOf(term), microbatch));
        }
      }
      if (arrives) {
        CheckFactor(term, term.parts.own);
        if (whole) {
          CheckFactor(term, term.parts.rest);
        }
      }
    }
    for (auto first = sum.terms().begin(); first != sum.terms().end();) {
      const auto other = [&](const GradientValue::Term& term) { return term.source != first->source; };
      const auto end = std::find_if(first, sum.terms().end(), other);
      meter_.Read({first, end}, window_, whole);
      first = end;
    }
  }

  /// One window's gradient moves a weight once. Systems that cut an update into parts keep the parts in buffers of
  /// their own, so no two updates with one source's gradient write the same buffer.
  void CheckOnce(const Compute& leaf, const GradientValue& sum) {
    for (const BufferRef& ref : leaf.writes) {
      const GradientValue::Term* before = nullptr;
      for (const GradientValue::Term& term : sum.terms()) {
        const bool is_new_source = before == nullptr || before->source != term.source;
        before = &term;
        if (is_new_source && !updated_.insert({SlotOf(ref), term.source}).second &&
            findings_.IsNew(Here(Rule::wrong_factor))) {
          Report(Rule::wrong_factor, fmt::format("{} arrives again: {} was updated with it already in this window",
                                                 NameOf(term), program_.buffers[ref.buffer.index].name));
        }
      }
    }
  }

  void CheckFactor(const GradientValue::Term& term, const Factors& factors) {
    const Rational right(1, static_cast<std::int64_t>(window_.size()) * ranks_.shards * ranks_.replicas);
    if (!factors.AreAll(right) && findings_.IsNew(Here(Rule::wrong_factor))) {
      Report(Rule::wrong_factor,
             fmt::format("{} of {} arrives {}, not {}", NameOf(term), term.Microbatches(), Text(factors), Text(right)));
    }
  }

  void CheckNothingIsLost() {
    meter_.Miss(made_, arrived_);
    for (const auto& [source, microbatch] : made_) {
      if (!arrived_.contains({source, microbatch})) {
        Report(Rule::lost_gradient, fmt::format("{} of microbatch {} has not reached the optimizer",
                                                exchange_.sources.Name(source), microbatch));
        meter_.Lose();
        return;
      }
    }
  }

  const std::string& NameOf(const GradientValue::Term& term) const { return exchange_.sources.Name(term.source); }

  Findings::Key Here(Rule rule) const { return {rule, program_.role_index, at_, 0}; }
  void Report(Rule rule, const std::string& message) {
    findings_.Add(Here(rule), fmt::format("{}: {}", DescribeNode(program_, at_, loops_), message));
  }

  const Program& program_;
  Exchange& exchange_;
  Findings& findings_;
  LeafCursor cursor_;
  const DataRanks ranks_;
  WindowMeter meter_{1, 1};
  std::vector<std::size_t> first_slot_;           ///< by family
  std::vector<std::vector<std::size_t>> slices_;  ///< by family: their slots
  std::vector<GradientValue> values_;             ///< by slot
  std::size_t at_ = 0;
  std::span<const std::int64_t> loops_;
  std::optional<Phase> phase_;
  bool stepped_ = false;  ///< the optimizer has run since the last backward pass
  std::int64_t microbatch_ = 0;
  std::optional<Factors> loss_;  ///< with which this backward pass began
  KernelCalls calls_;
  ParameterSources parameters_;
  std::set<std::int64_t> window_;                                   ///< microbatches since the last update
  std::set<std::pair<std::int64_t, std::int64_t>> made_, arrived_;  ///< (source, microbatch) of this window
  std::set<std::pair<std::size_t, std::int64_t>> updated_;          ///< (slot, source) in it
};

}  // namespace

std::vector<WindowFactor> CheckGradients(const StepProgram& step, Findings& findings) {
  Exchange exchange;
  std::deque<GradientFollower> followers;
  // From the last stage to the first, as gradients flow.
  for (auto program = step.roles.rbegin(); program != step.roles.rend(); ++program) {
    followers.emplace_back(*program, exchange, findings);
  }
  for (bool moved = true; moved && !findings.full();) {
    moved = false;
    for (GradientFollower& follower : followers) {
      moved |= follower.Advance();
    }
  }
  // The windows are those of the last stage, with the worst factor of all stages.
  std::vector<WindowFactor> windows;
  for (GradientFollower& follower : followers) {
    follower.ReportUnfinished();
    JoinWindows(windows, follower.windows());
  }
  return windows;
}

}  // namespace tidemark
