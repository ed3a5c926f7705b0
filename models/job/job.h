// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/quantity.h"
#include "base/result.h"
#include "models/job/allocator_options.h"
#include "models/machine/machine.h"
#include "models/network/block.h"
#include "models/network/network.h"

namespace tidemark {

/// How the ranks are laid out. World size is dp * cp * tp * pp. Experts are laid out over the ranks of a stage by
/// themselves: `etp` in a row have parts of the same ones, and `ep` such groups in a row all of a layer's.
struct Layout {
  std::int64_t dp = 1, tp = 1, cp = 1, pp = 1, vpp = 1, ep = 1;
  std::int64_t etp = 0;                        ///< 0: tp
  bool sp = false;                             ///< sequence parallel over the tp group
  std::vector<std::int64_t> layers_per_stage;  ///< empty: layers divide evenly by pp * vpp

  /// Of the pipeline: `vpp` model chunks on each of `pp` ranks.
  std::int64_t Stages() const { return pp * vpp; }
  /// Ranks that have the same weights and gradients of other tokens: what gradients are summed over, and what the
  /// model's state is divided over. Of `cp` in a row each has its part of the same sequences.
  std::int64_t GradientRanks() const { return dp * cp; }
  std::int64_t ExpertTp() const { return etp > 0 ? etp : tp; }
  /// Ranks whose tokens the same experts see.
  std::int64_t ExpertRanks() const { return ep * ExpertTp(); }
  /// The same as GradientRanks, of experts.
  std::int64_t ExpertGradientRanks() const { return GradientRanks() * tp / ExpertRanks(); }
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// When gradients are synchronised over the data-parallel group, and how.
struct Sync {
  enum class When : std::uint8_t { every, last, custom } when = When::every;
  std::string expression;       ///< custom: microbatches that synchronise, over `i` and `steps`
  std::string step_expression;  ///< custom: behind which the optimizer steps; empty: where they synchronise
  CollectiveKind collective = CollectiveKind::all_reduce;  ///< all_reduce or reduce_scatter
  Bytes bucket_bytes = Bytes(26214400);
  Bytes first_bucket_bytes = Bytes(1048576);
  std::int64_t bucket_elements = 0;  ///< of systems that count elements, not bytes (DeepSpeed, Colossal-AI)
  bool overlap = true;
  bool forward_in_no_sync = true;       ///< DDP: the forward pass, too, runs inside no_sync
  bool static_graph = false;            ///< DDP
  bool find_unused_parameters = false;  ///< DDP
  bool coalesce = false;                ///< DeepSpeed: inside coalesce_grad_reduction
  bool multi_rank_bucket = true;        ///< DeepSpeed: use_multi_rank_bucket_allreduce
  enum class Executable : std::uint8_t {
    skip_channels,  ///< one, which skips its all-reduces by channel id in all microbatches but the last
    two,            ///< one with and one without the all-reduces
    branch,         ///< one, with the all-reduces inside a conditional
    separate,       ///< one that accumulates, and one of nothing but the all-reduces
  } executable = Executable::skip_channels;  ///< Alpa: the compiled program that synchronises
  bool rewrite = true;                       ///< Alpa: rewrite_for_grad_acc, old + AR(g) to AR(old + g)
  bool average_in_collective = false;        ///< Megatron: the collective averages, the buffer is not scaled before it
  bool fp32_accumulation = false;            ///< Megatron: reduce-scatters as an all-to-all and a local sum in fp32
  bool overlap_gather = false;  ///< Megatron: updated weights are gathered in the next step's first forward pass
  friend bool operator==(const Sync&, const Sync&) = default;
};

/// What is divided over the data-parallel group.
struct Shard {
  enum class BackwardPrefetch : std::uint8_t { none, pre, post };
  bool params = false, gradients = false, optimizer = false;
  std::int64_t replicas = 1;
  bool reshard_after_forward = true, reshard_after_backward = true;
  bool reshard_last_unit = false;      ///< FSDP2: the last unit, too, is resharded after forward
  std::int64_t gathered_layers = 0;    ///< FSDP2: so many last layers are not resharded after forward
  std::int64_t prefetch_forward = 0;   ///< FSDP2: units gathered ahead of the one that runs, explicitly
  std::int64_t prefetch_backward = 1;  ///< FSDP2
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;  ///< FSDP1
  bool limit_all_gathers = true;                               ///< FSDP1
  std::int64_t reuse_distance = 1000000000;                    ///< ZeRO-3, elements
  std::int64_t persistence_threshold = 100000;                 ///< ZeRO-3, elements
  std::int64_t prefetch_elements = 50000000;                   ///< ZeRO-3
  std::int64_t max_live_elements = 1000000000;                 ///< ZeRO-3
  std::int64_t chunk_elements = 0;                             ///< Gemini: of a chunk; 0: searched for
  std::int64_t min_chunk_elements = 32 << 20;                  ///< Gemini: where the search begins
  friend bool operator==(const Shard&, const Shard&) = default;
};

/// What of a layer's forward pass is not kept for its backward pass, but computed again there.
struct Recompute {
  enum class Policy : std::uint8_t {
    none,
    selective,  ///< the operators named below
    full,       ///< whole layers: only a layer's input is kept
    every_n,    ///< whole layers, one of `every`
    per_op,     ///< all but attention, reduce-scatters, all-to-alls and every other matrix product
  } policy = Policy::none;
  std::int64_t every = 2;
  bool attention = true;      ///< selective: scores and what becomes of them (Korthikanti et al., 2022)
  bool norm = false;          ///< selective: the outputs of norms, which linear layers read
  bool activation = false;    ///< selective: the input of the down projection
  bool feed_forward = false;  ///< selective: all between the second norm and the down projection's output
  bool latent_heads = false;  ///< selective: queries, keys and values, as multi-latent attention makes them
  bool collectives = false;   ///< per_op: reduce-scatters and all-to-alls, too, whose outputs are kept otherwise
  bool needed_only = false;   ///< of all that, only what the backward pass reads is done again, as by torch.compile
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

/// What `selective` selects, by the last word of its key.
struct RecomputedPart {
  std::string_view name;
  bool Recompute::*selected;
};
inline constexpr RecomputedPart kRecomputedParts[] = {{"attention", &Recompute::attention},
                                                      {"norm", &Recompute::norm},
                                                      {"activation", &Recompute::activation},
                                                      {"feed_forward", &Recompute::feed_forward},
                                                      {"latent_heads", &Recompute::latent_heads}};

struct Buffers {
  enum class TpGather : std::uint8_t { fresh, pooled, cached, async, pooled_unsafe } tp_gather = TpGather::fresh;
  /// Whether tensor-parallel inputs are gathered again in the backward pass: what the key recompute.tp_gather says.
  bool gathers_again() const { return tp_gather == TpGather::pooled || tp_gather == TpGather::async; }
  bool gradient_as_bucket_view = false;      ///< DDP
  bool set_to_none = true;                   ///< zero_grad frees gradients instead of zeroing them in place
  bool contiguous_gradients = true;          ///< DeepSpeed, Alpa: gradients are copied into one buffer to be reduced
  bool donate = true;                        ///< Alpa, JAX: a program's outputs take the place of its inputs
  bool mid_updates = false;                  ///< optax.MultiSteps: updates of zeros in all microbatches but the last
  bool stack_gradients = false;              ///< JAX: each microbatch's gradients are kept, and summed at the end
  bool fused_accumulation = false;           ///< Megatron: weight-gradient GEMMs add into the accumulator themselves
  bool deallocate_pipeline_outputs = false;  ///< Megatron, Alpa: a stage's output goes when sent, not with its graph
  bool fused_glu = true;
  bool fused_rope = true;  ///< else queries and keys are rotated into new tensors
  /// Values of multi-latent attention are a view of the product that makes them and keys, and keep it; else a tensor.
  bool latent_value_views = true;
  /// FSDP2: a loss in chunks adds up its parts of the head's gradient in precision.reduce, where that is wider.
  bool wide_chunk_sum = false;
  bool attention_mask = false;  ///< Megatron: a mask of sequence x sequence bytes is loaded with each sample
  friend bool operator==(const Buffers&, const Buffers&) = default;
};

struct Packing {
  bool qkv = false, gate_up = false;  ///< true: one packed parameter
  friend bool operator==(const Packing&, const Packing&) = default;
};

/// The dtypes of one parameter's life. `master` absent: the optimizer updates `params` themselves.
struct Precision {
  DType params = DType::bf16;      ///< weights as computed with
  DType gradients = DType::bf16;   ///< as the backward pass writes them
  DType reduce = DType::bf16;      ///< on the wire
  DType accumulate = DType::bf16;  ///< of the accumulator
  std::optional<DType> master;
  DType optimizer = DType::bf16;  ///< moments
  friend bool operator==(const Precision&, const Precision&) = default;
};

enum class Schedule : std::uint8_t { gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, dualpipe };
enum class OptimizerKind : std::uint8_t { adamw, sgd, sgd_momentum };
/// How the backward passes of a window follow its forward passes.
enum class GradientFlow : std::uint8_t {
  microbatch,       ///< each microbatch has its own
  single_backward,  ///< all forward passes first, then one backward pass of the summed loss
  gradcache,  ///< a contrastive loss over all microbatches: representations first, then each one's own backward pass
};

/// Where the loop over microbatches runs, of systems that compile what it calls (Alpa).
enum class MicrobatchLoop : std::uint8_t {
  runtime,   ///< the host launches an executable per microbatch
  program,   ///< a loop inside one executable
  unrolled,  ///< written out inside one executable
  outside,   ///< the user's own loop over a compiled function that returns gradients
};

/// What a microbatch's loss is divided by, and with it what the collective may not divide by again.
enum class LossScale : std::uint8_t {
  microbatches,   ///< each microbatch's mean loss, by the number of microbatches; the group averages
  global_tokens,  ///< the sum over tokens, by all tokens of the step on all ranks; the group sums
  summed_tokens,  ///< by nothing; the group sums, and that sum of gradients is divided by all tokens of the step
  global_batch,   ///< the mean over the microbatch's tokens on all ranks; the group sums, the update divides by M
};

/// How gradients become new parameters.
struct OptimizerStep {
  enum class Kernel : std::uint8_t {
    fused,     ///< one kernel per block or shard
    foreach_,  ///< one kernel per operation over a list of all tensors, with lists of temporaries
    for_loop,  ///< single operations, tensor by tensor, with temporaries of one tensor
  } kernel = Kernel::fused;
  bool offload = false;      ///< masters (FSDP2's shards) and moments lie in host memory, and the host updates them
  bool in_backward = false;  ///< each parameter is updated as soon as its gradient exists, which then goes
  double clip_norm = 0;      ///< gradients are scaled down to this norm; 0: they are left as they are
  friend bool operator==(const OptimizerStep&, const OptimizerStep&) = default;
};

/// The axes of a strategy, with the defaults of its real system. A named strategy is a preset over them.
struct Axes {
  Sync sync;
  Shard shard;
  Recompute recompute;
  Buffers buffers;
  Packing packing;
  Precision precision;
  OptimizerStep optimizer_step;
  Partition::Loss loss = Partition::Loss::upcast_logits;
  std::int64_t loss_chunk_tokens = 0;  ///< of losses that take the logits of so many tokens at a time; 0: their default
  /// Of the strategy's system; no key of the job. With buffers.tp_gather: async it is own_rows_first.
  Partition::LinearOrder linear_order = Partition::LinearOrder::weight_gradient_first;
  GradientFlow gradient_flow = GradientFlow::microbatch;
  std::int64_t chunks = 0;       ///< GradCache: that the rank's batch is cut into; 0: accumulation_steps
  bool loss_times_ranks = true;  ///< GradCache: undoes DDP's division, which a loss over all ranks does not want
  MicrobatchLoop loop = MicrobatchLoop::runtime;
  LossScale loss_scale = LossScale::microbatches;
  friend bool operator==(const Axes&, const Axes&) = default;
};

/// The microbatches that are left over at the end of an epoch, when the data does not fill the last window.
struct LastWindow {
  enum class Policy : std::uint8_t {
    carry_over,    ///< the next epoch's first microbatches complete the window: a step like any other
    drop,          ///< they run, and zero_grad throws their gradients away
    rescaled,      ///< a step with what there is, the loss divided by the microbatches there are
    not_rescaled,  ///< a step with what there is, the loss divided by accumulation_steps all the same
  } policy = Policy::carry_over;
  std::int64_t microbatches = 0;  ///< 0: the step to predict is a full one
  friend bool operator==(const LastWindow&, const LastWindow&) = default;
};

/// One optimizer step of one training run: everything that decides its memory and time.
struct Job {
  Network network;
  Machine machine;
  std::int64_t sequence_length = 0;        ///< the longest, which decides memory
  std::int64_t mean_sequence_length = 0;   ///< decides time; 0: all are equally long
  std::int64_t micro_batch_size = 1;       ///< sequences per rank per microbatch
  std::int64_t accumulation_steps = 1;     ///< microbatches per optimizer step
  std::int64_t pipeline_microbatches = 0;  ///< of one pipeline flush; 0: all of a step
  LastWindow last_window;
  Layout layout;
  std::string strategy;  ///< a name of sim/strategies; only the lookup compares it
  Axes axes;
  Schedule schedule = Schedule::one_f_one_b;
  OptimizerKind optimizer = OptimizerKind::adamw;
  AllocatorOptions allocator;
  std::map<std::string, std::string>
      sources;  ///< dotted key -> where its value came from ("job.yaml:7", "default of nanotron")

