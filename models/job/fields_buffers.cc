// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "models/job/fields.h"

namespace tidemark {

std::vector<Field<Job>> BufferFields() {
  using J = Job;
  using TpGather = Buffers::TpGather;
  const Choice<bool> packed{{{"packed", true}, {"separate", false}}};
  return {
      FieldAt<J>(
          "buffers.tp_gather", [](J & j) -> auto& { return j.axes.buffers.tp_gather; },
          Choice<TpGather>{{{"fresh", TpGather::fresh},
                            {"pooled", TpGather::pooled},
                            {"cached", TpGather::cached},
                            {"async", TpGather::async},
                            {"pooled-unsafe", TpGather::pooled_unsafe}}}),
      FieldAt<J>(
          "buffers.gradient_as_bucket_view", [](J & j) -> auto& { return j.axes.buffers.gradient_as_bucket_view; },
          Truth{}),
      FieldAt<J>(
          "buffers.set_to_none", [](J & j) -> auto& { return j.axes.buffers.set_to_none; }, Truth{}),
      FieldAt<J>(
          "buffers.wide_chunk_sum", [](J & j) -> auto& { return j.axes.buffers.wide_chunk_sum; }, Truth{}),
      FieldAt<J>(
          "buffers.donate", [](J & j) -> auto& { return j.axes.buffers.donate; }, Truth{}),
      FieldAt<J>(
          "buffers.mid_updates", [](J & j) -> auto& { return j.axes.buffers.mid_updates; }, Truth{}),
      FieldAt<J>(
          "buffers.stack_gradients", [](J & j) -> auto& { return j.axes.buffers.stack_gradients; }, Truth{}),
      FieldAt<J>(
          "buffers.contiguous_gradients", [](J & j) -> auto& { return j.axes.buffers.contiguous_gradients; }, Truth{}),
      FieldAt<J>(
          "buffers.fused_accumulation", [](J & j) -> auto& { return j.axes.buffers.fused_accumulation; }, Truth{}),
      FieldAt<J>(
          "buffers.deallocate_pipeline_outputs",
          [](J & j) -> auto& { return j.axes.buffers.deallocate_pipeline_outputs; }, Truth{}),
      FieldAt<J>(
          "buffers.fused_glu", [](J & j) -> auto& { return j.axes.buffers.fused_glu; }, Truth{}),
      FieldAt<J>(
          "buffers.fused_rope", [](J & j) -> auto& { return j.axes.buffers.fused_rope; }, Truth{}),
      FieldAt<J>(
          "buffers.latent_value_views", [](J & j) -> auto& { return j.axes.buffers.latent_value_views; }, Truth{}),
      FieldAt<J>(
          "buffers.attention_mask", [](J & j) -> auto& { return j.axes.buffers.attention_mask; }, Truth{}),
      FieldAt<J>(
          "packing.qkv", [](J & j) -> auto& { return j.axes.packing.qkv; }, packed),
      FieldAt<J>(
          "packing.gate_up", [](J & j) -> auto& { return j.axes.packing.gate_up; }, packed)};
}

}  // namespace tidemark
