// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_fetcher.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "sim/lower/window_steps.h"

namespace tidemark {

Zero3Fetcher::Zero3Fetcher(Role& role, GroupId group)
    : role_(role),
      ranks_(role.job.layout.GradientRanks()),
      overlaps_(role.job.axes.sync.overlap),
      trace_(TraceModules(role.stage, role.job.axes.shard.persistence_threshold)),
      stream_(role.builder.AddStream("all_gather", StreamKind::collective)),
      group_(group) {
  // A group of one gathers nothing: parameters are views of their partitions.
  if (ranks_ > 1) {
    const Shard& shard = role.job.axes.shard;
    const std::vector<bool> nothing(trace_.parameters.size());
    plans_[0] = PlanFetches(trace_, shard, false, nothing);
    plans_[1] = PlanFetches(trace_, shard, true, plans_[0].available);
    plans_[2] = PlanFetches(trace_, shard, true, plans_[1].available);
    for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
      flat_buffers_[plan].resize(plans_[plan].sets.size());
    }
  }
  Declare();
}

/// A parameter that stays gathered from the first update on does so when the step ends, unless the first step ends
/// without one: then as the last microbatch leaves it.
bool Zero3Fetcher::EndsGathered(std::int64_t member) const {
  const bool updates = !HoldsThroughout(role_.job, [](const WindowPlace& place) { return !place.last; });
  const auto last = static_cast<std::size_t>(std::min<std::int64_t>(role_.job.Microbatches(), 3) - 1);
  return updates || role_.step != StepKind::first || plans_[last].available[static_cast<std::size_t>(member)];
}

void Zero3Fetcher::Declare() {
  const DType dtype = role_.job.axes.precision.params;
  std::vector<std::int64_t> elements;
  const std::int64_t threshold = role_.job.axes.shard.persistence_threshold;
  for (std::size_t number = 0; number < role_.stage.runs.size(); ++number) {
    const StageRun& run = role_.stage.runs[number];
    std::int64_t member = trace_.first_number[static_cast<std::size_t>(role_.stage.first[number])];
    elements.push_back(0);
    weights_.emplace_back();
    for (const Parameter& parameter : run.block().parameters) {
      const std::int64_t part = parameter.tied ? 0 : CeilDiv(parameter.elements, ranks_);
      const bool persists = ranks_ > 1 && parameter.elements <= threshold;
      elements.back() += part;
      weights_.back().push_back(
          part == 0
              ? BufferId{}
              : role_.builder.AddBuffer({"gathered " + run.block().name + "." + parameter.name,
                                         Category::parameter,
                                         dtype,
                                         part * ranks_,
                                         {run.count, 1},
                                         stream_,
                                         Place::device,
                                         persists && role_.step != StepKind::first,
                                         persists && EndsGathered(member),
                                         {},
                                         {{.of = {{run.block().name + "." + parameter.name}}, .multiple = ranks_}}}));
      ++member;
    }
  }
  std::vector<Holding> holds = PartitionsOf(role_, false);
  std::for_each(holds.begin(), holds.end(), [](Holding& holding) { holding.frozen = true; });
  partitions_ = role_.PerBlock("partitions of", Category::parameter, dtype, role_.compute, elements, true, true, holds);
}

std::vector<Holding> PartitionsOf(const Role& role, bool masters) {
  std::vector<Holding> holds;
  for (const StageRun& run : role.stage.runs) {
    holds.push_back({.cut = Cut::elements,
                     .ranks = role.job.layout.GradientRanks(),
                     .masters = masters,
                     .of = {{run.block().name}}});
  }
  return holds;
}

BufferRef Zero3Fetcher::Weight(const ParameterAt& at) const {
  if (ranks_ == 1) {
    return Partition(at.position);
  }
  return {weights_[role_.stage.RunOf(at.position)][at.parameter], {role_.At(at.position), Index{}}};
}

std::int64_t Zero3Fetcher::NextPlan() const {
  return role_.step == StepKind::first ? std::min(microbatches_, kPlans - 1) : kPlans - 1;
}

void Zero3Fetcher::BeginMicrobatch() {
  plan_ = NextPlan();
  microbatches_ = std::min(microbatches_ + 1, kPlans);
}

