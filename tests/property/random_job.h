// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "models/job/job.h"
#include "models/job/validate.h"
#include "models/machine/rates.h"
#include "models/network/loss_in_chunks.h"
#include "sim/strategies/strategy.h"
#include "tests/property/random_experts.h"
#include "tests/property/random_latent_attention.h"
#include "tests/property/random_norms.h"
#include "tests/property/random_ring.h"
#include "tests/property/random_sliding_window.h"
#include "tests/sim/axis_values.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// The decoder, or the first tower of a dual encoder.
inline const Decoder& TowerOf(const Network& network) {
  const auto* encoders = std::get_if<DualEncoder>(&network.shape);
  return encoders != nullptr ? encoders->first : std::get<Decoder>(network.shape);
}

/// Makes small random jobs that their strategy accepts: networks, layouts, windows, buckets and machines, drawn so that
/// awkward cases are common rather than rare.
class JobGenerator {
 public:
  explicit JobGenerator(std::uint64_t seed)
      : dice_(seed),
        recompute_dice_(seed + 1),
        allocator_dice_(seed + 2),
        later_rates_dice_(seed + 3),
        ring_dice_(seed + 4),
        expert_dice_(seed + 5),
        norm_dice_(seed + 6),
        latent_dice_(seed + 7),
        window_dice_(seed + 8),
        strategies_(AllStrategies()) {}

  Job Next() {
    while (true) {
      Job job = RandomJob();
      // Not every strategy has pipelines, or one rank only: another one is drawn for the same job.
      for (int tries = 0; tries < 40; ++tries) {
        if (ChooseStrategy(job)) {
          VaryAllocator(job);
          return job;
        }
      }
    }
  }

 private:
  Job RandomJob() {
    Job job;
    job.machine = RandomMachine();
    job.optimizer = static_cast<OptimizerKind>(dice_.Roll(3));
    const bool pipeline = dice_.Roll(100) < 52;
    job.layout.pp = pipeline ? dice_.Number(2, 4) : 1;
    job.layout.dp = dice_.Roll(100) < 36 ? 1 : dice_.Number(2, 9);
    job.layout.tp = dice_.OneIn(4) ? 2 : 1;
    job.network = {"random", RandomDecoder(job.layout), {}};
    if (job.layout.pp == 1 && dice_.OneIn(6)) {
      job.layout.tp = 1;
      job.network.shape = RandomEncoders();
    } else if (dice_.OneIn(6)) {
      job.network.trainable = {dice_.OneIn(2) ? "head.*" : "layer.*"};
    }
    job.sequence_length = 8 * dice_.Number(1, 4);
    job.micro_batch_size = dice_.Number(1, 3);
    job.accumulation_steps = RandomWindow(job.layout.pp);
    ChooseSchedule(job);
    PutRing(job, ring_dice_);
    PutLatentAttention(job, latent_dice_);
    PutExperts(job, expert_dice_);
    PutNorms(job, norm_dice_);
    PutSlidingWindow(job, window_dice_);
    return job;
  }

  Decoder RandomDecoder(Layout& layout) {
    Decoder decoder;
    decoder.layers = layout.pp * dice_.Number(1, 3) + (layout.pp == 1 ? dice_.Number(0, 6) : 0);
    if (layout.pp > 1 && dice_.Roll(100) < 70) {
      for (std::int64_t i = 0; i + 1 < layout.pp; ++i) {
        layout.layers_per_stage.push_back(i == 0 ? dice_.Number(2, 4) : dice_.Number(1, 4));
      }
      layout.layers_per_stage.push_back(1);
      decoder.layers = std::accumulate(layout.layers_per_stage.begin(), layout.layers_per_stage.end(), std::int64_t{0});
    }
    decoder.kv_heads = 2 * dice_.Number(1, 2);
    decoder.heads = decoder.kv_heads * dice_.Number(1, 2);
    decoder.head_size = 8;
    decoder.hidden = decoder.heads * decoder.head_size;
    decoder.ffn = 2 * dice_.Number(8, 40);
    decoder.vocabulary = 2 * dice_.Number(20, 400);
    decoder.tied_embeddings = dice_.Roll(100) < 42;
    if (dice_.OneIn(3)) {
      decoder.norm = Decoder::Norm::layer;
      decoder.ffn_kind = Decoder::Ffn::two_layer;
      decoder.rope = false;
      decoder.positions = 64;
      decoder.qkv_bias = decoder.linear_bias = true;
      decoder.dropout = dice_.OneIn(2) ? 0.1 : 0;
    } else if (dice_.OneIn(3)) {
      decoder.norm_kernel = static_cast<Decoder::NormKernel>(dice_.Roll(4));
    }
    if (dice_.OneIn(3)) {
      decoder.attention_kernel = static_cast<Decoder::AttentionKernel>(dice_.Roll(3));
      decoder.attention_dropout = dice_.OneIn(2) ? 0.1 : 0;
    }
    decoder.qkv_views = dice_.OneIn(4);
    decoder.qk_norm = !decoder.qkv_views && norm_dice_.OneIn(4);
    decoder.rotary_table = static_cast<Decoder::RotaryTable>(decoder.rope ? norm_dice_.Roll(3) : 0);
    return decoder;
  }

