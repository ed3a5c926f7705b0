// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "models/job/validate.h"
#include "models/job/validate_parts.h"
#include "models/network/loss_in_chunks.h"

namespace tidemark {

Status CheckLossInChunks(const Job& job) {
  using Loss = Partition::Loss;
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  const bool fused = job.axes.loss == Loss::fused;
  if (!TakesChunks(job.axes.loss)) {
    return job.axes.loss_chunk_tokens == 0 ? Status(Done{})
                                           : BadKey("loss_chunk_tokens", "is only looked at by losses that take chunks",
                                                    "set loss to chunked, or loss_chunk_tokens to 0");
  }
  if (decoder == nullptr) {
    return BadKey("loss", "only the head of one decoder takes its loss in chunks", "set loss to upcast-logits");
  }
  if (fused && job.layout.tp > 1) {
    return BadKey(
        "loss",
        "Liger-Kernel's fused linear cross-entropy wants the whole vocabulary, and tensor parallelism divides "
        "it",
        "set layout.tp to 1, or loss to softmax-saving");
  }
  const Buffers::TpGather gather = job.axes.buffers.tp_gather;
  if (job.GathersRows() && gather != Buffers::TpGather::fresh && gather != Buffers::TpGather::cached) {
    return BadKey("loss",
                  "all chunks read the head's input, gathered once: it cannot be gathered again or lie in a pool",
                  "set loss to softmax-saving");
  }
  const bool splits =
      job.schedule == Schedule::zb_h1 || job.schedule == Schedule::zb_h2 || job.schedule == Schedule::dualpipe;
  if (job.layout.pp > 1 && splits) {
    return BadKey("loss", "it makes the head's weight gradient at once, which this schedule puts off",
                  "set schedule to 1f1b, or loss to upcast-logits");
  }
  const Partition partition = PartitionOf(job);
  const std::int64_t chunks = PlanChunks(LocalShape(*decoder, partition), partition).chunks();
  if (job.mean_sequence_length > 0 && job.micro_batch_size * job.mean_sequence_length / job.layout.cp < chunks) {
    return BadKey("sequence_length.mean",
                  fmt::format("the longest sequences take {} chunks of the loss, more than a mean one has tokens{}",
                              chunks, job.layout.cp > 1 ? " on a rank" : ""),
                  "set loss to upcast-logits");
  }
  return Done{};
}

}  // namespace tidemark
