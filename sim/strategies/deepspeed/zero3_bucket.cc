// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_bucket.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/quantity.h"

namespace tidemark {
namespace {

class Bucket {
 public:
  Bucket(std::int64_t capacity, std::int64_t ranks) : capacity_(capacity), ranks_(ranks) {}

  GradientArrival Take(const ArrivingGradient& gradient) {
    GradientArrival arrival;
    if (filled_ > 0 && filled_ + gradient.elements > capacity_) {
      arrival.flush = Flush();
    }
    arrival.copied = filled_ + gradient.elements <= capacity_;
    if (arrival.copied) {
      arrival.joins = pending_.from_bucket;
      arrival.waits = std::exchange(being_read_, false);
      pending_.from_bucket = true;
    } else {
      pending_.apart.push_back(gradient.at);
    }
    Add(gradient);
    return arrival;
  }

  std::optional<BucketFlush> Finish() { return members_ > 0 ? std::optional(Flush()) : std::nullopt; }

 private:
  void Add(const ArrivingGradient& gradient) {
    const std::int64_t part = CeilDiv(gradient.elements, ranks_);
    auto found = std::find_if(pending_.parts.begin(), pending_.parts.end(),
                              [&](const BucketFlush::Part& other) { return other.position == gradient.at.position; });
    if (found == pending_.parts.end()) {
      found = pending_.parts.insert(found, {gradient.at.position, 0, touched_.contains(gradient.at.position)});
    }
    found->elements += part;
    pending_.elements += part * ranks_;
    filled_ += gradient.elements;
    pending_.one_whole = ++members_ == 1 && gradient.elements % ranks_ == 0;
  }

  BucketFlush Flush() {
    for (const BucketFlush::Part& part : pending_.parts) {
      touched_.insert(part.position);
    }
    being_read_ = being_read_ || pending_.from_bucket;
    filled_ = members_ = 0;
    return std::exchange(pending_, {});
  }

  std::int64_t capacity_, ranks_;
  std::int64_t filled_ = 0, members_ = 0;
  bool being_read_ = false;
  BucketFlush pending_;
  std::set<std::int64_t> touched_;  ///< blocks of earlier flushes
};

}  // namespace

BucketPlan PlanBuckets(const std::vector<ArrivingGradient>& gradients, std::int64_t bucket_elements,
                       std::int64_t ranks) {
  Bucket bucket(bucket_elements, ranks);
  BucketPlan plan;
  plan.arrivals.reserve(gradients.size());
  for (const ArrivingGradient& gradient : gradients) {
    plan.arrivals.push_back(bucket.Take(gradient));
  }
  plan.last = bucket.Finish();
  return plan;
}

}  // namespace tidemark
