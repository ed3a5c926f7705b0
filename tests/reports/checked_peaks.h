// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reports/check/baseline.h"
#include "reports/check/verdict.h"

namespace tidemark {

inline LiveBuffers CheckedTensor(const std::string& name, Category category, std::int64_t n_bytes,
                                 const std::string& since = "forward 0") {
  LiveBuffers live;
  live.name = name;
  live.category = category;
  live.bytes = Bytes(n_bytes);
  live.since_phase = since;
  live.until_phase = "backward 0";
  return live;
}

/// The sum of what is alive, predicted.
inline ObservedPeak PeakWith(const std::vector<LiveBuffers>& live,
                             const std::string& job = R"({"layout": {"tp": 4}})") {
  ObservedPeak observed;
  observed.peak.live = live;
  for (const LiveBuffers& buffers : live) {
    observed.peak.allocated += buffers.bytes;
  }
  observed.at = "backward of microbatch 0";
  observed.device = observed.peak.allocated;
  observed.job = job;
  return observed;
}

inline ObservedPeak MeasuredPeak(std::int64_t n_bytes, const std::string& gpu = "NVIDIA H100") {
  ObservedPeak observed = PeakWith({CheckedTensor("w", Category::parameter, n_bytes)});
  observed.measured = true;
  observed.hardware = {{"device", "cuda"}, {"name", gpu}, {"driver", "580"}};
  return observed;
}

inline Scenario ScenarioOf(const std::string& name, const ObservedPeak& peak) {
  Scenario scenario;
  scenario.name = name;
  scenario.job = "job.yaml";
  scenario.run = peak.measured;
  scenario.tolerance_percent = peak.measured ? kMeasuredTolerancePercent : 0;
  scenario.file = "gate/scenarios.yaml";
  scenario.line = 7;
  return scenario;
}

inline Baseline BaselineWith(const std::string& name, ObservedPeak peak) {
  return {{name, {std::move(peak), "as it should be", "0.1.0"}}};
}

/// One scenario, "a", against a baseline with one entry of that name.
inline CheckedScenario JudgeAgainst(const ObservedPeak& before, const ObservedPeak& now) {
  return Judge({{ScenarioOf("a", now), now}}, BaselineWith("a", before), "gate/baseline.json").front();
}

inline CheckReport ReportOf(std::vector<CheckedScenario> scenarios) {
  return {"gate/scenarios.yaml", "gate/baseline.json", "0.1.0", true, std::move(scenarios)};
}

}  // namespace tidemark
