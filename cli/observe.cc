// SPDX-License-Identifier: Apache-2.0
#include "cli/observe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "cli/execution.h"
#include "cli/options.h"
#include "cli/own_command.h"
#include "cli/prediction_report.h"
#include "profiler/comm/launcher.h"
#include "sim/predict/predict.h"

namespace tidemark {
namespace {

Result<ObservedPeak> PredictPeak(const Scenario& scenario) {
  TIDEMARK_ASSIGN(const Job job, LoadJob({scenario.job, scenario.set, {}}));
  PredictOptions options;
  if (scenario.steps > 0) {
    options.steps = FirstSteps(scenario.steps);
  }
  TIDEMARK_ASSIGN(Prediction prediction, Predict(job, options));
  ObservedPeak peak = PeakOf(MakeReport(job, options, std::move(prediction)));
  peak.steps = scenario.steps;
  return peak;
}

/// What a process has said of why it ended, as the error that it was: "tidemark: error: WHAT", "hint: WHAT".
Error ErrorOf(const CommandOutput& output) {
  constexpr std::string_view kError = "error: ", kHint = "hint: ";
  Error error{ErrorCode::finding, "", fmt::format("tidemark run ended with exit code {}", output.exit_code), ""};
  std::size_t begin = 0;
  while (begin < output.err.size()) {
    const std::size_t end = std::min(output.err.find('\n', begin), output.err.size());
    const std::string line = output.err.substr(begin, end - begin);
    if (const std::size_t at = line.find(kError); line.starts_with("tidemark: ") && at != std::string::npos) {
      error.message = line.substr(at + kError.size());
    } else if (line.starts_with(kHint)) {
      error.hint = line.substr(kHint.size());
    }
    begin = end + 1;
  }
  return error;
}

Result<ObservedPeak> MeasurePeak(const Scenario& scenario, const std::string& device) {
  std::vector<std::string> words = {"run", scenario.job, "--format", "json", "--exit-zero"};
  for (const std::string& change : scenario.set) {
    words.insert(words.end(), {"--set", change});
  }
  if (scenario.steps > 0) {
    words.insert(words.end(), {"--steps", std::to_string(scenario.steps)});
  }
  if (!device.empty()) {
    words.insert(words.end(), {"--device", device});
  }
  TIDEMARK_ASSIGN(const CommandOutput output, RunOwnCommand(words));
  return output.exit_code == 0 ? ReadRun(output.out, scenario.job) : ErrorOf(output);
}

}  // namespace

Result<std::vector<Scenario>> LoadScenarios(const std::string& path) {
  TIDEMARK_ASSIGN(const std::string text, ReadTextFile(path));
  return ParseScenarios(text, path);
}

Result<std::vector<ObservedScenario>> Observe(std::vector<Scenario> scenarios, const std::string& device) {
  const bool runs = std::ranges::any_of(scenarios, &Scenario::run);
  if (!runs && !device.empty()) {
    return BadInput(fmt::format("--device {}: no scenario is executed, all are predicted", device),
                    "leave it out, or give a scenario `mode: run`");
  }
  if (runs) {
    TIDEMARK_TRY(CheckDevice(device));
    if (FindLauncher().kind != Launcher::Kind::none) {
      return BadInput("scenarios with mode: run start their ranks themselves, and this process is one of a launcher's",
                      "start tidemark without mpirun, srun or torchrun");
    }
  }
  std::vector<ObservedScenario> observed;
  for (Scenario& scenario : scenarios) {
    Result<ObservedPeak> peak = scenario.run ? MeasurePeak(scenario, device) : PredictPeak(scenario);
    if (!peak && peak.error().code == ErrorCode::interrupted) {
      return peak.error();
    }
    observed.push_back({std::move(scenario), std::move(peak)});
  }
  return observed;
}

}  // namespace tidemark
