// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/xla/combined_buckets.h"

#include <map>
#include <utility>

#include "sim/strategies/parameter_order.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

class Combined : public BucketLayout {
 public:
  explicit Combined(const Role& role) : role_(role), limit_(role.job.axes.sync.bucket_bytes) {
    const std::vector<ParameterAt> order = ArrivalOrder(role);
    Bytes next;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      next_[{at->position, at->parameter}] = next;
      if (SizeAt(*at) <= limit_) {
        next = SizeAt(*at);
      }
    }
  }

  std::vector<BucketMembers> Arrive(const ParameterAt& at) override {
    if (SizeAt(at) > limit_) {
      return {{at}};
    }
    members_.push_back(at);
    filled_ += SizeAt(at);
    // It is complete when the next gradient would not fit, or none follows.
    const Bytes next = next_.at({at.position, at.parameter});
    if (next != Bytes(0) && filled_ + next <= limit_) {
      return {};
    }
    return {Close()};
  }

  std::vector<BucketMembers> Finish() override {
    std::vector<BucketMembers> rest;
    if (!members_.empty()) {
      rest.push_back(Close());
    }
    return rest;
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    std::vector<std::int64_t> key;
    AppendMembers(role_, members_, position, key);
    return key;
  }

  void Shift(std::int64_t blocks) override { ShiftMembers(role_, members_, blocks); }

 private:
  Bytes SizeAt(const ParameterAt& at) const {
    return SizeOf(role_.job.axes.precision.gradients) * ParameterOf(role_, at).elements;
  }
  BucketMembers Close() {
    filled_ = Bytes(0);
    return std::exchange(members_, {});
  }

  const Role& role_;
  Bytes limit_, filled_;
  BucketMembers members_;
  std::map<std::pair<std::int64_t, std::uint32_t>, Bytes>
      next_;  ///< size of the next gradient that can be merged; 0: none
};

}  // namespace

std::unique_ptr<BucketLayout> BucketsOfCombiner(const Role& role) {
  if (CombinesEverything(role)) {
    return OneBucket(role);
  }
  return std::make_unique<Combined>(role);
}

bool CombinesEverything(const Role& role) {
  std::int64_t elements = 0;
  for (const StageRun& run : role.stage.runs) {
    elements += TrainableElements(run.block()) * run.count;
  }
  return SizeOf(role.job.axes.precision.gradients) * elements <= role.job.axes.sync.bucket_bytes;
}

}  // namespace tidemark