void Zero3Fetcher::BeforeAction(std::int64_t position, std::size_t action) {
  for (const std::size_t number : trace_.at[static_cast<std::size_t>(position)]) {
    if (ranks_ == 1 || trace_.uses[number].first != action) {
      continue;
    }
    const FetchStep& step = plan().steps[number];
    if (step.gather) {
      Gather(*step.gather);
    }
    std::for_each(step.landings.begin(), step.landings.end(), [&](std::size_t set) { Land(set); });
    for (const std::size_t set : step.given_back) {
      role_.Free(Flat(set));
    }
    role_.builder.Order(role_.compute, stream_, "parameters gathered");
    if (step.prefetch) {
      Gather(*step.prefetch);
    }
  }
}

void Zero3Fetcher::AfterAction(std::int64_t position, std::size_t action) {
  for (const std::size_t number : trace_.at[static_cast<std::size_t>(position)]) {
    if (ranks_ > 1 && trace_.uses[number].last == action) {
      FreeAll(plan().steps[number].released);
    }
  }
}

void Zero3Fetcher::EndBackward() {
  if (ranks_ > 1) {
    FreeAll(plan().released_late);
  }
}

void Zero3Fetcher::FreeAll(const std::vector<std::int64_t>& members) {
  if (members.empty()) {
    return;
  }
  role_.builder.Order(stream_, role_.compute, "parameters used");
  for (const std::int64_t member : members) {
    role_.Free(Weight(At(member)));
  }
}

std::int64_t Zero3Fetcher::Padded(std::int64_t member) const {
  return RoundUp(trace_.parameters[static_cast<std::size_t>(member)].elements, ranks_);
}

/// Rank by rank its parts of all members. Blocks are counted from that of the first member.
Holding Zero3Fetcher::HoldsAll(const GatherSet& set) const {
  Holding holding{.cut = Cut::elements, .ranks = ranks_, .parts = Parts::all, .of = {}};
  const std::int64_t base = role_.InRun(At(set.members.front()).position);
  for (const std::int64_t member : set.members) {
    const ParameterAt& at = At(member);
    const Block& block = role_.stage.BlockAt(at.position);
    holding.of.push_back({block.name + "." + block.parameters[at.parameter].name, role_.InRun(at.position) - base});
  }
  return holding;
}

BufferId Zero3Fetcher::FlatBufferOf(const GatherSet& set) {
  std::int64_t elements = 0;
  for (const std::int64_t member : set.members) {
    elements += Padded(member);
  }
  const ParameterAt& first = At(set.members.front());
  const std::size_t run = role_.stage.RunOf(first.position);
  Holding holds = HoldsAll(set);
  std::vector<FlatBuffer>& alike = flats_[{run, first.parameter, elements}];
  for (const FlatBuffer& one : alike) {
    if (one.copy == set.copy && one.holds == holds) {
      return one.buffer;
    }
  }
  const StageRun& of = role_.stage.runs[run];
  const std::string name = "flat gather of " + std::to_string(elements) + " from " + of.block().name + "." +
                           of.block().parameters[first.parameter].name;
  const BufferId buffer =
      role_.builder.AddBuffer({alike.empty() ? name : name + ", copy " + std::to_string(alike.size() + 1),
                               Category::bucket,
                               role_.job.axes.precision.params,
                               elements,
                               {of.count, 1},
                               stream_,
                               Place::device,
                               false,
                               false,
                               {},
                               {holds}});
  alike.push_back({set.copy, std::move(holds), buffer});
  return buffer;
}

BufferRef Zero3Fetcher::Flat(std::size_t set) {
  const GatherSet& gathered = plan().sets[set];
  BufferId& buffer = flat_buffers_[static_cast<std::size_t>(plan_)][set];
  if (!buffer.valid()) {
    buffer = FlatBufferOf(gathered);
  }
  return {buffer, {role_.At(At(gathered.members.front()).position), Index{}}};
}

