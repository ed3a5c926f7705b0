// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "models/job/validate.h"

namespace tidemark {
namespace {

Partition::Gathered GatheredOf(Buffers::TpGather gather) {
  switch (gather) {
    case Buffers::TpGather::fresh:
    case Buffers::TpGather::cached:
      return Partition::Gathered::kept;
    case Buffers::TpGather::pooled:
      return Partition::Gathered::again_pooled;
    case Buffers::TpGather::async:
      return Partition::Gathered::again;
    case Buffers::TpGather::pooled_unsafe:
      return Partition::Gathered::pool_unsafe;
  }
  TIDEMARK_CHECK(false && "unknown gather");
}

}  // namespace

Partition PartitionOf(const Job& job) {
  Partition partition;
  partition.micro_batch_size = job.micro_batch_size;
  partition.ranks = job.layout.dp;
  if (job.CachesRepresentations()) {
    partition.cached_batch = job.micro_batch_size * job.accumulation_steps;
    partition.micro_batch_size = partition.cached_batch / job.Microbatches();
  }
  partition.cp = job.layout.cp;
  partition.sequence_length = job.sequence_length / partition.cp;
  partition.longest_sequence = std::max(job.sequence_length, job.mean_sequence_length) / partition.cp;
  partition.tp = job.layout.tp;
  partition.ep = job.layout.ep;
  partition.etp = job.layout.ExpertTp();
  partition.sequence_parallel = job.layout.sp;
  partition.gathered = GatheredOf(job.axes.buffers.tp_gather);
  partition.linear_order = job.axes.buffers.tp_gather == Buffers::TpGather::async
                               ? Partition::LinearOrder::own_rows_first
                               : job.axes.linear_order;
  partition.loss = job.axes.loss;
  partition.loss_chunk_tokens = job.axes.loss_chunk_tokens;
  partition.fused_glu = job.axes.buffers.fused_glu;
  // What per_op keeps are projections as they were before their rotation, which is done again.
  partition.fused_rope = job.axes.buffers.fused_rope && job.axes.recompute.policy != Recompute::Policy::per_op;
  partition.latent_value_views = job.axes.buffers.latent_value_views;
  partition.packed_qkv = job.axes.packing.qkv;
  partition.packed_gate_up = job.axes.packing.gate_up;
  partition.compute = job.axes.precision.params;
  partition.gradients = job.axes.precision.gradients;
  if (job.axes.buffers.wide_chunk_sum && SizeOf(job.axes.precision.reduce) > SizeOf(partition.gradients)) {
    partition.chunk_sum = job.axes.precision.reduce;
  }
  return partition;
}

Job OfMeanLength(const Job& job) {
  TIDEMARK_CHECK(job.mean_sequence_length > 0);
  Job mean = job;
  std::swap(mean.sequence_length, mean.mean_sequence_length);
  return mean;
}

}  // namespace tidemark