  /// Whether rows of the residual stream lie scattered over tensor-parallel ranks: buffers.tp_gather has no effect
  /// else.
  bool GathersRows() const { return layout.sp && layout.tp > 1; }
  std::int64_t Ranks() const { return layout.GradientRanks() * layout.tp * layout.pp; }
  /// Whether one loss is taken over all microbatches of a step, each of them a chunk of its batch.
  bool CachesRepresentations() const { return axes.gradient_flow == GradientFlow::gradcache; }
  /// Microbatches that the step to predict runs.
  std::int64_t Microbatches() const {
    if (CachesRepresentations()) {
      return axes.chunks > 0 ? axes.chunks : accumulation_steps;
    }
    const bool full = last_window.microbatches == 0 || last_window.policy == LastWindow::Policy::carry_over;
    return full ? accumulation_steps : last_window.microbatches;
  }
  /// Pipeline flushes of the step, one behind the other.
  std::int64_t Flushes() const { return pipeline_microbatches > 0 ? Microbatches() / pipeline_microbatches : 1; }
  /// Of each sequence, on one rank.
  std::int64_t TokensOnRank() const { return sequence_length / layout.cp; }
  /// Where a value came from; empty for a key that the job does not have.
  std::string SourceOf(const std::string& key) const {
    const auto found = sources.find(key);
    return found == sources.end() ? std::string() : found->second;
  }
};

/// Named strategies as the job reader needs them; sim/strategies provides the table.
struct StrategyDefaults {
  std::string name;
  std::string summary;  ///< one line, in the terms of that system's users
  Axes axes;
  bool sp_with_tp = false;                   ///< layout.sp defaults to true where tp > 1, as it does for experts
  bool has_ring = false;                     ///< its system shares sequences in Transformer Engine's ring (layout.cp)
  bool divides_experts = false;              ///< its system divides experts over ranks (layout.ep)
  std::optional<Experts::Layer> experts;     ///< how its system computes them
  std::vector<std::string> keys;             ///< axes that it looks at, beyond those that all strategies do
  std::function<Status(const Job&)> refuse;  ///< the combinations that the real system refuses, with its reason
};

}  // namespace tidemark
