// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/forward_gathers.h"

#include <string>
#include <variant>

#include "sim/strategies/parameter_order.h"
#include "sim/strategies/updated_parameters.h"

namespace tidemark {

ForwardGathers::ForwardGathers(Role& role, StreamId stream, GroupId group, const GradientBuffer& buffer,
                               const ParameterTable& weights)
    : role_(role),
      stream_(stream),
      group_(group),
      buffer_(buffer),
      weights_(weights),
      together_(role.job.layout.vpp > 1) {
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
  std::map<std::pair<std::int64_t, std::uint32_t>, std::size_t> bucket_of;
  for (std::size_t number = 0; number < buckets; ++number) {
    for (const ParameterAt& member : Bucket(number).members) {
      bucket_of[{member.position, member.parameter}] = number;
    }
  }
  std::vector<bool> left(buckets, together_), awaited(buckets, false);
  for (std::int64_t position = 0; position < role_.stage.blocks; ++position) {
    const std::vector<Action>& forward = role_.stage.BlockAt(position).forward;
    for (std::size_t action = 0; action < forward.size(); ++action) {
      const auto* kernel = std::get_if<Calculate>(&forward[action]);
      for (std::size_t i = 0; kernel != nullptr && i < kernel->parameters.size(); ++i) {
        const auto of = bucket_of.find({position, kernel->parameters[i].index});
        if (of == bucket_of.end() || awaited[of->second]) {
          continue;
        }
        const std::size_t number = of->second;
        Turn turn{number, !left[number], {}};
        awaited[number] = left[number] = true;
        if (!together_ && number + 1 < buckets && !left[number + 1]) {
          turn.released = number + 1;
          left[number + 1] = true;
        }
        turns_[{position, action}].push_back(turn);
      }
    }
  }
}

std::vector<std::int64_t> ForwardGathers::Describe(std::int64_t position) const {
  std::vector<std::int64_t> all;
  const auto add = [&](std::size_t number) {
    all.push_back(Bucket(number).elements);
    AppendMembers(role_, Bucket(number).members, position, all);
  };
  const auto end = turns_.lower_bound({position + 1, 0});
  for (auto at = turns_.lower_bound({position, 0}); at != end; ++at) {
    for (const Turn& turn : at->second) {
      constexpr std::int64_t kNextTurn = INT64_MIN;
      all.insert(all.end(), {kNextTurn, static_cast<std::int64_t>(at->first.second), turn.starts ? 1 : 0,
                             together_ ? static_cast<std::int64_t>(turn.awaited) : 0});
      add(turn.awaited);
      if (turn.released) {
        add(*turn.released);
      }
    }
  }
  return all;
}

void ForwardGathers::LeaveTogether() {
  for (std::size_t number = 0; together_ && number < buffer_.buckets().size(); ++number) {
    Start(number);
    role_.builder.Emit(Record{Gathered(number), stream_});
  }
}

void ForwardGathers::BeforeAction(std::int64_t position, std::size_t action) {
  const auto turns = turns_.find({position, action});
  if (turns == turns_.end()) {
    return;
  }
  for (const Turn& turn : turns->second) {
    if (turn.starts) {
      Start(turn.awaited);
    }
    if (together_) {
      role_.builder.Emit(Wait{Gathered(turn.awaited), role_.compute});
    } else {
      role_.builder.Order(role_.compute, stream_, "parameters gathered");
    }
    if (turn.released) {
      Start(*turn.released);
    }
  }
}

void ForwardGathers::Start(std::size_t number) {
  std::vector<BufferRef> weights;
  for (const ParameterAt& member : Bucket(number).members) {
    weights.push_back(weights_(role_, member));
  }
  role_.builder.Order(stream_, role_.compute, "updated");
  GatherUpdated(role_, stream_, group_, Bucket(number).elements, weights, weights);
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