  DualEncoder RandomEncoders() {
    Layout one_stage;
    DualEncoder network;
    network.first = RandomDecoder(one_stage);
    network.shared = dice_.OneIn(3);
    network.second = network.shared ? network.first : RandomDecoder(one_stage);
    network.first.causal = network.second.causal = false;
    network.gather = !dice_.OneIn(4);
    network.lm_loss = dice_.OneIn(3);
    network.representation = dice_.OneIn(2) ? network.first.hidden : 8 * dice_.Number(1, 9);
    network.targets = dice_.OneIn(3) ? dice_.Number(2, 3) : 1;
    return network;
  }

  std::int64_t RandomWindow(std::int64_t stages) {
    if (dice_.Roll(100) < 33) {
      return 1;
    }
    return dice_.OneIn(4) ? stages * dice_.Number(1, 3) : dice_.Number(2, 13);
  }

  static bool Accepts(const Strategy& strategy, const Job& job) {
    return Validate(job).ok() && strategy.Accept(job).ok();
  }

  void ChooseSchedule(Job& job) {
    using enum Schedule;
    job.schedule = dice_.OneIn(20)   ? interleaved
                   : dice_.OneIn(20) ? dualpipe
                                     : std::array{gpipe, one_f_one_b, zb_h1, zb_h2}[dice_.Roll(4)];
    job.layout.vpp = 1;
    job.pipeline_microbatches = 0;
    if (job.layout.pp == 1) {
      return;
    }
    if (job.schedule == Schedule::interleaved) {
      job.layout.vpp = dice_.Number(2, 3);
      job.layout.layers_per_stage.clear();
      std::get<Decoder>(job.network.shape).layers = job.layout.Stages() * dice_.Number(1, 3);
      job.accumulation_steps = job.layout.pp * dice_.Number(1, 4);
    } else if (job.schedule == Schedule::dualpipe) {
      job.accumulation_steps = 2 * (job.layout.pp + dice_.Number(0, 4));
    }
    if (dice_.OneIn(10)) {
      job.pipeline_microbatches = job.accumulation_steps;
      job.accumulation_steps *= dice_.Number(1, 3);
    }
  }

