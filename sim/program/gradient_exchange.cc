// SPDX-License-Identifier: Apache-2.0
#include "sim/program/gradient_exchange.h"

#include <string_view>

namespace tidemark {
namespace {

using Axis = GradientValue::Axis;

bool IsOfExperts(std::string_view group) { return group == "ep" || group == "ep x etp"; }

void ReduceAlong(GradientValue& value, Axis axis, std::int64_t ranks, Rational scale, bool in_place) {
  if (ranks > 1) {
    value.Reduce(axis, ranks, scale, in_place);
  } else {
    value.Scale(scale);
  }
}

/// Over both axes at once: what stays behind is this rank's own, whichever axis the others are on.
void ReduceAlongBoth(GradientValue& value, const DataRanks& ranks, Rational scale, bool in_place) {
  GradientValue reduced = value;
  ReduceAlong(reduced, Axis::shards, ranks.shards, scale, false);
  ReduceAlong(reduced, Axis::replicas, ranks.replicas, Rational(1), false);
  if (in_place) {
    value.StoreOwnPart(reduced);
  } else {
    value = reduced;
  }
}

/// Of the loss's gradient. Where experts are in parts, their rows are gathered and scattered over those that have them.
void ExchangeTokens(GradientValue& value, const Collective& collective, const DataRanks& ranks) {
  const Factors* loss = value.loss();
  if (loss == nullptr || (ranks.replicas == 1 && ranks.expert_parts > 1)) {
    return;
  }
  Factors factors = *loss;
  const bool is_own = ranks.replicas > 1 ? factors.of[0][1] != factors.of[0][0] : factors.of_own_part;
  const bool to_experts =
      collective.kind == CollectiveKind::all_gather || (collective.kind == CollectiveKind::all_to_all && is_own);
  for (auto& along_replicas : factors.of) {
    if (ranks.replicas > 1) {
      along_replicas[1] = to_experts ? along_replicas[0] : Rational(0);
    }
  }
  factors.of_own_part = !to_experts && ranks.row_parts > 1;
  const std::int64_t microbatch = value.terms().front().first;
  value = GradientValue::Of(GradientValue::kLoss, microbatch, factors);
}

}  // namespace

DataRanks::DataRanks(const Program& program) {
  std::int64_t with_same_experts = 0;
  for (const Group& group : program.groups) {
    shards = group.name == "dp" ? group.size : shards;
    replicas = group.name == "replicas" ? group.size : replicas;
    row_parts = group.name == "tp" ? group.size : row_parts;
    expert_parts = group.name == "etp" ? group.size : expert_parts;
    with_same_experts = group.name == "edp" ? group.size : with_same_experts;
  }
  if (with_same_experts > 0) {
    divides_experts = true;
    replicas = shards / with_same_experts;
    shards = with_same_experts;
  }
}

void PassThrough(GradientValue& value, const Program& program, const Collective& collective, const DataRanks& ranks) {
  const Group& group = program.groups[collective.group.index];
  const bool reduces = collective.reduction == Reduction::sum || collective.reduction == Reduction::avg;
  const bool in_place = collective.kind == CollectiveKind::reduce_scatter && collective.reads == collective.writes;
  const Rational mean = collective.reduction == Reduction::avg ? Rational(1, group.size) : Rational(1);
  const Rational scale = collective.scale * mean;
  if (reduces && group.name == "dp" && ranks.divides_experts) {
    ReduceAlongBoth(value, ranks, scale, in_place);
  } else if (reduces && (group.name == "dp" || group.name == "edp")) {
    ReduceAlong(value, Axis::shards, group.size, scale, in_place);
  } else if (reduces && group.name == "replicas") {
    ReduceAlong(value, Axis::replicas, group.size, scale, in_place);
  } else if (group.name == "tp" || group.name == "etp") {
    value.OverRows(collective, group.size);
  } else if (IsOfExperts(group.name)) {
    ExchangeTokens(value, collective, ranks);
  }
}

}  // namespace tidemark
