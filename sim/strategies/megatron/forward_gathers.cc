// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/forward_gathers.h"

#include <string>
#include <variant>

#include "sim/strategies/parameter_order.h"

namespace tidemark {

ForwardGathers::ForwardGathers(Role& role, GradientWays& ways, const GradientBuffer& buffer,
                               const ParameterTable& weights)
    : role_(role), ways_(ways), buffer_(buffer), weights_(weights), together_(role.job.layout.vpp > 1) {
  Plan();
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    std::vector<std::vector<std::int64_t>> described;
    for (std::int64_t walked = 0; walked < role.stage.runs[run].count; ++walked) {
      described.push_back(Describe(role.stage.first[run] + walked));
    }
    alike_.emplace_back(described);
  }
}

/// Walks the forward pass once.
void ForwardGathers::Plan() {
  const std::size_t buckets = buffer_.buckets().size();
  std::vector<bool> left(buckets, together_), awaited(buckets, false);
  const auto need = [&](const ParameterAt& at, std::size_t action) {
    const std::size_t number = buckets - 1 - buffer_.BucketOf(at);
    if (awaited[number] || ways_.Of(Bucket(number)).ranks == 1) {
      return;
    }
    Need needed{number, !left[number], {}};
    awaited[number] = left[number] = true;
    if (number + 1 < buckets && !left[number + 1] && Bucket(number + 1).of_experts == Bucket(number).of_experts) {
      needed.released = number + 1;
      left[number + 1] = true;
    }
    needs_[{at.position, action}].push_back(needed);
  };
  for (std::int64_t position = 0; position < role_.stage.blocks; ++position) {
    const Block& block = role_.stage.BlockAt(position);
    for (std::size_t action = 0; action < block.forward.size(); ++action) {
      const auto* kernel = std::get_if<Calculate>(&block.forward[action]);
      for (std::size_t i = 0; kernel != nullptr && i < kernel->parameters.size(); ++i) {
        const ParameterId parameter = kernel->parameters[i];
        if (IsTrained(block.parameters[parameter.index])) {
          need({position, parameter.index}, action);
        }
      }
    }
    TIDEMARK_CHECK(!block.forward.empty());
    ForEachTrained(role_, position, [&](const ParameterAt& at) { need(at, block.forward.size() - 1); });
  }
}

std::vector<std::int64_t> ForwardGathers::Describe(std::int64_t position) const {
  std::vector<std::int64_t> all;
  const auto add = [&](std::size_t number) {
    all.push_back(Bucket(number).elements);
    AppendMembers(role_, Bucket(number).members, position, all);
  };
  const auto end = needs_.lower_bound({position + 1, 0});
  for (auto at = needs_.lower_bound({position, 0}); at != end; ++at) {
    for (const Need& need : at->second) {
      constexpr std::int64_t kNextNeed = INT64_MIN;
      all.insert(all.end(), {kNextNeed, static_cast<std::int64_t>(at->first.second), need.starts ? 1 : 0,
                             together_ ? static_cast<std::int64_t>(need.awaited) : 0});
      add(need.awaited);
      if (need.released) {
        add(*need.released);
      }
    }
  }
  return all;
}

void ForwardGathers::LeaveTogether() {
  if (!together_) {
    return;
  }
  role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
  for (std::size_t number = 0; number < buffer_.buckets().size(); ++number) {
    if (ways_.Of(Bucket(number)).ranks == 1) {
      continue;
    }
    Start(number);
    role_.builder.Emit(Record{Gathered(number), ways_.Of(Bucket(number)).stream});
  }
  role_.builder.Emit(End{Phase::gather});
}

void ForwardGathers::BeforeAction(std::int64_t position, std::size_t action) {
  const auto needs = needs_.find({position, action});
  if (needs == needs_.end()) {
    return;
  }
  for (const Need& need : needs->second) {
    if (need.starts) {
      Start(need.awaited);
    }
    if (together_) {
      role_.builder.Emit(Wait{Gathered(need.awaited), role_.compute});
    } else {
      ways_.Await(Bucket(need.awaited), "parameters gathered");
    }
    if (need.released) {
      Start(*need.released);
    }
  }
}

void ForwardGathers::Start(std::size_t number) {
  role_.builder.Order(ways_.Of(Bucket(number)).stream, role_.compute, "updated");
  ways_.Gather(Bucket(number), MembersIn(weights_, role_, Bucket(number)));
}

/// Several are under way at once, of several chunks.
EventId ForwardGathers::Gathered(std::size_t number) {
  return role_.builder.Event("parameters " + std::to_string(number) + " of stage " + std::to_string(role_.stage.index) +
                             " gathered");
}

std::vector<std::int64_t> ForwardGathers::Key(std::int64_t position) const {
  return alike_[role_.stage.RunOf(position)].Key(role_.InRun(position));
}

std::int64_t ForwardGathers::BlocksAlike(std::int64_t position) const {
  return alike_[role_.stage.RunOf(position)].Left(role_.InRun(position));
}

}  // namespace tidemark