void Zero3Fetcher::Gather(std::size_t set) {
  if (!overlaps_) {
    role_.builder.Order(stream_, role_.compute, "parameters wanted");
  }
  const std::vector<std::int64_t>& members = plan().sets[set].members;
  std::vector<BufferRef> parts;
  std::int64_t elements = 0;
  for (const std::int64_t member : members) {
    elements += Padded(member);
    const BufferRef part = Partition(At(member).position);
    if (parts.empty() || !(parts.back() == part)) {
      parts.push_back(part);
    }
  }
  const BufferRef to = members.size() == 1 ? Weight(At(members.front())) : Flat(set);
  role_.Alloc(to);
  if (members.size() == 1) {
    EmitGather(elements, parts, to);
  } else {
    const std::int64_t own = elements / ranks_;
    role_.MemoryKernel("pack partitions", stream_, Work::compute, std::move(parts), {to}, own,
                       SizeOf(role_.job.axes.precision.params) * 2 * own);
    EmitGather(elements, {to}, to);
  }
  if (!overlaps_) {
    role_.builder.Order(role_.compute, stream_, "parameters gathered");
  }
}

void Zero3Fetcher::EmitGather(std::int64_t elements, const std::vector<BufferRef>& from, const BufferRef& to) {
  role_.builder.Emit(Collective{role_.builder.Named("gather parameters"),
                                CollectiveKind::all_gather,
                                Reduction::none,
                                Rational(1),
                                group_,
                                role_.job.axes.precision.params,
                                elements,
                                stream_,
                                from,
                                {to}});
}

void Zero3Fetcher::Land(std::size_t set) {
  for (const std::int64_t member : plan().sets[set].members) {
    const BufferRef weight = Weight(At(member));
    role_.Alloc(weight);
    role_.CopyKernel("join gathered parameter", stream_, Flat(set), weight);
  }
}

template <class Visit>
void Zero3Fetcher::EachPersistent(Visit visit) {
  role_.EachBlock([&](std::int64_t position) {
    const auto first = static_cast<std::size_t>(trace_.first_number[static_cast<std::size_t>(position)]);
    for (std::size_t i = 0; i < role_.stage.BlockAt(position).parameters.size(); ++i) {
      if (trace_.parameters[first + i].persistent) {
        visit(static_cast<std::int64_t>(first + i));
      }
    }
  });
}

void Zero3Fetcher::ReleasePersistent() {
  if (ranks_ == 1) {
    return;
  }
  role_.builder.Order(stream_, role_.compute, "parameters used");
  const std::vector<bool>& available = plan().available;
  EachPersistent([&](std::int64_t member) {
    if (available[static_cast<std::size_t>(member)]) {
      role_.Free(Weight(At(member)));
    }
  });
}

void Zero3Fetcher::FollowUpdate() {
  if (ranks_ > 1) {
    role_.builder.Order(stream_, role_.compute, "updated");
  }
}

/// One gather each, then the host waits for the device (_post_step, _allgather_params_coalesced).
void Zero3Fetcher::GatherPersistent() {
  if (ranks_ == 1 || std::none_of(trace_.parameters.begin(), trace_.parameters.end(),
                                  [](const ModuleTrace::Traced& traced) { return traced.persistent; })) {
    return;
  }
  role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
  EachPersistent([&](std::int64_t member) {
    role_.Alloc(Weight(At(member)));
    EmitGather(Padded(member), {Partition(At(member).position)}, Weight(At(member)));
  });
  role_.builder.Emit(HostSync{});
  role_.builder.Emit(End{Phase::gather});
}

void Zero3Fetcher::Describe(std::int64_t plan, std::int64_t position, bool backward,
                            std::vector<std::int64_t>& description) const {
  const auto add = [&](const std::vector<std::int64_t>& members) {
    description.push_back(std::ssize(members));
    for (const std::int64_t member : members) {
      description.push_back(role_.KeyOf(At(member).position, position));
      description.push_back(At(member).parameter);
    }
  };
  const FetchPlan& described = plans_[static_cast<std::size_t>(plan)];
  const auto add_set = [&](std::size_t set) {
    add(described.sets[set].members);
    description.push_back(described.sets[set].copy);
  };
  for (const std::size_t number : trace_.at[static_cast<std::size_t>(position)]) {
    if (ranks_ == 1 || (number >= trace_.forward_uses) != backward) {
      continue;
    }
    const FetchStep& step = described.steps[number];
    for (const std::optional<std::size_t>& set : {step.gather, step.prefetch}) {
      description.push_back(set ? 1 : 0);
      if (set) {
        add_set(*set);
      }
    }
    for (const std::vector<std::size_t>* sets : {&step.landings, &step.given_back}) {
      description.push_back(std::ssize(*sets));
      std::for_each(sets->begin(), sets->end(), add_set);
    }
    add(step.released);
  }
}

}  // namespace tidemark
