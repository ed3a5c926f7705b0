// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/lints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "models/findings/findings.h"
#include "models/job/fields.h"
#include "models/job/validate.h"
#include "sim/lower/rank_parameters.h"
#include "sim/lower/window.h"
#include "sim/predict/host_lints.h"
#include "sim/predict/option_lints.h"
#include "sim/schedules/pipeline_schedule.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// From here on the error of a bf16 sum (0.7 %) is well above that of rounding the exact sum once (0.17 %).
constexpr std::int64_t kManyMicrobatches = 32;
/// A mask that is worth a note: that of a sequence of 8,192 tokens.
constexpr Bytes kLargeMask(std::int64_t{8192} * 8192);

constexpr double kLargestFp16 = 65504;

class Linter {
 public:
  Linter(const Job& job, const Strategy& strategy) : job_(job), strategy_(strategy), axes_(job.axes) {}

  std::vector<Lint> Run() && {
    Windows();
    MeanOfMeans();
    Synchronisation();
    LowPrecision();
    Memory();
    AppendHostWork(job_, strategy_, lints_);
    Gathers();
    AppendIdleOptions(job_, lints_);
    Recomputation();
    Contrastive();
    Pipeline();
    return std::move(lints_);
  }

 private:
  void Add(std::string id, std::string severity, std::string message, std::string hint) {
    TIDEMARK_CHECK(FindKnownFinding(id) != nullptr);
    lints_.push_back({std::move(id), std::move(severity), std::move(message), std::move(hint)});
  }
  bool Accumulates() const { return job_.Microbatches() > 1; }

  void WrongGradient() {
    if (const auto wrong = strategy_.DeclaredWrong(job_)) {
      Add("wrong-gradient", "error", wrong->reason, wrong->hint);
      TIDEMARK_CHECK(FindKnownFinding(wrong->cause) != nullptr);
      lints_.back().cause = wrong->cause;
    }
  }

  void Windows() {
    WrongGradient();
    LeftOver();
    const LastWindow& last = job_.last_window;
    if (last.microbatches > 0 && last.policy == LastWindow::Policy::drop) {
      Add("dropped-microbatches", "note",
          fmt::format("{} microbatches are computed and their gradients thrown away", last.microbatches),
          "do not load them, or step with them: last_window.policy: rescaled");
    }
  }

  /// Microbatches behind the last optimizer step of a loop with a predicate of its own.
  void LeftOver() {
    const Result<std::vector<WindowRun>> windows = WindowsOf(job_);
    if (!windows || axes_.sync.when != Sync::When::custom) {
      return;
    }
    std::int64_t left = 0;
    for (auto run = windows->rbegin(); run != windows->rend() && !run->place.last; ++run) {
      left += run->count;
    }
    if (left > 0) {
      Add("left-over-microbatches", "warning",
          fmt::format("{} of {} microbatches come after the last optimizer step: here their gradients are thrown away, "
                      "in a loop that does not zero them they are added to the next window's",
                      left, job_.Microbatches()),
          "step behind the last one as well: (...) or i == steps - 1");
    }
  }

  /// Microbatches of unequal length whose means are averaged.
  void MeanOfMeans() {
    const bool uneven = job_.mean_sequence_length > 0 && job_.mean_sequence_length != job_.sequence_length;
    const auto* dual = std::get_if<DualEncoder>(&job_.network.shape);
    const bool over_tokens = dual == nullptr || dual->lm_loss;
    const std::int64_t means =
        job_.Microbatches() * (axes_.loss_scale == LossScale::global_batch ? 1 : job_.layout.GradientRanks());
    const bool counts = axes_.loss_scale == LossScale::global_tokens || axes_.loss_scale == LossScale::summed_tokens;
    if (!uneven || !over_tokens || counts || means == 1) {
      return;
    }
    std::string counting;
    for (const auto& [scale, name] :
         {std::pair(LossScale::global_tokens, "global-tokens"), std::pair(LossScale::summed_tokens, "summed-tokens")}) {
      Job counted = job_;
      counted.axes.loss_scale = scale;
      counting = counting.empty() && strategy_.Accept(counted).ok() ? name : counting;
    }
    Add("mean-of-means", "warning",
        fmt::format("sequences have {} tokens on average and {} at most: the mean of {} microbatches' mean losses is "
                    "not the mean over tokens",
                    Grouped(job_.mean_sequence_length), Grouped(job_.sequence_length), Grouped(means)),
        !counting.empty()
            ? fmt::format("divide by all tokens of the window: loss_scale={}", counting)
            : fmt::format(
                  "count the tokens of the whole window on all ranks before the first backward pass, and divide "
                  "by them; {} does not, another strategy does: strategy=fsdp2-scatter-each with "
                  "loss_scale=global-tokens",
                  job_.strategy));
  }

