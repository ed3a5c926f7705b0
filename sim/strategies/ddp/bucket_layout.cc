// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/bucket_layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/strategies/parameter_order.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

/// A bucket that is being filled up to its limit.
class Filling {
 public:
  explicit Filling(const Role& role) : role_(role) {}

  /// True when `at` has closed the bucket: it overshoots by less than one parameter.
  bool Add(const ParameterAt& at) {
    const Axes& axes = role_.job.axes;
    members.push_back(at);
    bytes_ += SizeOf(axes.precision.gradients) * ParameterOf(role_, at).elements;
    return bytes_ >= (first_ ? axes.sync.first_bucket_bytes : axes.sync.bucket_bytes);
  }

  BucketMembers Close() {
    bytes_ = Bytes(0);
    first_ = false;
    return std::exchange(members, {});
  }

  void Restart() { first_ = true; }

  std::vector<std::int64_t> Key(std::int64_t position) const {
    std::vector<std::int64_t> key{bytes_.count(), first_ ? 1 : 0};
    AppendMembers(role_, members, position, key);
    return key;
  }

  BucketMembers members;

 private:
  const Role& role_;
  Bytes bytes_;
  bool first_ = true;
};

class Everything : public BucketLayout {
 public:
  explicit Everything(const Role& role) : role_(role) {}
  std::vector<BucketMembers> Arrive(const ParameterAt&) override { return {}; }
  std::vector<BucketMembers> Finish() override { return {DefinitionOrder(role_)}; }
  std::vector<std::int64_t> Key(std::int64_t) const override { return {}; }
  void Shift(std::int64_t) override {}

 private:
  const Role& role_;
};

class ByArrival : public BucketLayout {
 public:
  explicit ByArrival(const Role& role) : role_(role), filling_(role) {}

  std::vector<BucketMembers> Arrive(const ParameterAt& at) override {
    if (!filling_.Add(at)) {
      return {};
    }
    return {filling_.Close()};
  }
  std::vector<BucketMembers> Finish() override {
    std::vector<BucketMembers> rest;
    if (!filling_.members.empty()) {
      rest.push_back(filling_.Close());
    }
    filling_.Restart();
    return rest;
  }
  std::vector<std::int64_t> Key(std::int64_t position) const override { return filling_.Key(position); }
  void Shift(std::int64_t blocks) override { ShiftMembers(role_, filling_.members, blocks); }

 private:
  const Role& role_;
  Filling filling_;
};

/// The layout never changes, so what each arrival launches is worked out once; nothing is remembered on the way.
class ByDefinition : public BucketLayout {
 public:
  explicit ByDefinition(const Role& role) : role_(role), patterns_(static_cast<std::size_t>(role.stage.blocks)) {
    PlanLaunches(LaunchOrder());
    for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
      FindPattern(role.stage.first[run], role.stage.runs[run].count);
    }
  }

  std::vector<BucketMembers> Arrive(const ParameterAt& at) override {
    const auto found = launches_.find({at.position, at.parameter});
    return found == launches_.end() ? std::vector<BucketMembers>() : found->second;
  }
  std::vector<BucketMembers> Finish() override { return {}; }
  std::vector<std::int64_t> Key(std::int64_t position) const override {
    return {patterns_[static_cast<std::size_t>(position)]};
  }
  void Shift(std::int64_t) override {}

 private:
  std::vector<BucketMembers> LaunchOrder() const {
    std::vector<BucketMembers> buckets;
    Filling filling(role_);
    for (const ParameterAt& at : DefinitionOrder(role_)) {
      if (filling.Add(at)) {
        buckets.push_back(filling.Close());
      }
    }
    if (!filling.members.empty()) {
      buckets.push_back(filling.Close());
    }
    std::reverse(buckets.begin(), buckets.end());
    return buckets;
  }

  void PlanLaunches(const std::vector<BucketMembers>& buckets) {
    std::map<std::pair<std::int64_t, std::uint32_t>, std::size_t> bucket_of;
    std::vector<std::size_t> missing;
    for (const BucketMembers& bucket : buckets) {
      for (const ParameterAt& member : bucket) {
        bucket_of[{member.position, member.parameter}] = missing.size();
      }
      missing.push_back(bucket.size());
    }
    std::size_t next = 0;
    for (const auto& [position, parameter] : ArrivalOrder(role_)) {
      --missing[bucket_of.at({position, parameter})];
      for (; next < buckets.size() && missing[next] == 0; ++next) {
        launches_[{position, parameter}].push_back(buckets[next]);
      }
    }
    TIDEMARK_CHECK(next == buckets.size());
  }

  /// What one block launches, its members relative to it.
  std::vector<std::int64_t> LaunchesOf(std::int64_t position) const {
    constexpr std::int64_t kNextBucket = INT64_MIN, kNextParameter = INT64_MIN + 1;
    std::vector<std::int64_t> all;
    const auto end = launches_.lower_bound({position + 1, 0});
    for (auto launch = launches_.lower_bound({position, 0}); launch != end; ++launch) {
      all.push_back(kNextParameter);
      all.push_back(launch->first.second);
      for (const BucketMembers& bucket : launch->second) {
        all.push_back(kNextBucket);
        AppendMembers(role_, bucket, position, all);
      }
    }
    return all;
  }

  /// Numbers the blocks of a run so that two of equal number are followed, downwards, by equal launches up to the run's
  /// last block, which the lowering writes by itself. `period` blocks repeat from `top` on; those above stand alone.
  void FindPattern(std::int64_t first, std::int64_t count) {
    std::vector<std::vector<std::int64_t>> launches;
    for (std::int64_t i = 0; i < count; ++i) {
      launches.push_back(LaunchesOf(first + i));
    }
    const auto at = [&](std::int64_t i) -> const std::vector<std::int64_t>& {
      return launches[static_cast<std::size_t>(i)];
    };
    std::int64_t period = 1, top = 0;
    for (; 2 * period < count; ++period) {
      for (top = period; top + 1 < count && at(top + 1) == at(top + 1 - period);) {
        ++top;
      }
      if (top >= 2 * period) {
        break;
      }
    }
    const bool repeats = 2 * period < count;
    for (std::int64_t i = 0; i < count; ++i) {
      patterns_[static_cast<std::size_t>(first + i)] = repeats && i <= top ? -1 - i % period : first + i;
    }
  }

  const Role& role_;
  std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<BucketMembers>> launches_;
  std::vector<std::int64_t> patterns_;
};

}  // namespace

std::unique_ptr<BucketLayout> OneBucket(const Role& role) { return std::make_unique<Everything>(role); }
std::unique_ptr<BucketLayout> BucketsByArrival(const Role& role) { return std::make_unique<ByArrival>(role); }
std::unique_ptr<BucketLayout> BucketsByDefinition(const Role& role) { return std::make_unique<ByDefinition>(role); }

}  // namespace tidemark
