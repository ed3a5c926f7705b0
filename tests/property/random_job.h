// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "models/job/job.h"
#include "sim/strategies/strategy.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// Makes small random jobs that their strategy accepts: networks, layouts, windows, buckets and machines, drawn so that
/// awkward cases are common rather than rare.
class JobGenerator {
 public:
  explicit JobGenerator(std::uint64_t seed) : dice_(seed), strategies_(AllStrategies()) {}

  Job Next() {
    Job job;
    job.machine = RandomMachine();
    job.optimizer = static_cast<OptimizerKind>(dice_.Roll(3));
    const bool pipeline = dice_.Roll(100) < 52;
    job.layout.pp = pipeline ? dice_.Number(2, 4) : 1;
    job.layout.dp = dice_.Roll(100) < 36 ? 1 : dice_.Number(2, 9);
    job.layout.tp = dice_.OneIn(4) ? 2 : 1;
    job.network = {"random", RandomDecoder(job.layout), {}};
    if (dice_.OneIn(6)) {
      job.network.trainable = {dice_.OneIn(2) ? "head.*" : "layer.*"};
    }
    job.sequence_length = 8 * dice_.Number(1, 4);
    job.micro_batch_size = dice_.Number(1, 3);
    job.accumulation_steps = RandomWindow(job.layout.pp);
    ChooseStrategy(job);
    if (!job.axes.shard.params) {
      RandomBuckets(job);
    }
    return job;
  }

 private:
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
    }
    return decoder;
  }

  std::int64_t RandomWindow(std::int64_t stages) {
    if (dice_.Roll(100) < 33) {
      return 1;
    }
    return dice_.OneIn(4) ? stages * dice_.Number(1, 3) : dice_.Number(2, 13);
  }

  void ChooseStrategy(Job& job) {
    while (true) {
      const Strategy& strategy = strategies_[dice_.Roll(strategies_.size())];
      const bool buckets = !strategy.defaults.axes.shard.params;
      if (!buckets && !dice_.OneIn(3)) {
        continue;  // keeps jobs with buckets the majority
      }
      job.strategy = strategy.defaults.name;
      job.axes = strategy.defaults.axes;
      job.layout.sp = job.layout.tp > 1 && strategy.defaults.sp_with_tp;
      job.axes.packing = {dice_.OneIn(2), dice_.OneIn(2)};
      job.axes.buffers.fused_glu = dice_.OneIn(2);
      const bool own_gradients =
          strategy.defaults.axes.precision.accumulate == strategy.defaults.axes.precision.gradients;
      job.axes.buffers.gradient_as_bucket_view = buckets && own_gradients && dice_.OneIn(3);
      job.axes.buffers.set_to_none = !buckets || !own_gradients || !dice_.OneIn(3);
      if (job.layout.sp && dice_.OneIn(2)) {
        job.axes.buffers.tp_gather = dice_.OneIn(2) ? Buffers::TpGather::pooled : Buffers::TpGather::cached;
      }
      if (!buckets) {
        job.axes.shard.reshard_after_forward = !dice_.OneIn(3);
        job.axes.shard.reshard_after_backward = !dice_.OneIn(3);
      }
      job.axes.sync.overlap = !buckets || !dice_.OneIn(4);
      job.schedule = dice_.OneIn(2) ? Schedule::gpipe : Schedule::one_f_one_b;
      if (!job.axes.shard.params && job.axes.precision.master && dice_.OneIn(2)) {
        job.axes.shard.optimizer = true;
      }
      if (job.axes.shard.params && dice_.OneIn(3)) {
        job.axes.precision.reduce = job.axes.precision.accumulate = DType::bf16;
      }
      if (strategy.refuse(job).ok()) {
        return;
      }
      if (job.layout.pp > 1) {
        job.schedule = Schedule::gpipe;
        if (strategy.refuse(job).ok()) {
          return;
        }
      }
    }
  }

  /// Buckets from one that every matrix overflows to one that holds layers.
  void RandomBuckets(Job& job) {
    const Decoder& decoder = std::get<Decoder>(job.network.shape);
    const std::int64_t layer = 2 * decoder.hidden * (2 * decoder.hidden + 3 * decoder.ffn) / job.layout.tp;
    const std::uint32_t kind = dice_.Roll(100);
    const std::int64_t bytes = kind < 45 ? dice_.Number(64, 512) : kind < 92 ? layer * dice_.Number(4, 9) : layer * 2;
    job.axes.sync.bucket_bytes = Bytes(bytes);
    job.axes.sync.first_bucket_bytes = Bytes(dice_.Number(64, bytes));
  }

  Machine RandomMachine() {
    Machine machine;
    machine.name = "random";
    machine.device_memory = Bytes(std::int64_t{1} << 40);
    machine.devices_per_node = dice_.Number(1, 8);
    machine.peak = {{DType::bf16, FlopsPerSec(1e9 * static_cast<double>(dice_.Number(1, 1000)))}};
    machine.memory_bandwidth = BytesPerSec(1e9 * static_cast<double>(dice_.Number(1, 100)));
    machine.processors = dice_.Number(1, 8);
    machine.tile_m = machine.tile_n = 16;
    machine.kernel_launch = Nanos(dice_.Number(0, 3000));
    machine.host_issue = Nanos(dice_.OneIn(4) ? 0 : dice_.Number(1, 12000));
    machine.intra_node = {Nanos(dice_.Number(0, 20000)), BytesPerSec(1e8 * static_cast<double>(dice_.Number(1, 1000)))};
    machine.inter_node = {Nanos(dice_.Number(0, 50000)), BytesPerSec(1e7 * static_cast<double>(dice_.Number(1, 1000)))};
    machine.host_link = {Nanos(1000), BytesPerSec(1e10)};
    machine.overlap_slowdown = dice_.OneIn(2) ? 1 : 1.2;
    return machine;
  }

  Dice dice_;
  std::vector<Strategy> strategies_;
};

}  // namespace tidemark
