// SPDX-License-Identifier: Apache-2.0
#include "models/job/validate.h"

#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "models/job/check_optimizer_step.h"
#include "models/job/step_totals.h"
#include "models/job/validate_parts.h"

namespace tidemark {
namespace {

/// Half of what fits: sums of two such totals still do.
constexpr long double kLargestTotal = 4611686018427387904.0L;  // 2^62

Error Wrong(std::string key, std::string message, std::string hint = {}) {
  return Error{ErrorCode::bad_input, std::move(key), std::move(message), std::move(hint)};
}

Status CheckTensorParallel(const Job& job) {
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  const std::int64_t tp = job.layout.tp;
  if (decoder == nullptr) {
    return Done{};
  }
  if (decoder->heads % tp != 0) {
    return Wrong("layout.tp", fmt::format("{} attention heads do not divide over {} ranks", decoder->heads, tp),
                 fmt::format("expected a divisor of {}", decoder->heads));
  }
  if (decoder->kv_heads % tp != 0 && tp % decoder->kv_heads != 0) {
    return Wrong(
        "layout.tp",
        fmt::format("{} key-value heads neither divide over {} ranks nor repeat evenly on them", decoder->kv_heads, tp),
        fmt::format("expected a divisor or a multiple of {}", decoder->kv_heads));
  }
  if (decoder->heads % decoder->kv_heads != 0) {
    return Wrong("network.kv_heads",
                 fmt::format("{} attention heads do not divide into groups of {} key-value heads", decoder->heads,
                             decoder->kv_heads),
                 fmt::format("expected a divisor of {}", decoder->heads));
  }
  if (decoder->vocabulary % tp != 0) {
    constexpr std::int64_t kPadding = 128;  // Megatron's make-vocab-size-divisible-by
    return Wrong(
        "network.vocabulary",
        fmt::format("a vocabulary of {} does not divide over {} tensor-parallel ranks", decoder->vocabulary, tp),
        fmt::format("pad it as frameworks do: --set network.vocabulary={}",
                    RoundUp(decoder->vocabulary, kPadding * tp)));
  }
  if (job.layout.sp && job.sequence_length % tp != 0) {
    return Wrong("sequence_length",
                 fmt::format("{} tokens do not divide over {} sequence-parallel ranks", job.sequence_length, tp),
                 fmt::format("expected a multiple of {}", tp));
  }
  return Done{};
}

Status CheckPipeline(const Job& job) {
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  const std::int64_t pp = job.layout.Stages();
  const std::vector<std::int64_t>& stages = job.layout.layers_per_stage;
  if (job.layout.vpp > 1 && job.layout.pp == 1) {
    return Wrong("layout.vpp", "model chunks are dealt out to the ranks of a pipeline, and there is none",
                 "set layout.pp to more than 1, or remove the key");
  }
  if (job.pipeline_microbatches > 0 && job.Microbatches() % job.pipeline_microbatches != 0) {
    return Wrong("pipeline_microbatches",
                 fmt::format("flushes of {} microbatches do not divide the {} of a step", job.pipeline_microbatches,
                             job.Microbatches()),
                 job.Microbatches() == job.accumulation_steps ? "set it to a divisor of accumulation_steps"
                                                              : "set last_window.policy to carry-over");
  }
  if (job.pipeline_microbatches > 0 && job.layout.pp == 1 && job.pipeline_microbatches != job.Microbatches()) {
    return Wrong("pipeline_microbatches", "there is no pipeline to flush",
                 "set layout.pp to more than 1, or remove the key");
  }
  if (!stages.empty() && static_cast<std::int64_t>(stages.size()) != pp) {
    return Wrong("layout.layers_per_stage",
                 fmt::format("names {} stages, but there are {} (layout.pp * layout.vpp)", stages.size(), pp),
                 fmt::format("name {} of them, or remove the key to divide layers evenly", pp));
  }
  if (decoder == nullptr) {
    return Done{};
  }
  const std::int64_t sum = std::accumulate(stages.begin(), stages.end(), std::int64_t{0});
  if (!stages.empty() && sum != decoder->layers) {
    return Wrong("layout.layers_per_stage",
                 fmt::format("adds up to {} layers, but the network has {}", sum, decoder->layers),
                 "remove the key to divide layers evenly");
  }
  if (stages.empty() && decoder->layers % pp != 0) {
    return Wrong("layout.pp", fmt::format("{} layers do not divide into {} stages", decoder->layers, pp),
                 pp > decoder->layers
                     ? fmt::format("a stage has at least one layer: lower layout.pp{}, to {} stages at most",
                                   job.layout.vpp > 1 ? " or layout.vpp" : "", decoder->layers)
                     : "set it to a divisor, or give the layers of every stage: layout.layers_per_stage");
  }
  return Done{};
}

Status CheckAxes(const Job& job) {
  const Axes& axes = job.axes;
  if (job.layout.dp % axes.shard.replicas != 0) {
    return Wrong(
        "shard.replicas",
        fmt::format("{} replicas do not divide the {} data-parallel ranks", axes.shard.replicas, job.layout.dp),
        fmt::format("expected a divisor of {}", job.layout.dp));
  }
  if (axes.recompute.policy != Recompute::Policy::none && std::holds_alternative<Table>(job.network.shape)) {
    return Wrong("recompute.policy", "the rows of a table network are no operators that could be done again",
                 "set recompute.policy to none; a row's saved_bytes and backward_ns say what it recomputes");
  }
  return Done{};
}

Status CheckWindow(const Job& job) {
  const Sync& sync = job.axes.sync;
  const bool custom = sync.when == Sync::When::custom;
  if (custom && sync.expression.empty()) {
    return Wrong("sync.when", "custom needs sync.expression: where gradients are synchronised",
                 "for example sync.expression: (i + 1) % steps == 0");
  }
  if (!custom && !sync.expression.empty()) {
    return Wrong("sync.expression", "is only looked at with sync.when: custom",
                 "set sync.when to custom, or sync.expression to null");
  }
  if (!custom && !sync.step_expression.empty()) {
    return Wrong("sync.step_expression", "is only looked at with sync.when: custom",
                 "set sync.when to custom, or sync.step_expression to null");
  }
  if (custom && job.layout.pp > 1) {
    return Wrong("sync.when", "a pipeline flush is one window: custom works without a pipeline only",
                 "set layout.pp to 1, or sync.when to last");
  }
  const std::int64_t left = job.last_window.microbatches;
  if (left > 0 && custom) {
    return Wrong("last_window.microbatches", "with sync.when: custom the expressions decide what the last window does",
                 "remove last_window");
  }
  if (left > 0 && left >= job.accumulation_steps) {
    return Wrong("last_window.microbatches",
                 fmt::format("{} microbatches fill a window of {}", left, job.accumulation_steps),
                 "expected fewer than accumulation_steps: what the data leaves over");
  }
  if (job.axes.gradient_flow == GradientFlow::single_backward && job.layout.pp > 1) {
    return Wrong("gradient_flow.kind", "one backward pass of the summed loss works without a pipeline only",
                 "set layout.pp to 1; schedule: gpipe runs all forward passes first");
  }
  return Done{};
}

/// What a dual encoder and GradCache ask of each other and of the layout.
Status CheckContrastive(const Job& job) {
  const bool dual = std::holds_alternative<DualEncoder>(job.network.shape);
  if (dual && job.layout.tp > 1) {
    return Wrong("layout.tp", "tensor parallelism of a dual encoder is not modelled", "set layout.tp to 1");
  }
  if (dual && job.layout.pp > 1) {
    return Wrong("layout.pp", "two towers that meet in one loss are not cut into pipeline stages",
                 "set layout.pp to 1");
  }
  if (dual && job.axes.shard.replicas > 1) {
    return Wrong("shard.replicas", "a contrastive loss gathers representations over one group of ranks",
                 "set shard.replicas to 1");
  }
  if (!job.CachesRepresentations()) {
    return job.axes.chunks == 0 ? Status(Done{})
                                : Wrong("gradient_flow.chunks", "is only looked at with gradient_flow.kind: gradcache",
                                        "add --set gradient_flow.chunks=0: the batch is then accumulation_steps "
                                        "microbatches; or set strategy to gradcache");
  }
  if (!dual) {
    return Wrong("gradient_flow.kind", "GradCache is for contrastive losses: the network must be a dual encoder",
                 "give network.dual_encoder, or a strategy such as ddp-last with gradient_flow.kind: microbatch");
  }
  const std::int64_t batch = job.micro_batch_size * job.accumulation_steps;
  if (batch % job.Microbatches() != 0) {
    return Wrong("gradient_flow.chunks",
                 fmt::format("{} samples of a rank do not divide into {} chunks", batch, job.Microbatches()),
                 fmt::format("expected a divisor of {}", batch));
  }
  return Done{};
}

Status CheckMachine(const Job& job) {
  for (const DType dtype : {job.axes.precision.params, DType::fp32}) {
    if (!job.machine.peak.contains(dtype)) {
      return Wrong("machine",
                   fmt::format("{} states no peak for {}, which this job computes in", job.machine.name, Name(dtype)),
                   fmt::format("choose another precision.params, or give machine.peak.{}", Name(dtype)));
    }
  }
  const bool knows_host = job.machine.host_memory_bandwidth.per_second() > 0 && job.machine.host_flops.per_second() > 0;
  if (job.axes.optimizer_step.offload && !knows_host) {
    return Wrong("optimizer_step.offload",
                 "the machine does not say how fast its host is, which would update the parameters",
                 "give the machine host_memory_bandwidth and host_flops, of a whole node");
  }
  return Done{};
}

/// The key that makes a step larger than any: of those that multiply all the rest the one that is furthest beyond what
/// is ever used, or the network's sizes.
Error TooLarge(const Job& job, const std::string& what) {
  struct Factor {
    const char* key;
    std::int64_t value, usual;
  };
  const Factor factors[] = {{"accumulation_steps", job.accumulation_steps, 1 << 14},
                            {"micro_batch_size", job.micro_batch_size, 1 << 12},
                            {"sequence_length", job.sequence_length, 1 << 21},
                            {"layout.dp", job.layout.dp, 1 << 17}};
  const Factor& furthest =
      *std::max_element(std::begin(factors), std::end(factors), [](const Factor& a, const Factor& b) {
        return static_cast<double>(a.value) / static_cast<double>(a.usual) <
               static_cast<double>(b.value) / static_cast<double>(b.usual);
      });
  if (furthest.value <= furthest.usual) {
    return Wrong("network", what, "is a size of the network, or a rate of the machine, mistyped?");
  }
  return Wrong(furthest.key, fmt::format("with {} here, {}", furthest.value, what),
               fmt::format("is it mistyped? {} is more than is ever used", furthest.usual));
}

/// A chunk of GradCache runs forward twice, and both sides' tensors are held.
long double MostMicrobatches(const Job& job) {
  return static_cast<long double>(
      std::max(job.accumulation_steps, (job.CachesRepresentations() ? 2 : 1) * job.Microbatches()));
}

long double Ranks(const Job& job) {
  return static_cast<long double>(job.layout.dp) * static_cast<long double>(job.layout.cp) *
         static_cast<long double>(job.layout.tp) * static_cast<long double>(job.layout.pp);
}

/// That are sent: every parameter is gathered twice and reduced in each microbatch at most.
long double PayloadBytes(const Job& job, const StepTotals& totals) {
  return (totals.payload_bytes + totals.parameters * 16) * (MostMicrobatches(job) + 1);
}

// Everything is bounded from above; jobs of any real size are some powers of ten below.

Status CheckSizes(const Job& job, const std::vector<BlockRun>& blocks) {
  const StepTotals totals = TotalsOf(job, blocks);
  const long double ranks = Ranks(job);
  constexpr long double kBytesPerParameter = 64;  // weights, gradients, accumulator, master, moments, buckets, padding
  const long double state = totals.parameters * kBytesPerParameter * ranks;
  const long double activations = totals.tensor_bytes * (MostMicrobatches(job) + 1);
  if (ranks > 1e9L) {
    return Wrong(
        "layout",
        fmt::format("dp * cp * tp * pp is {:.0f} ranks, more than any machine has", static_cast<double>(ranks)),
        "is a number of ranks mistyped?");
  }
  if (state + activations > kLargestTotal || PayloadBytes(job, totals) > kLargestTotal) {
    return TooLarge(job, "the sizes of this job add up to more than 2^62 bytes");
  }
  return Done{};
}

Status CheckTimes(const Job& job, const std::vector<BlockRun>& blocks) {
  const Machine& machine = job.machine;
  const StepTotals totals = TotalsOf(job, blocks);
  const long double arithmetic =
      std::min(machine.peak.at(job.axes.precision.params).per_second(), machine.peak.at(DType::fp32).per_second()) *
      machine.achievable_flops;
  const long double bandwidth = machine.memory_bandwidth.per_second() * machine.achievable_bandwidth;
  const long double link =
      std::min(machine.intra_node.bandwidth.per_second(), machine.inter_node.bandwidth.per_second());
  const long double latency =
      static_cast<long double>((machine.inter_node.latency + machine.intra_node.latency).count()) * Ranks(job);
  const long double issue = static_cast<long double>((machine.kernel_launch + machine.host_issue).count());
  const long double work = totals.flops / arithmetic + totals.moved_bytes / bandwidth +
                           totals.loaded_bytes / machine.host_link.bandwidth.per_second() + totals.measured_ns / 1e9L;
  constexpr long double kLeaves = 16, kCollectives = 4;  // that an action becomes, with all that is done around it
  const long double nanos =
      MostMicrobatches(job) * (work * 1e9L * machine.overlap_slowdown + (totals.actions * kLeaves + 100) * issue +
                               (totals.actions * kCollectives + 100) * latency) +
      2 * PayloadBytes(job, totals) / link * 1e9L;
  // A single duration is rounded from seconds below 9e9; the engines add and double such totals without checks.
  if (nanos > kLargestTotal / 8) {
    return TooLarge(job, "a step of this job may take more than 18 years");
  }
  return Done{};
}

}  // namespace

Result<std::vector<BlockRun>> ValidateWithoutMachine(const Job& job) {
  TIDEMARK_TRY(CheckContextParallel(job));
  TIDEMARK_TRY(CheckExpertParallel(job));
  TIDEMARK_TRY(CheckTensorParallel(job));
  TIDEMARK_TRY(CheckMeanLength(job));
  TIDEMARK_TRY(CheckPipeline(job));
  TIDEMARK_TRY(CheckAxes(job));
  TIDEMARK_TRY(CheckOptimizerStep(job));
  TIDEMARK_TRY(CheckContrastive(job));
  TIDEMARK_TRY(CheckWindow(job));
  TIDEMARK_TRY(CheckAllocator(job.allocator));
  TIDEMARK_ASSIGN(std::vector<BlockRun> blocks, BuildBlocks(job.network, PartitionOf(job)));
  TIDEMARK_TRY(CheckLossInChunks(job));
  TIDEMARK_TRY(CheckSizes(job, blocks));
  return blocks;
}

Status ValidateOnMachine(const Job& job, const std::vector<BlockRun>& blocks) {
  TIDEMARK_TRY(CheckMachine(job));
  return CheckTimes(job, blocks);
}

Status Validate(const Job& job) {
  TIDEMARK_ASSIGN(const std::vector<BlockRun> blocks, ValidateWithoutMachine(job));
  return ValidateOnMachine(job, blocks);
}

}  // namespace tidemark
