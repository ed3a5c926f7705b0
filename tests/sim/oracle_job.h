// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "models/job/job.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

/// A round machine: durations in tests that use it are only compared with each other.
inline Machine TestMachine() {
  Machine machine;
  machine.name = "test";
  machine.device_memory = Bytes(std::int64_t{80} << 30);
  machine.peak = {{DType::bf16, FlopsPerSec(1e15)}, {DType::fp32, FlopsPerSec(5e13)}};
  machine.memory_bandwidth = BytesPerSec(3e12);
  machine.processors = 132;
  machine.kernel_launch = Nanos(3000);
  machine.host_issue = Nanos(5000);
  machine.intra_node = {Nanos(2000), BytesPerSec(4e11)};
  machine.inter_node = {Nanos(5000), BytesPerSec(5e10)};
  machine.host_link = {Nanos(5000), BytesPerSec(5e10)};
  machine.host_memory_bandwidth = BytesPerSec(4e11);
  machine.host_flops = FlopsPerSec(1e13);
  machine.overlap_slowdown = 1.1;
  return machine;
}

/// The model of the worked numbers: 4 layers, hidden 1024, ffn 2816, 16 heads of which 4 for keys, vocabulary 32,000,
/// untied; sequence 2048, micro batch 2; N = 4 data-parallel ranks; separate q, k, v and packed gate-up. For a strategy
/// of contrastive losses, two towers of that shape.
inline Job OracleJob(const std::string& strategy_name, std::int64_t microbatches) {
  Job job;
  Decoder decoder;
  decoder.layers = 4;
  decoder.hidden = 1024;
  decoder.ffn = 2816;
  decoder.heads = 16;
  decoder.kv_heads = 4;
  decoder.head_size = 64;
  decoder.vocabulary = 32000;
  job.network = {"oracle", decoder, {}};
  job.machine = TestMachine();
  job.sequence_length = 2048;
  job.micro_batch_size = 2;
  job.accumulation_steps = microbatches;
  job.layout.dp = 4;
  const Result<Strategy> strategy = FindStrategy(strategy_name);
  EXPECT_TRUE(strategy.ok()) << strategy_name;
  job.strategy = strategy_name;
  job.axes = strategy->defaults.axes;
  job.axes.packing = {false, true};
  if (job.CachesRepresentations()) {
    job.network.shape = DualEncoder{decoder, decoder, false, decoder.hidden, 1};
  }
  return job;
}

}  // namespace tidemark
