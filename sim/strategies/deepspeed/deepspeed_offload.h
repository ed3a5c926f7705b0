// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sim/strategies/deepspeed/deepspeed_flat.h"
#include "sim/strategies/host_optimizer.h"

namespace tidemark {

/// What ZeRO stages 1 and 2 do with this rank's part of a reduced bucket where the optimizer lies in host memory
/// (`offload_optimizer.device: cpu`): nothing of it stays on the device. Source: deepspeed/runtime/zero/
/// stage_1_and_2.py at edaa7221, copy_grads_in_partition, async_accumulate_grad_in_cpu_via_gpu,
/// async_inplace_copy_grad_to_fp32_buffer_from_gpu, initialize_optimizer_states, __init__.
///
///   a microbatch behind another reduced one   the sum so far is copied from the host into a buffer that stays on the
///                                             device, as large as the largest parameter, and added to the bucket
///   one of several                            the sum goes back to the host, in the parameters' dtype
///   the last one                              it is cast to fp32 and copied into the gradient of the masters, which
///                                             stays in host memory
///
/// Everything is issued to the stream that reduced the bucket: DeepSpeed has no stream for these copies ("disabled
/// because of race with reduce"). It copies parameter by parameter, and casts and frees each; here one copy takes a
/// bucket's part, so the latency of the link counts once per bucket, and the cast has memory for one parameter. Pinned
/// memory (`pin_memory`) is assumed. Host memory counts the sum so far once per element of the part; DeepSpeed has it
/// for parameters as a whole, also where they begin or end in another rank's part.
class OffloadedGradients {
 public:
  /// `kernels`: the stream that reduces buckets. `flat` must outlive it.
  OffloadedGradients(Role& role, FlatParameters& flat, StreamId kernels);

  void BeginBackward(const WindowPlace& place) { place_ = place; }
  /// `content`: a reduced bucket with `elements` of this rank's part; `first` of its microbatch.
  void Take(const BufferRef& content, std::int64_t elements, bool first);
  /// Of the masters, in fp32, on the host.
  BufferRef gradient() const { return gradient_; }
  /// Whether the buffer for the sum so far is there.
  bool sum_exists() const { return sum_exists_; }

 private:
  void AddSum(const BufferRef& content, std::int64_t elements);
  void KeepSum(const BufferRef& content, std::int64_t elements, bool first);
  void PassOn(const BufferRef& content, std::int64_t elements, bool first);
  std::vector<BufferRef> Beside(const BufferRef& from, const BufferRef& on_host, bool first) const;

  Role& role_;
  FlatParameters& flat_;
  StreamId kernels_;
  DType type_;
  BufferRef sum_, gradient_;  ///< on the host
  BufferRef landing_, cast_;  ///< on the device
  bool sum_exists_ = false;
  WindowPlace place_;  ///< of the microbatch under way
};

}  // namespace tidemark
