// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/jax/inline_reduction.h"

#include "sim/strategies/parameter_order.h"
#include "sim/strategies/parameter_table.h"
#include "sim/strategies/xla/combined_buckets.h"

namespace tidemark {

InlineReduction::InlineReduction(Role& role)
    : role_(role),
      ranks_(role.job.layout.GradientRanks()),
      stream_(role.builder.AddStream("dp", StreamKind::collective)),
      group_(role.AddGroup("dp", ranks_, role.job.layout.tp)),
      buckets_(BucketsOfCombiner(role)) {}

void InlineReduction::Arrive(const ParameterAt& at, const RefAt& ref) {
  for (const BucketMembers& bucket : buckets_->Arrive(at)) {
    Launch(bucket, ref);
  }
}

void InlineReduction::Finish(const RefAt& ref) {
  for (const BucketMembers& bucket : buckets_->Finish()) {
    Launch(bucket, ref);
  }
  if (ranks_ > 1) {
    role_.builder.Order(role_.compute, stream_, "reduced");
  }
}

void InlineReduction::All(const RefAt& ref) {
  for (const ParameterAt& at : ArrivalOrder(role_)) {
    Arrive(at, ref);
  }
  Finish(ref);
}

std::vector<std::int64_t> InlineReduction::Key(std::int64_t position) const {
  return in_forward_ ? std::vector<std::int64_t>() : buckets_->Key(position);
}

void InlineReduction::Launch(const BucketMembers& bucket, const RefAt& ref) {
  std::int64_t elements = 0;
  std::vector<BufferRef> reduced;
  for (const ParameterAt& member : bucket) {
    elements += ParameterOf(role_, member).elements;
    reduced.push_back(ref(member));
  }
  if (elements == 0 || ranks_ == 1) {
    return;
  }
  role_.builder.Order(stream_, role_.compute, "gradients ready");
  role_.builder.Emit(Collective{role_.builder.Named("reduce gradients"), CollectiveKind::all_reduce, Reduction::sum,
                                Rational(1), group_, role_.job.axes.precision.gradients, elements, stream_, reduced,
                                reduced});
}

}  // namespace tidemark
