// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/strategies/deepspeed/zero3_bucket.h"
#include "sim/strategies/gradient_clip.h"
#include "sim/strategies/host_optimizer.h"

namespace tidemark {

/// ZeRO-3's gradient partitions where the optimizer lies in host memory: they lie there too, in the dtype that
/// gradients are accumulated in, beside the fp32 gradients of the masters. Source: deepspeed/runtime/zero/stage3.py at
/// edaa7221, partition_grads, _offload_grad_partition_at_boundary, initialize_optimizer_states.
///
///   first microbatch of a window   the scattered part is copied to the host, and from there to the device again
///   a later one                    the sum is copied to the device, the part is added, and it is copied to the host
///   the last one                   what is on the device then is cast to fp32 and copied to the masters' gradient
///
/// All of it on the stream that scatters. DeepSpeed does so parameter by parameter; here a flush's part of a block is
/// one copy. Pinned memory is assumed.
class Zero3Offload {
 public:
  /// `elements`: of a rank's partitions of a block, by run.
  Zero3Offload(Role& role, StreamId stream, const std::vector<std::int64_t>& elements);

  BufferRef Partition(std::int64_t position) const { return role_.Ref(partitions_, position); }
  /// Of the masters, in fp32.
  BufferRef Gradient(std::int64_t position) const { return role_.Ref(gradients_, position); }
  /// `from`: the scattered gradients, of which `part` belongs to a block.
  void Take(const Microbatch& microbatch, const BucketFlush::Part& part, const BufferRef& from, GradientClip& clip);

 private:
  BufferRef Transient(const char* name, DType dtype, std::int64_t elements);

  Role& role_;
  StreamId stream_;
  DType accumulate_;
  RunBuffers partitions_, gradients_;
  std::map<std::string, BufferId> transients_;  ///< by name
};

}  // namespace tidemark