  /// Whether a user gave this key: in a line of a file, or at the command line.
  bool IsGiven(const std::string& key) const {
    const std::string source = job_.SourceOf(key);
    return source == "--set" || source.find(':') != std::string::npos;
  }

  bool LooksAt(std::string_view key) const {
    const std::vector<std::string>& keys = strategy_.defaults.keys;
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  /// How to stop reducing in every microbatch, if this system can.
  std::string HowToDefer() const {
    Job deferred = job_;
    deferred.axes.sync.when = Sync::When::last;
    if (strategy_.Accept(deferred).ok()) {
      return fmt::format(
          "reduce in the last microbatch only: sync.when: last{}",
          LooksAt("sync.forward_in_no_sync") ? " (forward and backward of the others inside no_sync)" : "");
    }
    return strategy_.defer_hint != nullptr
               ? strategy_.defer_hint
               : fmt::format("{} cannot defer; a strategy that keeps whole gradients can", job_.strategy);
  }

  void Synchronisation() {
    StaticGraph();
    if (!Accumulates() || job_.layout.GradientRanks() == 1) {
      return;
    }
    if (axes_.sync.when == Sync::When::last && !axes_.sync.forward_in_no_sync) {
      Add("forward-outside-no-sync", "warning",
          fmt::format("DDP decides at the forward pass: outside no_sync it all-reduces {} times a step, whatever "
                      "encloses the backward pass",
                      job_.Microbatches()),
          "put the forward pass inside no_sync as well: sync.forward_in_no_sync: true");
    }
    if (axes_.sync.when == Sync::When::every && axes_.sync.collective == CollectiveKind::all_reduce) {
      Add("sync-every-microbatch", "warning",
          fmt::format("gradients are all-reduced {} times a step, although only their sum is used",
                      job_.Microbatches()),
          HowToDefer());
    }
  }

  void StaticGraph() {
    const Result<std::vector<WindowRun>> windows = WindowsOf(job_);
    const bool one_pass = axes_.gradient_flow == GradientFlow::single_backward;  // which synchronises
    if (axes_.sync.static_graph && axes_.sync.forward_in_no_sync && !one_pass && windows &&
        !windows->front().place.synchronises) {
      Add("static-graph-with-no-sync", "warning",
          "PyTorch since 2.1 counts static_graph's first iteration by backward passes: a first one inside no_sync "
          "fails "
          "an internal assertion, or gradients are reduced no more; what is predicted is what it is meant to do",
          "leave sync.static_graph at false while microbatches accumulate inside no_sync");
    }
  }

  /// How to keep the running sum in fp32, if this system can: by the sum's own key, or with those that must agree.
  std::string HowToSumInFp32(const RunningSum& sum) const {
    const std::vector<std::string> all = {sum.key, "precision.reduce", "precision.master", "precision.optimizer"};
    for (std::size_t keys = 1; keys <= all.size(); ++keys) {
      Job wide = job_;
      for (const Field<Job>& field : JobFields()) {
        if (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keys), field.key) !=
            all.begin() + static_cast<std::ptrdiff_t>(keys)) {
          TIDEMARK_CHECK(field.read(wide, MakeScalar("fp32", {})).ok());
        }
      }
      if (strategy_.Accept(wide).ok() && strategy_.SumOf(wide).dtype == DType::fp32) {
        return fmt::format("keep the sum in fp32 ({}: fp32), or use fewer, larger microbatches",
                           fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keys), ", "));
      }
    }
    return fmt::format("use fewer, larger microbatches: {} cannot keep this sum in fp32", job_.strategy);
  }

  void LowPrecision() {
    const std::int64_t microbatches = job_.Microbatches();
    const RunningSum sum = strategy_.SumOf(job_);
    if (microbatches >= kManyMicrobatches && (sum.dtype == DType::bf16 || sum.dtype == DType::fp16)) {
      Add("low-precision-sum", "warning",
          fmt::format("{} microbatches are summed in {}: expect a relative error of about {:.1f} % in zero-mean "
                      "gradients, more where they agree in sign",
                      microbatches, Name(sum.dtype), 0.12 * std::sqrt(static_cast<double>(microbatches))),
          HowToSumInFp32(sum));
    }
    if (Accumulates() && sum.dtype == DType::fp16 && sum.raised > 1) {
      Add("early-overflow", "warning",
          fmt::format("whenever a microbatch is added the sum is multiplied by {} in fp16: gradients beyond {:.0f} "
                      "overflow, not only those beyond {:.0f}",
                      sum.raised, kLargestFp16 / static_cast<double>(sum.raised), kLargestFp16),
          "compute in bf16: precision.params, precision.gradients and precision.accumulate");
    }
  }

  void Memory() {
    const bool defers = Accumulates() && axes_.sync.when == Sync::When::last;
    if (defers && axes_.buffers.gradient_as_bucket_view && axes_.buffers.set_to_none) {
      Add("view-and-set-to-none", "note",
          "bucket views save nothing while gradients accumulate: those of a no_sync microbatch are fresh tensors "
          "beside the buckets",
          "zero gradients in place as well: buffers.set_to_none: false");
    }
    if (axes_.gradient_flow == GradientFlow::single_backward && Accumulates()) {
      Add("retained-graphs", "warning",
          fmt::format("the activations of all {} microbatches are held until the one backward pass",
                      job_.Microbatches()),
          "give every microbatch its own backward pass: a strategy such as ddp-last, with gradient_flow.kind: "
          "microbatch");
    }
    if (axes_.buffers.stack_gradients && Accumulates()) {
      Add("stacked-gradients", "warning",
          fmt::format("the gradients of all {} microbatches are kept until they are summed", job_.Microbatches()),
          LooksAt("buffers.stack_gradients") ? "keep a running sum: buffers.stack_gradients: false"
                                             : strategy_.defer_hint);
    }
    const Bytes mask(job_.micro_batch_size * job_.sequence_length * job_.sequence_length);
    if (axes_.buffers.attention_mask && mask >= kLargeMask) {
      Add("loaded-mask", "note",
          fmt::format(
              "each microbatch brings a mask of {} to the first and the last stage, which causal attention does "
              "not read",
              Text(mask)),
          "leave it out of the data loader: --no-create-attention-mask-in-dataloader, buffers.attention_mask: false");
    }
    if (job_.layout.cp > 1 && !strategy_.defaults.has_ring) {
      Add("ring-of-another-system", "note",
          fmt::format("{} ranks share each sequence in the ring of Transformer Engine, which the system of {} has not: "
                      "what it does instead may take other bytes and times",
                      job_.layout.cp, job_.strategy),
          "use megatron or megatron-dist-opt, whose ring it is");
    }
    if (const Experts* experts = ExpertsOf(job_.network);
        experts != nullptr && strategy_.defaults.experts != experts->layer) {
      const bool megatrons = experts->layer == Experts::Layer::megatron;
      Add("experts-of-another-system", "note",
          fmt::format("layers have the experts of {}, which the system of {} computes in another way: what it saves, "
                      "and what a layer takes on its way, may be other bytes and times",
                      megatrons ? "Megatron-LM" : "torchtitan", job_.strategy),
          ExpertsHint(*experts));
    }
    // torchtitan's networks have such tables, and FSDP2's strategies its experts.
    if (const auto* d = std::get_if<Decoder>(&job_.network.shape);
        d != nullptr && d->tied_embeddings && d->rotary_table != Decoder::RotaryTable::none &&
        strategy_.defaults.experts == Experts::Layer::torchtitan) {
      const std::int64_t table = d->vocabulary * d->hidden / job_.layout.tp;
      const std::int64_t shard = table / (job_.layout.GradientRanks() / axes_.shard.replicas);
      Add("tied-embedding-gathered-twice", "note",
          fmt::format("under torchtitan's spmd_types each use of the tied embedding is a parameter to FSDP2: {} for a "
                      "second gathered copy and {} for a second shard of its gradient are not in these numbers",
                      Text(SizeOf(PartitionOf(job_).compute) * table), Text(SizeOf(axes_.precision.reduce) * shard)),
          "with spmd_backend partial_dtensor torchtitan gathers one copy, as priced");
    }
    const std::int64_t bucket = strategy_.fixed_bucket == nullptr ? 0 : strategy_.fixed_bucket(job_);
    if (const std::int64_t parameters = RankParameters(job_); bucket > parameters) {
      Add("bucket-larger-than-model", "note",
          fmt::format("the gradient bucket holds {} elements, whatever the model's size; this rank has {} parameters",
                      Grouped(bucket), Grouped(parameters)),
          fmt::format("sync.bucket_elements={} holds them all (DeepSpeed: reduce_bucket_size)", parameters));
    }
  }

  std::string ExpertsHint(const Experts& experts) const {
    if (experts.layer == Experts::Layer::torchtitan) {
      return fmt::format("use fsdp2-scatter-each or another of FSDP2's, whose tables they are{}",
                         job_.layout.ep * job_.layout.tp > 1 ? ", with layout.ep and layout.tp 1" : "");
    }
    Job torchtitans = job_;
    auto& own = std::get<Decoder>(torchtitans.network.shape).experts;
    own.layer = Experts::Layer::torchtitan;
    own.router_fp32 = true;
    return strategy_.defaults.experts && Validate(torchtitans) && strategy_.Accept(torchtitans)
               ? "price torchtitan's: network.experts.layer=torchtitan, network.experts.router_fp32=true"
               : "use megatron or megatron-dist-opt, whose tables they are";
  }

  void Gathers() {
    const Buffers::TpGather usual = strategy_.defaults.axes.buffers.tp_gather;
    if (job_.GathersRows() || axes_.buffers.tp_gather == usual) {
      return;
    }
    Add("gather-without-effect", "note",
        job_.layout.tp == 1 ? "buffers.tp_gather changes nothing: one tensor-parallel rank gathers nothing"
                            : "buffers.tp_gather changes nothing: without sequence parallelism inputs are whole on "
                              "every tensor-parallel rank",
        job_.layout.tp == 1 ? "leave buffers.tp_gather out, or raise layout.tp"
                            : "leave buffers.tp_gather out, or set layout.sp to true");
  }

  void Recomputation() {
    const Recompute& recompute = axes_.recompute;
    const bool selects = recompute.policy == Recompute::Policy::selective;
    if (selects && recompute.attention && HasFlashAttention()) {
      Add("recompute-without-gain", "warning",
          "a flash kernel keeps no scores: doing attention again costs its forward pass and saves the row sums only",
          "set recompute.attention to false and a part that saves something, as recompute.activation, to true");
    }
  }

  bool HasFlashAttention() const {
    const auto* dual = std::get_if<DualEncoder>(&job_.network.shape);
    const auto* decoder = dual != nullptr ? &dual->first : std::get_if<Decoder>(&job_.network.shape);
    const auto is_flash = [](const Decoder& d) { return d.attention_kernel == Decoder::AttentionKernel::flash; };
    return decoder != nullptr && is_flash(*decoder) && (dual == nullptr || is_flash(dual->second));
  }

  void Contrastive() {
    const bool contrastive = std::holds_alternative<DualEncoder>(job_.network.shape);
    if (!contrastive) {
      return;
    }
    const bool gathers = std::get<DualEncoder>(job_.network.shape).gather;
    if (!job_.CachesRepresentations() && Accumulates()) {
      const std::int64_t pairs = job_.micro_batch_size * (gathers ? job_.layout.dp : 1);
      Add("contrastive-accumulation", "error",
          fmt::format("a contrastive loss in each of {} microbatches compares {} pairs at a time, not {}: fewer "
                      "negatives than one batch has, which no sum of gradients brings back",
                      job_.Microbatches(), Grouped(pairs), Grouped(pairs * job_.Microbatches())),
          "take one loss over the whole batch: strategy: gradcache");
    }
    if (!gathers && job_.layout.dp > 1) {
      const std::int64_t own = job_.micro_batch_size * (job_.CachesRepresentations() ? job_.accumulation_steps : 1);
      Add("contrastive-without-gather", "error",
          fmt::format(
              "a contrastive loss on each of {} ranks compares {} pairs, not {}: its gradient is not a multiple "
              "of that of the whole batch",
              job_.layout.dp, Grouped(own), Grouped(own * job_.layout.dp)),
          "gather representations before the loss: network.dual_encoder.gather: true");
    }
  }

  void Pipeline() {
    const std::int64_t microbatches = job_.Microbatches() / job_.Flushes();
    if (job_.layout.pp == 1) {
      if (job_.schedule != Job().schedule && IsGiven("schedule")) {
        Add("option-without-effect", "note",
            fmt::format("schedule {} changes nothing: there is one pipeline stage", ScheduleOf(job_.schedule).name),
            "leave schedule out, or raise layout.pp");
      }
      return;
    }
    if (microbatches < job_.layout.pp) {
      Add("pipeline-underfilled", "warning",
          fmt::format("{} microbatches cannot keep {} pipeline stages busy", microbatches, job_.layout.pp),
          HowToFill(job_, fmt::format("{} or more", job_.layout.pp)) + ", or lower layout.pp");
    }
    const std::vector<Schedule>& shipped = strategy_.schedules;
    if (std::find(shipped.begin(), shipped.end(), job_.schedule) == shipped.end()) {
      std::vector<std::string> names;
      for (const Schedule kind : shipped) {
        names.push_back(ScheduleOf(kind).name);
      }
      Add("schedule-not-shipped", "note",
          fmt::format("the system of {} does not ship the schedule {}", job_.strategy, ScheduleOf(job_.schedule).name),
          fmt::format("it ships {}", fmt::join(names, ", ")));
    }
  }

  const Job& job_;
  const Strategy& strategy_;
  const Axes& axes_;
  std::vector<Lint> lints_;
};

}  // namespace

std::vector<Lint> LintJob(const Job& job) {
  const Result<Strategy> strategy = FindStrategy(job.strategy);
  return strategy ? Linter(job, *strategy).Run() : std::vector<Lint>();
}

}  // namespace tidemark
