// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/gradient_buffer.h"

#include <algorithm>
#include <numeric>

#include "sim/strategies/parameter_order.h"

namespace tidemark {
namespace {

constexpr std::int64_t kParameterAlignment = 64, kBucketAlignment = 128;

/// Elements with which a bucket is closed.
std::int64_t LimitOf(const Role& role) {
  constexpr std::int64_t kLeast = 40'000'000, kPerRank = 1'000'000;
  const Sync& sync = role.job.axes.sync;
  if (!sync.overlap || !role.stage.is_first()) {
    return INT64_MAX;
  }
  return sync.bucket_elements > 0 ? sync.bucket_elements : std::max(kLeast, kPerRank * role.job.layout.GradientRanks());
}

}  // namespace

std::vector<BufferRef> MembersIn(const ParameterTable& table, const Role& role, const GradientBucket& bucket) {
  std::vector<BufferRef> buffers;
  for (const ParameterAt& member : bucket.members) {
    buffers.push_back(table(role, member));
  }
  return buffers;
}

GradientBuffer::GradientBuffer(const Role& role) : role_(role), divided_(role.job.axes.shard.optimizer) {
  Cut(false);
  Cut(true);
  FindCompletions();
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    const std::int64_t count = role.stage.runs[run].count;
    std::vector<std::vector<std::int64_t>> described;
    for (std::int64_t walked = 0; walked < count; ++walked) {
      described.push_back(Describe(role.stage.first[run] + count - 1 - walked));
    }
    alike_.emplace_back(described);
  }
}

/// Buckets begin at multiples of their alignment, so all positions within one are counted from its start.
void GradientBuffer::Cut(bool of_experts) {
  const std::int64_t limit = LimitOf(role_);
  std::vector<ParameterAt> order = DefinitionOrder(role_);
  std::erase_if(order, [&](const ParameterAt& at) { return IsOfExperts(at) != of_experts; });
  std::reverse(order.begin(), order.end());
  GradientBucket open;
  std::int64_t end = 0;
  for (const ParameterAt& at : order) {
    std::int64_t start = divided_ ? RoundUp(end, kParameterAlignment) : end;
    if (IsShared(at) && !open.members.empty()) {
      Close(open, start);
      start = 0;
    }
    open.of_experts = of_experts;
    open.members.push_back(at);
    open.starts.push_back(start);
    end = start + ParameterOf(role_, at).elements;
    if (end >= limit || IsShared(at)) {
      Close(open, end);
      end = 0;
    }
  }
  if (!open.members.empty()) {
    Close(open, end);
  }
}

void GradientBuffer::Close(GradientBucket& open, std::int64_t end) {
  const Layout& layout = role_.job.layout;
  open.elements = divided_ ? RoundUp(end, AlignmentOf(open)) : end;
  padding_ += open.elements;
  const std::int64_t place =
      open.of_experts ? role_.program.rank * layout.tp / layout.ExpertRanks() : role_.program.rank;
  const std::int64_t rank = divided_ ? place : 0;
  const std::int64_t range = divided_ ? open.elements / RanksOf(open) : open.elements;
  for (std::size_t i = 0; i < open.members.size(); ++i) {
    const std::int64_t elements = ParameterOf(role_, open.members[i]).elements;
    padding_ -= elements;
    const std::int64_t begin = rank * range - open.starts[i];
    open.owned += std::clamp<std::int64_t>(begin + range, 0, elements) - std::clamp<std::int64_t>(begin, 0, elements);
  }
  buckets_.push_back(std::move(open));
  open = {};
}

bool GradientBuffer::IsOfExperts(const ParameterAt& at) const {
  return role_.job.layout.ep > 1 && ParameterOf(role_, at).experts > 0;
}

std::int64_t GradientBuffer::RanksOf(const GradientBucket& bucket) const {
  const Layout& layout = role_.job.layout;
  return bucket.of_experts ? layout.ExpertGradientRanks() : layout.GradientRanks();
}

std::int64_t GradientBuffer::AlignmentOf(const GradientBucket& bucket) const {
  return std::lcm(RanksOf(bucket), kBucketAlignment);
}

Holding GradientBuffer::HoldsOwned(const GradientBucket& bucket) const {
  Holding holding;
  holding.cut = Cut::together;
  holding.ranks = RanksOf(bucket);
  holding.unpadded = true;
  holding.aligned = kParameterAlignment;
  holding.multiple = AlignmentOf(bucket);
  for (const ParameterAt& at : bucket.members) {
    const std::string& block = role_.stage.BlockAt(at.position).name;
    holding.of.push_back({block + "." + ParameterOf(role_, at).name, role_.InRun(at.position)});
  }
  return holding;
}

Holding GradientBuffer::HoldsWhole() const {
  Holding holding;
  holding.frozen = true;
  holding.aligned = kParameterAlignment;
  return holding;
}

bool GradientBuffer::IsShared(const ParameterAt& at) const {
  return divided_ && role_.stage.exchanges_tied_gradient && at == role_.stage.tied_copy;
}

void GradientBuffer::FindCompletions() {
  std::vector<std::size_t> missing;
  for (const GradientBucket& bucket : buckets_) {
    for (const ParameterAt& member : bucket.members) {
      bucket_of_[{member.position, member.parameter}] = missing.size();
    }
    missing.push_back(bucket.members.size());
  }
  for (const ParameterAt& at : ArrivalOrder(role_)) {
    const std::size_t bucket = BucketOf(at);
    if (--missing[bucket] == 0) {
      buckets_[bucket].completed_in = at.position;
      completed_[{at.position, at.parameter}].push_back(buckets_[bucket]);
    }
  }
}

const std::vector<GradientBucket>& GradientBuffer::CompletedBy(const ParameterAt& at) const {
  static const std::vector<GradientBucket> none;
  const auto found = completed_.find({at.position, at.parameter});
  return found == completed_.end() ? none : found->second;
}

/// In the order in which the buckets lie in the buffer.
std::vector<GradientBucket> GradientBuffer::CompletedIn(std::int64_t position) const {
  std::vector<GradientBucket> all;
  const auto end = completed_.lower_bound({position + 1, 0});
  for (auto by = completed_.lower_bound({position, 0}); by != end; ++by) {
    all.insert(all.begin(), by->second.begin(), by->second.end());
  }
  for (std::size_t slot = 0; slot < all.size(); ++slot) {
    all[slot].slot = slot;
  }
  return all;
}

std::vector<std::int64_t> GradientBuffer::Describe(std::int64_t position) const {
  constexpr std::int64_t kNextBucket = INT64_MIN;
  std::vector<std::int64_t> all;
  const auto end = completed_.lower_bound({position + 1, 0});
  for (auto by = completed_.lower_bound({position, 0}); by != end; ++by) {
    for (const GradientBucket& bucket : by->second) {
      all.insert(all.end(), {kNextBucket, by->first.second, bucket.elements});
      AppendMembers(role_, bucket.members, position, all);
    }
  }
  return all;
}

std::int64_t GradientBuffer::Walked(std::int64_t position) const {
  return role_.stage.runs[role_.stage.RunOf(position)].count - 1 - role_.InRun(position);
}

std::vector<std::int64_t> GradientBuffer::Key(std::int64_t position) const {
  return alike_[role_.stage.RunOf(position)].Key(Walked(position));
}

std::int64_t GradientBuffer::BlocksAlike(std::int64_t position) const {
  return alike_[role_.stage.RunOf(position)].Left(Walked(position));
}

}  // namespace tidemark
