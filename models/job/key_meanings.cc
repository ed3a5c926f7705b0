// SPDX-License-Identifier: Apache-2.0
#include "models/job/key_meanings.h"

#include <algorithm>
#include <iterator>

namespace tidemark {
namespace {

struct Meaning {
  std::string_view key, text;
};

/// In the order of the fields.
constexpr Meaning kMeanings[] = {
    {"network", "the model"},
    {"network.name", "the name of the model"},
    {"network.from", "the file or the known model that the network is taken from"},
    {"network.table", "a network given by the sizes and times of its blocks"},
    {"network.table_samples", "how many samples the sizes and times of that table are of"},
    {"network.trainable", "which weights are trained; the others are frozen"},
    {"network.layers", "how many layers the model has"},
    {"network.hidden", "how many numbers stand for a token between layers"},
    {"network.ffn", "how wide the feed-forward part of a layer is"},
    {"network.heads", "how many attention heads a layer has"},
    {"network.kv_heads", "how many heads have keys and values of their own"},
    {"network.head_size", "how many numbers an attention head of queries and keys has"},
    {"network.vocabulary", "how many different tokens there are"},
    {"network.positions", "how many positions have a learned vector"},
    {"network.norm", "how layers normalise"},
    {"network.norm_placement", "whether layers normalise what they read, what they make, or both"},
    {"network.norm_kernel", "whether a norm is one kernel or single operations, which keep more for the backward pass"},
    {"network.ffn_kind", "what stands between the linear layers of the feed-forward part"},
    {"network.rope", "whether positions are told by rotating queries and keys"},
    {"network.rotary_table",
     "the table of cosines and sines that each layer has, by pairs or elements of a head; none: they are computed"},
    {"network.qkv_bias", "whether the projections to queries, keys and values have a bias"},
    {"network.latent_attention.kv_lora_rank",
     "width of the vector that keys and values are made from in multi-latent attention; 0: none"},
    {"network.latent_attention.q_lora_rank",
     "width of the vector that queries are made from; 0: from the layer's input"},
    {"network.latent_attention.rope_head_size",
     "how many of a head's numbers are rotated; keys of all heads share them"},
    {"network.latent_attention.value_head_size", "how many numbers a head of values has"},
    {"network.qk_norm", "whether queries and keys are normalised before attention"},
    {"network.qk_norm_over", "head by head, or a token's heads all at once"},
    {"network.linear_bias", "whether the other linear layers have a bias"},
    {"network.qkv_views", "whether queries, keys and values are parts of one tensor, which is then kept whole"},
    {"network.tied_embeddings", "whether input and output share one table of words"},
    {"network.parallel_residual", "whether attention and feed-forward part read the same input"},
    {"network.dropout", "the share of results that is dropped, which takes a mask to remember"},
    {"network.attention_dropout", "the share of attention weights that is dropped"},
    {"network.sliding_window", "how many tokens one attends to at most, itself the last; 0: itself and all before"},
    {"network.full_attention_every", "each so many-th layer has no such window; 0: all layers have it"},
    {"network.attention_kernel", "whether attention is one kernel or single operations, which keep all scores"},
    {"network.experts.count", "how many experts a layer has; 0: all layers have a feed-forward part instead"},
    {"network.experts.per_token", "how many experts each token goes to"},
    {"network.experts.ffn", "how wide an expert is"},
    {"network.experts.shared_ffn", "how wide the experts are that all tokens go to"},
    {"network.experts.dense_layers", "how many of the first layers have a feed-forward part instead of experts"},
    {"network.experts.shared_gate", "whether what those make is weighted"},
    {"network.experts.router_fp32", "whether the router computes in fp32"},
    {"network.experts.balancing_loss", "whether a loss makes tokens spread over the experts"},
    {"network.experts.layer", "whose code computes them: Megatron-LM's or torchtitan's"},
    {"network.experts.dispatcher", "how tokens get to experts on other GPUs"},
    {"network.experts.kernel", "whether all experts are computed at once, or one after the other"},
    {"network.experts.imbalance", "how many times the mean number of tokens the GPU gets that gets most"},
    {"network.causal", "whether a token looks only at those before it"},
    {"network.dual_encoder.shared", "whether one encoder serves both sides of a pair"},
    {"network.dual_encoder.representation", "how many numbers represent a whole input"},
    {"network.dual_encoder.targets", "how many inputs of the second side there are for each of the first"},
    {"network.dual_encoder.gather", "whether the loss compares with the inputs of all GPUs"},
    {"network.dual_encoder.lm_loss", "whether a language model's loss is added"},

    {"machine", "the kind of GPU and of network between GPUs"},
    {"strategy", "the way in which GPUs share weights and exchange gradients"},
    {"assumed", "which values nobody gave"},
    {"sequence_length", "how many tokens a sequence has"},
    {"sequence_length.max", "how many tokens the longest sequence has, which decides memory"},
    {"sequence_length.mean", "how many tokens a sequence has on average, which decides time"},
    {"micro_batch_size", "how many sequences a GPU works through at a time"},
    {"accumulation_steps",
     "how many microbatches a GPU works through, adding up their gradients, before the weights change once"},
    {"pipeline_microbatches", "how many microbatches go through the pipeline before it runs empty"},
    {"last_window.microbatches", "how many microbatches are left over for the last step of an epoch"},
    {"last_window.policy", "what becomes of the microbatches left over at the end of an epoch"},

    {"layout.dp", "how many GPUs work on different data"},
    {"layout.tp", "how many GPUs share each layer"},
    {"layout.cp", "how many GPUs share each sequence"},
    {"layout.pp", "how many groups of GPUs share the layers among them"},
    {"layout.vpp", "how many separate pieces of the model each group of the pipeline holds"},
    {"layout.ep", "how many GPUs share the experts of a layer"},
    {"layout.etp", "how many GPUs share each of these experts; null: as many as share a layer"},
    {"layout.sp", "whether GPUs that share a layer also share the tensors between layers"},
    {"layout.layers_per_stage", "how many layers each stage of the pipeline has"},
    {"schedule", "the order in which a pipeline works through its microbatches"},

    {"sync.when", "after which microbatches GPUs exchange gradients"},
    {"sync.expression", "the condition under which a microbatch exchanges gradients"},
    {"sync.step_expression", "the condition under which the weights change behind a microbatch"},
    {"sync.collective", "whether each GPU gets the whole sum of gradients or its part of it"},
    {"sync.bucket_bytes", "how large the buffers are in which gradients are exchanged, but DDP's first"},
    {"sync.first_bucket_bytes", "how large DDP's first such buffer is, whatever the others are"},
    {"sync.bucket_elements", "how many gradients are exchanged together"},
    {"sync.overlap", "whether gradients are exchanged while the backward pass goes on"},
    {"sync.forward_in_no_sync", "whether no_sync encloses the forward pass, too"},
    {"sync.static_graph", "DDP's promise that every step uses the same weights"},
    {"sync.find_unused_parameters", "whether DDP looks for weights that a step did not use"},
    {"sync.coalesce", "whether DeepSpeed puts off all exchange to the end of a block"},
    {"sync.multi_rank_bucket", "whether DeepSpeed reduces the parts of several GPUs in one exchange"},
    {"sync.executable", "by which compiled program Alpa exchanges gradients"},
    {"sync.rewrite", "whether Alpa moves the exchange behind the sum over microbatches"},
    {"sync.average_in_collective", "whether the exchange itself takes the mean"},
    {"sync.fp32_accumulation", "whether gradients are added up in fp32 on arrival"},
    {"sync.overlap_gather", "whether changed weights are exchanged while the next step's forward pass goes on"},

    {"shard.params", "whether each GPU keeps only a part of the weights"},
    {"shard.gradients", "whether each GPU keeps only a part of the gradients"},
    {"shard.optimizer", "whether each GPU keeps only a part of the optimizer's state"},
    {"shard.replicas", "how many groups of GPUs hold all the weights once"},
    {"shard.reshard_after_forward", "whether gathered weights are let go of between forward and backward pass"},
    {"shard.reshard_after_backward", "whether gathered weights are let go of behind each backward pass"},
    {"shard.reshard_last_unit", "whether the last unit's weights, too, are let go of behind its forward pass"},
    {"shard.gathered_layers", "how many of the last layers keep their weights until the backward pass"},
    {"shard.prefetch_forward", "how many units' weights are gathered ahead in the forward pass"},
    {"shard.prefetch_backward", "how many units' weights are gathered ahead in the backward pass"},
    {"shard.backward_prefetch", "when the next unit's weights are gathered in the backward pass"},
    {"shard.limit_all_gathers", "whether the host waits before it gathers more weights"},
    {"shard.reuse_distance", "weights that are needed again within so many elements stay gathered"},
    {"shard.persistence_threshold", "weights of fewer elements than this stay whole"},
    {"shard.prefetch_elements", "how many weights may be gathered ahead"},
    {"shard.max_live_elements", "how many gathered weights may be alive"},
    {"shard.chunk_elements", "how many weights lie in one chunk of memory"},
    {"shard.min_chunk_elements", "where the search for the size of a chunk begins"},

    {"recompute.policy", "what is computed again in the backward pass in place of being kept"},
    {"recompute.every", "one of how many layers is computed again"},
    {"recompute.attention", "whether attention scores are computed again"},
    {"recompute.norm", "whether the outputs of norms in front of linear layers are computed again"},
    {"recompute.activation", "whether the input of the last linear layer of a feed-forward part is computed again"},
    {"recompute.feed_forward", "whether the feed-forward part is computed again"},
    {"recompute.latent_heads", "whether queries, keys and values of multi-latent attention are computed again"},
    {"recompute.collectives",
     "whether reduce-scatters and all-to-alls are done again, where operations are kept one by one"},
    {"recompute.needed_only", "whether only what the backward pass reads is computed again, as by a compiler"},
    {"recompute.tp_gather", "whether inputs are gathered again in the backward pass"},

    {"buffers.tp_gather", "where the inputs that are gathered from GPUs that share a layer lie, and how long"},
    {"buffers.gradient_as_bucket_view", "whether gradients lie inside DDP's communication buffers"},
    {"buffers.set_to_none", "whether gradients are freed or zeroed in place behind a step"},
    {"buffers.wide_chunk_sum", "whether a loss in chunks adds up the head's gradient in the dtype that is reduced"},
    {"buffers.contiguous_gradients", "whether gradients are copied into one buffer to be exchanged"},
    {"buffers.donate", "whether a program's results take the place of what it was given"},
    {"buffers.mid_updates", "whether every microbatch writes an update, of zeros where the weights do not change"},
    {"buffers.stack_gradients", "whether each microbatch's gradients are kept and added up in the end"},
    {"buffers.fused_accumulation", "whether gradients are added to the sum by the kernel that computes them"},
    {"buffers.deallocate_pipeline_outputs", "whether what a stage has sent on is freed at once"},
    {"buffers.fused_glu", "whether a gated activation is one kernel, which keeps less"},
    {"buffers.latent_value_views",
     "whether values of multi-latent attention are part of the tensor that keys are made from, which is then kept"},
    {"buffers.fused_rope", "whether queries and keys are rotated where they are, or each into a new tensor"},
    {"buffers.attention_mask", "whether a mask of the whole sequence by itself is loaded with each micro batch"},
    {"packing.qkv", "whether the weights for queries, keys and values are one tensor"},
    {"packing.gate_up", "whether the first two weights of a gated feed-forward part are one tensor"},

    {"precision.params", "the number format that the model computes with"},
    {"precision.gradients", "the number format in which gradients are computed"},
    {"precision.reduce", "the number format in which gradients are exchanged"},
    {"precision.accumulate", "the number format in which gradients are added up"},
    {"precision.master", "the number format of the weights that the optimizer changes"},
    {"precision.optimizer", "the number format of the optimizer's state"},

    {"loss", "how the loss is computed, and with it how many copies of the logits there are"},
    {"loss_chunk_tokens", "for how many tokens at a time the loss is computed"},
    {"loss_scale", "what the loss of a microbatch is divided by"},
    {"gradient_flow.kind", "how backward passes follow forward passes"},
    {"gradient_flow.chunks", "how many pieces a GPU's batch is cut into"},
    {"gradient_flow.loss_times_ranks", "whether the loss is multiplied by the number of GPUs, which DDP divides by"},
    {"gradient_flow.loop", "where the loop over microbatches runs"},
    {"optimizer", "the rule by which gradients change weights"},
    {"optimizer_step.kernel", "how many kernels the optimizer takes, and how much scratch memory"},
    {"optimizer_step.clip_norm", "the length down to which gradients are scaled"},
    {"optimizer_step.in_backward", "whether weights change within the backward pass"},
    {"optimizer_step.offload", "whether masters and moments lie in the host's memory"},
    {"allocator.kind", "who manages the GPU's memory"},
    {"allocator.expandable_segments", "whether PyTorch's allocator can make its blocks larger later"},
    {"allocator.max_split_size", "blocks larger than this are not split for smaller tensors"},
    {"allocator.max_non_split_rounding", "how much larger than a tensor a block that is not split may be"},
    {"allocator.large_segment_size", "how much memory is asked of the driver at once"},
    {"allocator.roundup_power2_divisions", "to how many steps between powers of two sizes are rounded"},
    {"allocator.garbage_collection_threshold", "from which share of the memory on unused blocks are given back"},
    {"allocator.memory_fraction", "which share of the memory the process may use"},
    {"allocator.release_threshold", "how much unused memory the driver's pool keeps"},
};

constexpr std::string_view kTowers[] = {"network.dual_encoder.first.", "network.dual_encoder.second."};

std::string_view Find(std::string_view prefix, std::string_view rest) {
  const auto* const found = std::find_if(std::begin(kMeanings), std::end(kMeanings), [&](const Meaning& meaning) {
    return meaning.key.size() == prefix.size() + rest.size() && meaning.key.starts_with(prefix) &&
           meaning.key.ends_with(rest);
  });
  return found == std::end(kMeanings) ? std::string_view() : found->text;
}

}  // namespace

std::string_view MeaningOf(std::string_view key) {
  for (const std::string_view tower : kTowers) {
    if (key.starts_with(tower)) {
      return Find("network.", key.substr(tower.size()));
    }
  }
  return Find({}, key);
}

}  // namespace tidemark