  /// Dresses the job for a random strategy; false if that one does not accept it.
  bool ChooseStrategy(Job& job) {
    const Strategy& strategy = strategies_[dice_.Roll(strategies_.size())];
    const std::vector<std::string>& keys = strategy.defaults.keys;
    const auto looks_at = [&](const char* key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); };
    const bool buckets = looks_at("sync.bucket_bytes") || looks_at("sync.bucket_elements");
    if (!buckets && dice_.OneIn(2)) {
      return false;  // keeps jobs with buckets the majority
    }
    job.strategy = strategy.defaults.name;
    job.axes = strategy.defaults.axes;
    job.layout.sp = job.layout.tp > 1 && (strategy.defaults.sp_with_tp || dice_.OneIn(2));
    job.last_window = {};
    job.mean_sequence_length = 0;
    if (looks_at("shard.replicas")) {
      job.axes.shard.replicas = dice_.OneIn(2) && job.layout.dp % 2 == 0 ? 2 : dice_.OneIn(2) ? job.layout.dp : 1;
    }
    if (job.layout.ep > 1 && looks_at("shard.reshard_after_forward")) {  // FSDP2 means over all tokens then, or nothing
      job.axes.loss_scale = LossScale::global_tokens;
      job.axes.shard.replicas = 1;
    }
    if (!Accepts(strategy, job)) {
      Job all_forwards_first = job;
      all_forwards_first.schedule = Schedule::gpipe;
      all_forwards_first.layout.vpp = 1;
      all_forwards_first.pipeline_microbatches = 0;
      if (job.layout.pp == 1 || !Accepts(strategy, all_forwards_first)) {
        return false;
      }
      job = std::move(all_forwards_first);
    }
    Vary(job, strategy);
    if (buckets) {
      RandomBuckets(job);
      if (!looks_at("sync.first_bucket_bytes")) {
        job.axes.sync.first_bucket_bytes = strategy.defaults.axes.sync.first_bucket_bytes;
      }
    }
    return Accepts(strategy, job);
  }

  /// Makes a change where the strategy accepts it.
  template <class Change>
  void Try(Job& job, const Strategy& strategy, Change change) {
    Job changed = job;
    change(changed);
    if (Accepts(strategy, changed)) {
      job = std::move(changed);
    }
  }

  DType RandomDType() {
    constexpr DType kDTypes[] = {DType::bf16, DType::bf16, DType::fp16, DType::fp32, DType::fp64};
    return kDTypes[dice_.Roll(std::size(kDTypes))];
  }

  /// Dtypes that systems tie to each other change together, then each one by itself.
  void VaryPrecision(Job& job, const Strategy& strategy) {
    if (dice_.OneIn(2)) {
      return;
    }
    const DType dtype = RandomDType();
    for (const int together : {6, 5, 4, 3, 2}) {
      Try(job, strategy, [&](Job& changed) {
        Precision& precision = changed.axes.precision;
        precision.params = precision.gradients = dtype;
        precision.accumulate = together > 2 ? dtype : precision.accumulate;
        precision.reduce = together > 3 ? dtype : precision.reduce;
        precision.optimizer = together > 4 ? dtype : precision.optimizer;
        precision.master = together > 5 ? dtype : precision.master;
      });
    }
    const DType wire = RandomDType(), state = RandomDType();
    Try(job, strategy, [&](Job& changed) { changed.axes.precision.reduce = changed.axes.precision.accumulate = wire; });
    Try(job, strategy, [&](Job& changed) { changed.axes.precision.master = changed.axes.precision.optimizer = state; });
    if (dice_.OneIn(3)) {
      Try(job, strategy, [&](Job& changed) {
        changed.axes.precision.master.reset();
        changed.axes.precision.optimizer = changed.axes.precision.params;
      });
    }
    for (DType Precision::*member : {&Precision::params, &Precision::gradients, &Precision::reduce,
                                     &Precision::accumulate, &Precision::optimizer}) {
      if (dice_.OneIn(4)) {
        const DType other = RandomDType();
        Try(job, strategy, [&](Job& changed) { changed.axes.precision.*member = other; });
      }
    }
  }

  void Vary(Job& job, const Strategy& strategy) {
    job.axes.packing = {dice_.OneIn(2), dice_.OneIn(2)};
    job.axes.buffers.fused_glu = dice_.OneIn(2);
    job.axes.buffers.fused_rope = dice_.OneIn(2);
    VaryLoss(job, strategy);
    for (const std::string& key : strategy.defaults.keys) {
      if (dice_.OneIn(3) && key != "sync.expression" && key != "sync.step_expression") {
        const std::string value = ValueToTry(key, dice_);
        Try(job, strategy, [&](Job& changed) { SetKey(changed, key, value); });
      }
    }
    if (dice_.OneIn(3)) {
      Try(job, strategy, [&](Job& changed) { Resynchronise(changed.axes.sync); });
    }
    VaryPrecision(job, strategy);
    VaryRecompute(job, strategy);
    if (dice_.OneIn(5) && job.accumulation_steps > 1) {
      Job changed = job;
      changed.last_window = {static_cast<LastWindow::Policy>(dice_.Roll(4)),
                             dice_.Number(1, job.accumulation_steps - 1)};
      if (job.axes.sync.when != Sync::When::custom && Accepts(strategy, changed)) {
        job = std::move(changed);
      }
    }
  }

  /// With dice of its own: all else stays as it would be without.
  void VaryRecompute(Job& job, const Strategy& strategy) {
    for (const Field<Job>& field : JobFields()) {
      if (field.key.starts_with("recompute.") && recompute_dice_.OneIn(2)) {
        const std::string value = ValueToTry(field.key, recompute_dice_);
        Try(job, strategy, [&](Job& changed) { SetKey(changed, field.key, value); });
      }
    }
  }

  /// With dice of its own, too.
  void VaryAllocator(Job& job) {
    for (const Field<Job>& field : JobFields()) {
      if (field.key.starts_with("allocator.") && allocator_dice_.OneIn(3)) {
        Job changed = job;
        if (SetKey(changed, field.key, ValueToTry(field.key, allocator_dice_)) && Validate(changed).ok()) {
          job = std::move(changed);
        }
      }
    }
  }

  /// How the loss is taken, of which chunks; and sequences shorter than the longest on average.
  void VaryLoss(Job& job, const Strategy& strategy) {
    if (dice_.OneIn(2)) {
      const auto loss = static_cast<Partition::Loss>(dice_.Roll(7));
      const std::int64_t chunk_tokens = dice_.OneIn(2) ? 0 : dice_.Number(1, 40);
      Try(job, strategy, [&](Job& changed) {
        changed.axes.loss = loss;
        changed.axes.loss_chunk_tokens = TakesChunks(loss) ? chunk_tokens : 0;
      });
    }
    if (dice_.OneIn(5)) {
      const std::int64_t mean = dice_.Number(1, job.sequence_length);
      Try(job, strategy, [&](Job& changed) { changed.mean_sequence_length = mean; });
    }
  }

  void Resynchronise(Sync& sync) {
    constexpr const char* kExpressions[] = {"(i + 1) % steps == 0",
                                            "i % 2 == 0",
                                            "(i + 1) % 3 == 0 or i == steps - 1",
                                            "i > 0",
                                            "i == 0",
                                            "i == steps // 2 or i == steps - 1"};
    sync.when = static_cast<Sync::When>(dice_.Roll(3));
    if (sync.when == Sync::When::custom) {
      sync.expression = kExpressions[dice_.Roll(std::size(kExpressions))];
      sync.step_expression = dice_.OneIn(2) ? "" : dice_.OneIn(2) ? "i == steps - 1" : "i % 2 == 0";
    }
  }

  /// Buckets from one that every matrix overflows to one that holds layers.
  void RandomBuckets(Job& job) {
    const Decoder& decoder = TowerOf(job.network);
    const std::int64_t layer = 2 * decoder.hidden * (2 * decoder.hidden + 3 * decoder.ffn) / job.layout.tp;
    const std::uint32_t kind = dice_.Roll(100);
    const std::int64_t bytes = kind < 45 ? dice_.Number(64, 512) : kind < 92 ? layer * dice_.Number(4, 9) : layer * 2;
    if (job.axes.sync.bucket_elements > 0) {
      job.axes.sync.bucket_elements = bytes / 2;
      return;
    }
    job.axes.sync.bucket_bytes = Bytes(bytes);
    job.axes.sync.first_bucket_bytes = Bytes(dice_.Number(64, bytes));
  }

  Machine RandomMachine() {
    Machine machine;
    machine.name = "random";
    machine.device_memory = Bytes(std::int64_t{1} << 40);
    machine.devices_per_node = dice_.Number(1, 8);
    machine.peak = {{DType::bf16, FlopsPerSec(1e9 * static_cast<double>(dice_.Number(1, 1000)))},
                    {DType::fp32, FlopsPerSec(1e9 * static_cast<double>(dice_.Number(1, 100)))},
                    {DType::fp16, FlopsPerSec(1e9 * static_cast<double>(dice_.Number(1, 1000)))},
                    {DType::fp64, FlopsPerSec(1e9 * static_cast<double>(dice_.Number(1, 50)))}};
    machine.memory_bandwidth = BytesPerSec(1e9 * static_cast<double>(dice_.Number(1, 100)));
    machine.processors = dice_.Number(1, 8);
    machine.tile_m = machine.tile_n = 16;
    machine.kernel_launch = Nanos(dice_.Number(0, 3000));
    machine.host_issue = Nanos(dice_.OneIn(4) ? 0 : dice_.Number(1, 12000));
    machine.intra_node = {Nanos(dice_.Number(0, 20000)), BytesPerSec(1e8 * static_cast<double>(dice_.Number(1, 1000)))};
    machine.inter_node = {Nanos(dice_.Number(0, 50000)), BytesPerSec(1e7 * static_cast<double>(dice_.Number(1, 1000)))};
    machine.host_link = {Nanos(1000), BytesPerSec(1e10)};
    machine.host_memory_bandwidth = BytesPerSec(1e11);
    machine.host_flops = FlopsPerSec(1e12);
    machine.overlap = machine.processors % 3 != 0;
    machine.overlap_slowdown = dice_.OneIn(2) ? 1 : 1.2;
    for (const RatedKind& kind : RatedKinds()) {
      Dice& dice = IsLater(kind) ? later_rates_dice_ : dice_;
      if (dice.OneIn(4)) {
        machine.rates[kind.key] = {{dice.Number(1, 100), 1e8 * static_cast<double>(dice.Number(1, 100))},
                                   {dice.Number(101, 100'000), 1e8 * static_cast<double>(dice.Number(1, 100))}};
      }
    }
    return machine;
  }

  /// Kinds that came later draw for themselves, so that jobs are those that they were.
  static bool IsLater(const RatedKind& kind) {
    return kind.key.starts_with("gemm_inner") || kind.key.starts_with("dropout") || kind.key.starts_with("column_sum");
  }

  Dice dice_, recompute_dice_, allocator_dice_, later_rates_dice_, ring_dice_, expert_dice_, norm_dice_, latent_dice_,
      window_dice_;
  std::vector<Strategy> strategies_;
};

}  // namespace tidemark
