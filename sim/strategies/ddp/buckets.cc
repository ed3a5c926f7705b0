// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "sim/strategies/parameter_order.h"

namespace tidemark {

namespace {

/// All buckets of a backward pass that synchronises.
std::vector<BucketMembers> BucketsOf(const Role& role, BucketLayout& layout) {
  std::vector<BucketMembers> buckets;
  const auto add = [&](const std::vector<BucketMembers>& launched) {
    std::ranges::copy_if(launched, std::back_inserter(buckets), [](const BucketMembers& of) { return !of.empty(); });
  };
  for (const ParameterAt& at : ArrivalOrder(role)) {
    add(layout.Arrive(at));
  }
  add(layout.Finish());
  return buckets;
}

}  // namespace

void Buckets::Declare(Role& role, const std::string& prefix, DType dtype, BucketLayout& layout, bool resident,
                      bool kept) {
  std::map<std::pair<std::int64_t, std::uint32_t>, BufferSlice> slices;
  for (const BucketMembers& members : BucketsOf(role, layout)) {
    Buffer bucket{.name = fmt::format("{}bucket {}", prefix, buckets_.size()),
                  .category = Category::bucket,
                  .dtype = dtype,
                  .stream = role.compute,
                  .resident = resident,
                  .kept = kept};
    std::vector<std::int64_t> first;
    for (const ParameterAt& member : members) {
      first.push_back(std::exchange(bucket.elements, bucket.elements + ParameterOf(role, member).elements));
    }
    buckets_.push_back(role.builder.AddBuffer(std::move(bucket)));
    for (std::size_t i = 0; i < members.size(); ++i) {
      slices[{members[i].position, members[i].parameter}] = {buckets_.back(), first[i]};
    }
  }
  slots_.DeclareSlices(role, prefix + "bucket slot of", Category::bucket, dtype, [&](const ParameterAt& at) {
    return slices.at({at.position, at.parameter});
  });
}

void Buckets::Alloc(Role& role) const {
  for (const BufferId bucket : buckets_) {
    role.Alloc({bucket, {}});
  }
}

void Buckets::Free(Role& role) const {
  for (const BufferId bucket : buckets_) {
    role.Free({bucket, {}});
  }
}

}  // namespace tidemark
