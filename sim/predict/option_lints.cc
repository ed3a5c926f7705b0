// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/option_lints.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "models/job/fields.h"

namespace tidemark {
namespace {

class IdleOptions {
 public:
  IdleOptions(const Job& job, std::vector<Lint>& lints)
      : job_(job), axes_(job.axes), dual_(std::get_if<DualEncoder>(&job.network.shape)), lints_(lints) {}

  void Append() {
    OfAttention();
    OfWindows();
    OfBuffers();
    OfChunks();
    const bool returned =
        axes_.loss == Partition::Loss::upcast_returned || axes_.loss == Partition::Loss::upcast_fp32_returned;
    if (dual_ != nullptr && dual_->lm_loss && returned) {
      Add("loss holds no logits for a caller here: a language model's loss beside a contrastive one returns none",
          "set loss to upcast-logits, which is the same");
    }
    if (std::holds_alternative<Table>(job_.network.shape) && job_.SourceOf("sequence_length") == kCommandLine) {
      Add("sequence_length changes neither bytes nor times of a table network: those of its rows are of whole samples",
          "give the rows of other samples: measure or write them again");
    }
    if (job_.optimizer == OptimizerKind::sgd && axes_.optimizer_step.kernel != OptimizerStep::Kernel::fused) {
      Add("optimizer_step.kernel changes nothing: SGD without momentum is one operation in place",
          "leave optimizer_step.kernel out, or choose another optimizer");
    }
    OfRecomputation();
  }

 private:
  void Add(std::string message, std::string hint) {
    lints_.push_back({"option-without-effect", "note", std::move(message), std::move(hint)});
  }

  template <class Holds>
  bool Any(Holds holds) const {
    return AnyDecoder(job_.network, holds);
  }

  void OfAttention() {
    if (Any([](const Decoder& d) { return d.qkv_views && d.IsLatent(); })) {
      Add("qkv_views changes nothing: multi-latent attention has no packed projection",
          "leave qkv_views out; buffers.latent_value_views is what it has");
    } else if (!axes_.packing.qkv && Any([](const Decoder& d) { return d.qkv_views; })) {
      Add("qkv_views changes nothing: without packing.qkv there is no packed projection to be a view of",
          "leave qkv_views out, or set packing.qkv to packed");
    }
    const bool latent = Any([](const Decoder& d) { return d.IsLatent(); });
    if (latent && job_.SourceOf("packing.qkv") == kCommandLine) {
      Add("packing.qkv changes nothing: multi-latent attention has no packed projection", "leave packing.qkv out");
    }
    if (job_.SourceOf("buffers.latent_value_views") == kCommandLine && (!latent || job_.layout.cp > 1)) {
      Add(latent ? "buffers.latent_value_views changes nothing: a ring (layout.cp) takes values of their own"
                 : "buffers.latent_value_views changes nothing: there is no multi-latent attention",
          "leave buffers.latent_value_views out");
    }
    const auto normalises = [](const Decoder& d) { return d.qk_norm; };
    if (!Any(normalises) && job_.SourceOf("network.qk_norm_over") == kCommandLine) {
      Add("qk_norm_over changes nothing: there are no norms of queries and keys",
          "leave qk_norm_over out, or set qk_norm to true");
    }
    const auto keeps_no_mask = [](const Decoder& d) {
      return d.attention_dropout > 0 && d.attention_kernel == Decoder::AttentionKernel::flash;
    };
    if (Any(keeps_no_mask) && job_.SourceOf("network.attention_dropout") == kCommandLine) {
      Add("attention_dropout changes nothing: a flash kernel keeps no mask",
          "leave attention_dropout out, or choose an attention_kernel that keeps one: eager");
    }
  }

  void OfWindows() {
    const std::int64_t tokens = job_.sequence_length;
    const auto has_window = [](const Decoder& d) { return d.sliding_window > 0; };
    const auto hides = [tokens](const Decoder& d) { return d.HidesOf(tokens); };
    const auto leaves_out = [tokens](const Decoder& d) {
      return d.HidesOf(tokens) && d.attention_kernel == Decoder::AttentionKernel::flash;
    };
    if (Any(has_window) && !Any(leaves_out) && job_.SourceOf("network.sliding_window") == kCommandLine) {
      Add(Any(hides) ? "sliding_window changes neither bytes nor times: eager attention makes all scores"
                     : "sliding_window changes nothing: no sequence has more tokens than that",
          Any(hides) ? "leave sliding_window out, or set attention_kernel to flash"
                     : "leave sliding_window out, or set it to less than sequence_length");
    }
    const auto lets_one_see_all = [](const Decoder& d) { return d.sliding_window > 0 && d.LayersWithoutWindow() > 0; };
    const auto every = [](const Decoder& d) { return d.full_attention_every > 0; };
    if (Any(every) && !Any(lets_one_see_all) && job_.SourceOf("network.full_attention_every") == kCommandLine) {
      Add(Any(has_window) ? "full_attention_every changes nothing: the network has fewer layers"
                          : "full_attention_every changes nothing: no layer has a window",
          Any(has_window) ? "leave full_attention_every out, or lower it"
                          : "leave full_attention_every out, or set sliding_window");
    }
  }

