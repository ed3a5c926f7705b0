// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/execution.h"
#include "cli/observe.h"
#include "cli/options.h"
#include "cli/write_file.h"
#include "reports/check/baseline.h"
#include "reports/check/observed_peak.h"
#include "reports/check/verdict.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestRun = std::int64_t{64} << 20;

enum class Action : std::uint8_t { update, promote };

std::string PeakText(const BaselineEntry& entry) {
  return fmt::format("{} ({} bytes)", Text(entry.peak.peak.allocated), Grouped(entry.peak.peak.allocated.count()));
}

/// A line for each entry that is other than it was, and how many are not.
std::string DifferenceText(const Baseline& before, const Baseline& after, const std::set<std::string>& renewed) {
  std::string text;
  for (const auto& [name, entry] : after) {
    const auto old = before.find(name);
    if (old == before.end()) {
      text += fmt::format("+ {}: {}\n", name, PeakText(entry));
    } else if (renewed.contains(name)) {
      const Bytes delta = entry.peak.peak.allocated - old->second.peak.peak.allocated;
      text += fmt::format("~ {}: {}, was {}: {}\n", name, PeakText(entry), PeakText(old->second),
                          delta == Bytes(0) ? "the same bytes in another way"
                                            : fmt::format("{}{}", delta > Bytes(0) ? "+" : "", Text(delta)));
    }
  }
  for (const auto& [name, entry] : before) {
    if (!after.contains(name)) {
      text += fmt::format("- {}: {}\n", name, PeakText(entry));
    }
  }
  return text + fmt::format("{} renewed, {} unchanged\n", renewed.size(), after.size() - renewed.size());
}

class BaselineCommand : public Command {
 public:
  std::string_view name() const override { return "baseline"; }
  std::string_view summary() const override { return "Renew the peaks that tidemark check compares with"; }
  std::string_view examples() const override {
    return "  tidemark baseline update scenarios.yaml --baseline baseline.json --reason 'longer sequences'\n"
           "                                               predicts or runs all scenarios, writes what has changed\n"
           "  tidemark run job.yaml --format json > run.json\n"
           "  tidemark baseline promote run.json --baseline baseline.json --reason 'new driver'\n"
           "                                               makes one run the baseline of the scenario with that job\n"
           "\n"
           "Peaks that are as they were keep their entry and its reason, so that a review shows what is new.\n";
  }

  void Setup(CLI::App& app) override {
    AddChoice<Action>(app, "ACTION", action_, {{"update", Action::update}, {"promote", Action::promote}},
                      "update, from scenarios; promote, from a run");
    app.get_option("ACTION")->required();
    app.add_option("FILE", input_path_, "the scenarios, or what `tidemark run --format json` has written")->required();
    app.add_option("--baseline", baseline_path_, "the file to renew")->type_name("FILE")->required();
    app.add_option("--reason", reason_, "why the peaks are what they are, for whoever reviews it")
        ->type_name("TEXT")
        ->required();
    app.add_option("--scenario", scenario_, "of promote: which one; default: the one with that job")->type_name("NAME");
    AddDeviceOption(app, device_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(RefuseToOverwrite(baseline_path_, input_path_));
    TIDEMARK_TRY(CheckWritable(baseline_path_));
    TIDEMARK_ASSIGN(const Baseline before, ReadBaseline());
    Baseline after = before;
    std::set<std::string> renewed;
    if (action_ == Action::update) {
      TIDEMARK_TRY(Update(after, renewed));
    } else {
      TIDEMARK_TRY(Promote(after, renewed));
    }
    TIDEMARK_TRY(WriteFile(baseline_path_, BaselineText(after)));
    if (baseline_path_ != "-") {
      TIDEMARK_TRY(WriteOut(DifferenceText(before, after, renewed)));
    }
    return 0;
  }

 private:
  Result<Baseline> ReadBaseline() const {
    std::error_code none;
    if (!std::filesystem::exists(baseline_path_, none)) {
      return Baseline();
    }
    TIDEMARK_ASSIGN(const std::string text, ReadTextFile(baseline_path_));
    return ParseBaseline(text, baseline_path_);
  }

  void Put(const std::string& name, ObservedPeak peak, Baseline& baseline, std::set<std::string>& renewed) const {
    if (Renew(baseline, name, {std::move(peak), reason_, TIDEMARK_VERSION})) {
      renewed.insert(name);
    }
  }

  static Status RefuseDoubts(const ObservedPeak& peak) {
    if (peak.doubts.empty()) {
      return Done{};
    }
    return BadInput(
        fmt::format("the run says of itself that its measurement is in doubt: {}", fmt::join(peak.doubts, "; ")),
        "measure it again; a peak that is in doubt is no baseline");
  }

  /// All or nothing: a scenario that cannot be looked at would be lost otherwise.
  Status Update(Baseline& baseline, std::set<std::string>& renewed) const {
    if (!scenario_.empty()) {
      return BadInput("--scenario is of promote: update renews all scenarios", "leave out --scenario");
    }
    TIDEMARK_ASSIGN(std::vector<Scenario> scenarios, LoadScenarios(input_path_));
    TIDEMARK_ASSIGN(std::vector<ObservedScenario> observed, Observe(std::move(scenarios), device_));
    std::set<std::string> names;
    for (ObservedScenario& each : observed) {
      if (!each.peak) {
        return std::move(each.peak).At(fmt::format("scenario '{}'", each.scenario.name)).error();
      }
      TIDEMARK_TRY(RefuseDoubts(*each.peak).At(fmt::format("scenario '{}'", each.scenario.name)));
      names.insert(each.scenario.name);
      Put(each.scenario.name, std::move(*each.peak), baseline, renewed);
    }
    std::erase_if(baseline, [&](const auto& entry) { return !names.contains(entry.first); });
    return Done{};
  }

  Status Promote(Baseline& baseline, std::set<std::string>& renewed) const {
    if (!device_.empty()) {
      return BadInput("--device is of update: a run says what it ran on", "leave out --device");
    }
    TIDEMARK_ASSIGN(const std::string text, ReadBinaryFile(input_path_, kLargestRun));
    TIDEMARK_ASSIGN(ObservedPeak run, ReadRun(text, input_path_));
    TIDEMARK_TRY(RefuseDoubts(run).At(input_path_));
    std::string name = scenario_;
    if (name.empty()) {
      const std::vector<std::string> names = ScenariosOfJob(baseline, run);
      if (names.size() != 1) {
        return BadInput(names.empty() ? fmt::format("no measured scenario of {} has the job and the steps of {}",
                                                    baseline_path_, input_path_)
                                      : fmt::format("several scenarios have the job and the steps of {}: {}",
                                                    input_path_, fmt::join(names, ", ")),
                        "--scenario names the one it belongs to");
      }
      name = names.front();
    } else {
      TIDEMARK_TRY(CheckScenarioName(name).At("--scenario"));
      const auto entry = baseline.find(name);
      if (entry != baseline.end() && !entry->second.peak.measured) {
        return BadInput(fmt::format("--scenario: '{}' is a predicted scenario, and this is a run", name),
                        "`tidemark baseline update` renews predicted ones; a scenario with mode: run takes a run");
      }
    }
    Put(name, std::move(run), baseline, renewed);
    return Done{};
  }

  Action action_ = Action::update;
  std::string input_path_, baseline_path_, reason_, scenario_, device_;
};

}  // namespace

std::unique_ptr<Command> CmdBaseline() { return std::make_unique<BaselineCommand>(); }

}  // namespace tidemark
