// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "models/machine/device_bytes.h"
#include "reports/summarise/sweep.h"

namespace tidemark {

/// Lowest peak first, whoever is faster than all before it is beaten by none.
inline void MarkFront(std::vector<SweepRow>& rows) {
  std::sort(rows.begin(), rows.end(), [](const SweepRow& a, const SweepRow& b) {
    return std::tuple(a.allocated, a.time.step) < std::tuple(b.allocated, b.time.step);
  });
  Nanos fastest(std::numeric_limits<std::int64_t>::max());
  for (SweepRow& row : rows) {
    row.pareto = row.time.step < fastest;
    fastest = std::min(fastest, row.time.step);
  }
}

/// A made-up sweep of `count` rows: strategies in turn, micro batches in powers of two, accumulation steps from 1 on.
/// The peak grows with the micro batch and falls by strategy; the step does the opposite. Rows are in the order of a
/// report, and those that no other one beats in peak and step are on the front.
inline SweepReport SampleSweep(std::int64_t count) {
  constexpr const char* kStrategies[] = {"ddp-last", "fsdp2-defer", "fsdp2-scatter-each", "megatron"};
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  SweepReport report;
  report.title = "a made-up job";
  report.job_yaml = "micro_batch_size: 1\nlayout: {tp: 2}\n";
  report.version = "0.1.0";
  report.machine = "h100-sxm-80gb";
  report.device_memory = Bytes(80 * kGiB);
  report.keys = {"strategy", "micro_batch_size", "accumulation_steps"};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t strategy = i % 4, power = i / 4 % 4, steps = i / 16 + 1;
    SweepRow row;
    row.values = {kStrategies[strategy], std::to_string(std::int64_t{1} << power), std::to_string(steps)};
    row.allocated = Bytes((80 - 20 * strategy + 10 * power) * kGiB + steps);
    row.by_category[Category::parameter] = Bytes(8 * kGiB);
    row.by_category[Category::activation] = row.allocated - Bytes(8 * kGiB);
    row.device = {row.allocated, row.allocated, row.allocated + Bytes(4 * kGiB)};
    row.phase = "backward";
    row.time.compute = Nanos((1 + strategy) * 1'000'000'000 - 100'000'000 * power + 1'000 * steps);
    row.time.host = Nanos(1'000'000);
    row.time.step = row.time.compute + row.time.host;
    row.tokens_per_s_per_gpu = 8192e9 / static_cast<double>(row.time.step.count());
    row.mfu = 0.5 / static_cast<double>(1 + strategy);
    row.usable = *report.device_memory;
    row.fits = Fits(row.device, row.usable);
    report.feasible += row.fits ? 1 : 0;
    report.rows.push_back(row);
  }
  MarkFront(report.rows);
  std::stable_sort(report.rows.begin(), report.rows.end(), [](const SweepRow& a, const SweepRow& b) {
    return std::tuple(!a.fits, a.time.step) < std::tuple(!b.fits, b.time.step);
  });
  report.evaluated = count;
  report.pruned = 3;
  report.refusals = {{"shard.replicas does not divide layout.dp", 5}, {"a schedule needs layout.pp > 1", 2}};
  report.refused = 7;
  report.size = report.evaluated + report.pruned + report.refused;
  report.seconds = 0.5;
  return report;
}

}  // namespace tidemark