  void OfBuffers() {
    const auto rotates = [&](const Decoder& d) {
      return d.rope && (d.IsLatent() || !(d.qkv_views && axes_.packing.qkv));
    };
    const auto reads_table = [](const Decoder& d) { return d.rotary_table != Decoder::RotaryTable::none; };
    if (!axes_.buffers.fused_rope && !Any(rotates) && !Any(reads_table)) {
      Add("buffers.fused_rope changes nothing: no queries are rotated that are tensors of their own",
          "leave buffers.fused_rope out");
    }
    if (!axes_.buffers.fused_rope && axes_.recompute.policy == Recompute::Policy::per_op && Any(rotates)) {
      Add("buffers.fused_rope changes nothing: under recompute.policy per_op rotations make tensors of their own",
          "leave buffers.fused_rope out");
    }
    if (!axes_.buffers.fused_glu && !Any([](const Decoder& d) { return d.ffn_kind == Decoder::Ffn::glu; })) {
      Add("buffers.fused_glu changes nothing: the network has no gated activation", "leave buffers.fused_glu out");
    }
  }

  void OfChunks() {
    if (job_.SourceOf("buffers.wide_chunk_sum") == kCommandLine && axes_.loss != Partition::Loss::chunked) {
      Add("buffers.wide_chunk_sum changes nothing: it is for loss chunked", "leave buffers.wide_chunk_sum out");
    }
  }

  /// Keys of `recompute` that another policy does not look at, or whose work changes no byte.
  void OfRecomputation() {
    const Recompute& recompute = axes_.recompute;
    if (recompute.policy != Recompute::Policy::every_n && recompute.every != Recompute().every) {
      Add("recompute.every changes nothing: another recompute.policy does not count layers",
          "leave recompute.every out, or set recompute.policy to every_n");
    }
    if (recompute.needed_only && recompute.policy == Recompute::Policy::none) {
      Add("recompute.needed_only changes nothing: nothing is computed again",
          "leave recompute.needed_only out, or set recompute.policy");
    }
    const bool communicates = job_.layout.sp || job_.layout.ep > 1;
    if (recompute.collectives && !(recompute.policy == Recompute::Policy::per_op && communicates)) {
      Add("recompute.collectives changes nothing: it is for recompute.policy per_op where layers communicate "
          "(layout.sp, layout.ep)",
          "leave recompute.collectives out");
    }
    const auto selects = [&](const RecomputedPart& part) { return recompute.*part.selected; };
    if (recompute.policy != Recompute::Policy::selective) {
      const auto is_said = [&](const RecomputedPart& part) { return selects(part) != Recompute().*part.selected; };
      if (std::ranges::any_of(kRecomputedParts, is_said)) {
        Add("the parts that recompute names change nothing: only recompute.policy selective looks at them",
            "leave them out, or set recompute.policy to selective");
      }
      return;
    }
    if (std::ranges::none_of(kRecomputedParts, selects)) {
      Add("recompute.policy selective changes nothing: no part is selected",
          "set recompute.norm to true, or recompute.policy to none");
    }
    if (recompute.activation && recompute.feed_forward) {
      Add("recompute.activation changes nothing: the activation is part of the feed-forward",
          "set recompute.activation to false");
    }
    if (recompute.latent_heads && !Any([](const Decoder& d) { return d.IsLatent(); })) {
      Add("recompute.latent_heads changes nothing: there is no multi-latent attention",
          "leave recompute.latent_heads out");
    }
    if (recompute.norm && !Any([](const Decoder& d) { return d.NormalisesInputs(); })) {
      Add("recompute.norm changes nothing: layers have no norms in front of their linear layers",
          "set recompute.norm to false");
    } else if (recompute.norm && job_.GathersRows() && !axes_.buffers.gathers_again()) {
      Add("recompute.norm drops no norm's output: linear layers keep the rows they gathered from it",
          "set recompute.norm to false, or gather again where the strategy can: buffers.tp_gather: pooled");
    }
  }

  const Job& job_;
  const Axes& axes_;
  const DualEncoder* dual_;
  std::vector<Lint>& lints_;
};

}  // namespace

void AppendIdleOptions(const Job& job, std::vector<Lint>& lints) { IdleOptions(job, lints).Append(); }

}  // namespace tidemark
