// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/lower/stage.h"

namespace tidemark {

/// Gradients that are averaged and scattered together.
struct BucketFlush {
  struct Part {
    std::int64_t position = 0;
    std::int64_t elements = 0;  ///< of one rank's partition
    bool again = false;         ///< an earlier flush of this backward pass brought gradients of the same block
  };
  std::vector<Part> parts;         ///< by block
  std::vector<ParameterAt> apart;  ///< larger than the bucket, so not copied into it
  bool from_bucket = false;        ///< some were copied into it
  std::int64_t elements = 0;       ///< of all, each padded to a multiple of the ranks
  bool one_whole = false;          ///< a single one that needs no padding: reduced where it lies
};

/// What becomes of one gradient when its backward kernel is done.
struct GradientArrival {
  std::optional<BucketFlush> flush;  ///< of what the bucket holds, because this one does not fit
  bool copied = false;               ///< into the bucket
  bool joins = false;                ///< others are in the bucket already
  bool waits = false;                ///< a flush of the bucket may still read it
};

/// DeepSpeed's reduce_independent_p_g_buckets_and_remove_grads over one backward pass.
struct BucketPlan {
  std::vector<GradientArrival> arrivals;  ///< parallel to the gradients, in order of arrival
  std::optional<BucketFlush> last;        ///< at the end of the backward pass
};

struct ArrivingGradient {
  ParameterAt at;
  std::int64_t elements = 0;
};

BucketPlan PlanBuckets(const std::vector<ArrivingGradient>& gradients, std::int64_t bucket_elements,
                       std::int64_t ranks);

}  // namespace tidemark
