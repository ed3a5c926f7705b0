// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/gradient_ways.h"

#include "sim/strategies/ddp/launch_bucket.h"
#include "sim/strategies/updated_parameters.h"

namespace tidemark {

GradientWays::GradientWays(Role& role) : role_(role) {
  const Layout& layout = role.job.layout;
  const auto add = [&](const char* name, std::int64_t ranks, std::int64_t stride) {
    ways_.push_back({role.builder.AddStream(name, StreamKind::collective), role.AddGroup(name, ranks, stride), ranks});
  };
  add("dp", layout.GradientRanks(), layout.tp);
  if (layout.ep > 1) {
    add("edp", layout.ExpertGradientRanks(), layout.ExpertRanks());
  }
}

void GradientWays::Reduce(const GradientBucket& bucket, const std::vector<BufferRef>& gradients) {
  const Way& way = Of(bucket);
  if (way.ranks == 1) {
    return;
  }
  const Axes& axes = role_.job.axes;
  const bool scatters = axes.shard.optimizer;
  StartBucket(role_, way.stream, way.group,
              {scatters ? "scatter bucket" : "reduce bucket",
               scatters ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
               axes.sync.average_in_collective ? Reduction::avg : Reduction::sum, axes.precision.accumulate},
              bucket.elements, gradients);
}

void GradientWays::Gather(const GradientBucket& bucket, const std::vector<BufferRef>& weights) {
  const Way& way = Of(bucket);
  if (way.ranks > 1) {
    GatherUpdated(role_, way.stream, way.group, bucket.elements, weights, weights);
  }
}

void GradientWays::BeginGathers() {
  for (const Way& way : ways_) {
    if (way.ranks > 1) {
      role_.builder.Order(way.stream, role_.compute, "updated");
    }
  }
}

void GradientWays::AwaitAll(const char* event) {
  for (const Way& way : ways_) {
    Await(way, event);
  }
}

void GradientWays::Await(const Way& way, const char* event) {
  if (way.ranks > 1) {
    role_.builder.Order(role_.compute, way.stream, event);
  }
}

}  // namespace tidemark
