// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sim/strategies/megatron/gradient_buffer.h"
#include "sim/strategies/megatron/gradient_ways.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// With `sync.overlap_gather` (--overlap-param-gather) a step ends with weights of which each rank has updated its
/// part, and the next step's first forward pass gathers them where they lie, bucket by bucket from the front of the
/// network (core/distributed/distributed_data_parallel.py, _make_forward_pre_hook; param_and_grad_buffer.py,
/// finish_param_sync): whatever needs a bucket first waits for it and lets the one behind it go; nothing has let go of
/// the first, which is gathered there and then. A training's first step has nothing to gather.
///
/// Where a rank holds several chunks, all buckets of a chunk leave at once, so that all stages gather at the same time
/// (align_param_gather): those of the first two chunks before the first forward pass, and those of each further one
/// when the chunk before it begins. (As the first rank does; others start those a few forward passes earlier.)
///
/// Here a kernel waits for what it reads itself, and a block's last forward kernel for what only its backward pass
/// reads (the head of a loss in chunks). Megatron-LM's hooks are those of modules: before the norm of Transformer
/// Engine's LayerNormLinear they wait for the linear layer's weights as well.
class ForwardGathers {
 public:
  /// Of a training's later steps. What it is given must outlive it.
  ForwardGathers(Role& role, GradientWays& ways, const GradientBuffer& buffer, const ParameterTable& weights);

  /// Lets go of all of this chunk's buckets, where there are several chunks.
  void LeaveTogether();
  /// Before one of a block's forward actions, in the first microbatch.
  void BeforeAction(std::int64_t position, std::size_t action);

  /// As DataParallel::Key and BlocksAlike, for that forward pass.
  std::vector<std::int64_t> Key(std::int64_t position) const;
  std::int64_t BlocksAlike(std::int64_t position) const;

 private:
  /// What happens before an action. Buckets are counted in the order of the forward pass.
  struct Need {
    std::size_t awaited = 0;
    bool starts = false;                  ///< it has not left yet
    std::optional<std::size_t> released;  ///< leaves behind it
  };

  void Plan();
  std::vector<std::int64_t> Describe(std::int64_t position) const;
  const GradientBucket& Bucket(std::size_t number) const {
    return buffer_.buckets()[buffer_.buckets().size() - 1 - number];
  }
  void Start(std::size_t number);
  EventId Gathered(std::size_t number);

  Role& role_;
  GradientWays& ways_;
  const GradientBuffer& buffer_;
  const ParameterTable& weights_;
  const bool together_;
  std::map<std::pair<std::int64_t, std::size_t>, std::vector<Need>> needs_;  ///< by position and action
  std::vector<AlikeBlocks> alike_;                                           ///< by run
};

}  // namespace tidemark
