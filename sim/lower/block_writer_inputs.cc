// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "sim/lower/block_writer.h"

// What blocks get from elsewhere than their neighbours: input that is loaded, and what a dual encoder needs beyond a
// chain of blocks: tensors that pass by a whole tower, a gather over all data-parallel ranks inside a block, and
// forward passes that keep nothing.

namespace tidemark {

void BlockWriter::Load(const Microbatch& microbatch, const RunRange& runs) {
  bool loaded = false;
  const auto load = [&](const std::string& name, const BufferRef& ref) {
    role_.Alloc(ref);
    role_.builder.Order(copy_, role_.compute, "load ready");
    role_.builder.Emit(
        Copy{role_.builder.Named("load." + name), copy_, role_.builder.buffer(ref.buffer).bytes(), {}, {ref}});
    loaded = true;
  };
  if (mask_.valid() && !whole_mask_.valid()) {
    load("attention_mask", {mask_, {MicrobatchIndex(microbatch), Index{}}});
  } else if (mask_.valid()) {
    const BufferRef whole{whole_mask_, {}}, own{mask_, {MicrobatchIndex(microbatch), Index{}}};
    load("attention_mask", whole);
    role_.builder.Order(role_.compute, copy_, "mask loaded");
    role_.Alloc(own);
    const Buffer& rows = role_.builder.buffer(mask_);
    role_.MemoryKernel("own rows of attention_mask", role_.compute, Work::compute, {whole}, {own}, rows.elements,
                       rows.bytes() * 2);
    role_.Free(whole);
  }
  for (std::size_t run = runs.begin; run < runs.end; ++run) {
    const Block& block = role_.stage.runs[run].block();
    for (const TensorId tensor : block.loaded) {
      TIDEMARK_CHECK(role_.stage.runs[run].count == 1);
      load(block.tensors[tensor.index].name, Walk(microbatch, role_.stage.first[run]).tensors[tensor.index]);
    }
  }
  if (loaded) {
    role_.builder.Order(role_.compute, copy_, "loaded");
  }
}

void BlockWriter::DeclareMask() {
  const Job& job = role_.job;
  const Recompute& recompute = job.axes.recompute;
  if (!job.axes.buffers.attention_mask || !(role_.stage.is_first() || role_.stage.is_last())) {
    return;
  }
  const auto declare = [&](const char* name, std::int64_t rows, std::int64_t microbatches) {
    return role_.builder.AddBuffer({name,
                                    Category::input,
                                    DType::u8,
                                    job.micro_batch_size * rows * job.sequence_length,
                                    {microbatches, 1},
                                    role_.compute});
  };
  mask_ = declare("attention_mask", job.TokensOnRank(), role_.MicrobatchBuffers());
  if (job.layout.cp > 1) {
    whole_mask_ = declare("whole attention_mask", job.sequence_length, 1);
  }
  keeps_mask_ = recompute.policy == Recompute::Policy::full || recompute.policy == Recompute::Policy::every_n ||
                (recompute.policy == Recompute::Policy::selective && recompute.attention);
}

void BlockWriter::FreeMask(const Microbatch& microbatch) {
  if (mask_.valid()) {
    role_.Free({mask_, {MicrobatchIndex(microbatch), Index{}}});
  }
}

/// All blocks that carry a tensor of this name mean the same one.
BufferId BlockWriter::DeclareCarried(const Tensor& tensor) {
  BufferId& id = carried_[tensor.name];
  if (!id.valid()) {
    id = role_.builder.AddBuffer(
        {tensor.name, tensor.category, tensor.dtype, tensor.elements, {role_.MicrobatchBuffers(), 1}, role_.compute});
  }
  TIDEMARK_CHECK(role_.builder.buffer(id).elements == tensor.elements);
  return id;
}

BufferRef BlockWriter::Carried(const Microbatch& microbatch, const std::string& name) const {
  return {carried_.at(name), {MicrobatchIndex(microbatch), Index{}}};
}

/// Without a backward pass everything dies in the forward pass, but for what was loaded for the next one. Nor is there
/// a loss of a block's own.
std::vector<BlockWriter::ActionPlan> BlockWriter::PlanRepresenting(Block block, bool first_of_network) {
  block.backward.clear();
  for (Action& action : block.forward) {
    if (auto* kernel = std::get_if<Calculate>(&action); kernel != nullptr && kernel->own_loss) {
      kernel->reads.clear();
      kernel->writes.clear();
    }
  }
  std::vector<ActionPlan> plans = PlanActions(block, first_of_network);
  for (ActionPlan& plan : plans) {
    std::erase_if(plan.deaths, [&](TensorId tensor) {
      return std::find(block.loaded.begin(), block.loaded.end(), tensor) != block.loaded.end();
    });
  }
  return plans;
}

/// Over data it is the stream of a loss that compares the representations of all ranks.
const BlockWriter::Way& BlockWriter::WayAmong(Among among) {
  const Layout& layout = role_.job.layout;
  const auto make = [&](Way& way, const char* stream, const char* group, std::int64_t ranks,
                        std::int64_t stride) -> const Way& {
    if (!way.stream.valid()) {
      way.stream = role_.builder.AddStream(stream, StreamKind::collective);
      way.group = role_.AddGroup(group, ranks, stride);
    }
    return way;
  };
  switch (among) {
    case Among::tensor_parallel:
      return tp_;
    case Among::context_parallel:
      return cp_;
    case Among::data_parallel:
      return make(loss_, "loss", "dp", layout.dp, layout.tp);
    case Among::expert_parallel:
      return make(ep_, "ep", "ep", layout.ep, layout.ExpertTp());
    case Among::expert_tensor_parallel:
      return make(etp_, "etp", "etp", layout.ExpertTp(), 1);
    case Among::all_experts:
      return make(all_experts_, "ep x etp", "ep x etp", layout.ExpertRanks(), 1);
  }
  TIDEMARK_CHECK(false && "unknown group");
}

}  // namespace tidemark
