// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/list_findings.h"
#include "cli/list_matrix.h"
#include "cli/options.h"
#include "models/configs/config.h"
#include "models/job/fields.h"
#include "models/machine/presets.h"
#include "models/network/network.h"
#include "models/zoo/zoo.h"
#include "sim/schedules/pipeline_schedule.h"
#include "sim/strategies/strategy.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

struct Entry {
  std::string name, summary;
};

std::vector<Entry> Strategies() {
  std::vector<Entry> entries;
  for (const StrategyDefaults& strategy : KnownStrategies()) {
    entries.push_back({strategy.name, strategy.summary});
  }
  return entries;
}

Entry Summarise(const Network& network) {
  const std::int64_t parameters = ParameterCount(network);
  const auto* decoder = std::get_if<Decoder>(&network.shape);
  const std::string shape =
      decoder == nullptr ? "table" : fmt::format("{} layers, hidden {}", decoder->layers, decoder->hidden);
  return {network.name, fmt::format("{} parameters, {}", Grouped(parameters), shape)};
}

std::vector<Entry> Networks() {
  std::vector<Entry> entries;
  for (const std::string& name : ZooNames()) {
    const Result<Network> network = FindInZoo(name);
    TIDEMARK_CHECK(network.ok());
    entries.push_back(Summarise(*network));
  }
  return entries;
}

std::vector<Entry> Machines() {
  std::vector<Entry> entries;
  for (const MachineSummary& machine : MachinePresets()) {
    entries.push_back({machine.name, machine.summary});
  }
  return entries;
}

std::vector<Entry> Formats() {
  std::vector<Entry> entries;
  for (const ConfigFormat& format : ConfigFormats()) {
    entries.push_back({format.name, fmt::format("a job: {}", format.summary)});
  }
  for (const auto& format : MakeTraceFormats()) {
    const std::string_view can = !format->writes() ? "read" : !format->reads() ? "written" : "read and written";
    entries.push_back({std::string(format->name()), fmt::format("a trace, {}: {}", can, format->summary())});
  }
  return entries;
}

std::vector<Entry> Schedules() {
  std::vector<Entry> entries;
  for (const PipelineSchedule& schedule : AllSchedules()) {
    entries.push_back({schedule.name, schedule.summary});
  }
  return entries;
}

std::vector<Entry> ValuesOf(const std::vector<std::pair<std::string, std::string>>& summaries) {
  std::vector<Entry> entries;
  for (const auto& [name, summary] : summaries) {
    entries.push_back({name, summary});
  }
  return entries;
}

std::string AsJson(const std::vector<Entry>& entries) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    list.push_back({{"name", entry.name}, {"summary", entry.summary}});
  }
  return list.dump(2) + "\n";
}

std::string AsMarkdown(const std::vector<Entry>& entries) {
  std::string text = "| name | summary |\n|---|---|\n";
  for (const Entry& entry : entries) {
    text += fmt::format("| `{}` | {} |\n", entry.name, entry.summary);
  }
  return text;
}

std::string AsText(const std::vector<Entry>& entries) {
  std::size_t width = 0;
  for (const Entry& entry : entries) {
    width = std::max(width, entry.name.size());
  }
  std::string text;
  for (const Entry& entry : entries) {
    text += fmt::format("{:<{}}  {}\n", entry.name, width, entry.summary);
  }
  return text;
}

class ListCommand : public Command {
 public:
  std::string_view name() const override { return "list"; }
  std::string_view summary() const override {
    return "List the strategies, schedules, losses, allocators, networks, machines, formats or findings there are";
  }
  std::string_view examples() const override {
    return "  tidemark list strategies                 ways of accumulating gradients\n"
           "  tidemark list strategies --matrix        which of them work with what, and what that changes\n"
           "  tidemark list machines --format json     for scripts: an array of {name, summary}\n"
           "  tidemark list findings --format markdown what goes wrong with accumulated gradients, why, and what to "
           "do\n";
  }

  void Setup(CLI::App& app) override {
    app.add_option("WHAT", what_, "strategies, schedules, losses, allocators, networks, machines, formats or findings")
        ->required()
        ->check(CLI::IsMember(
                    {"strategies", "schedules", "losses", "allocators", "networks", "machines", "formats", "findings"})
                    .description(""));
    app.add_flag("--matrix", matrix_, "of strategies: what each makes of each feature, and why");
    AddFormatOption(app, format_);
  }

  Result<int> Run() override {
    if (matrix_) {
      if (what_ != "strategies") {
        return BadInput("--matrix is a list of strategies", "tidemark list strategies --matrix");
      }
      TIDEMARK_TRY(WriteOut(ListMatrix(format_)));
      return 0;
    }
    if (what_ == "findings") {
      TIDEMARK_TRY(WriteOut(ListFindings(format_)));
      return 0;
    }
    const std::vector<Entry> entries = what_ == "strategies"   ? Strategies()
                                       : what_ == "schedules"  ? Schedules()
                                       : what_ == "losses"     ? ValuesOf(LossSummaries())
                                       : what_ == "allocators" ? ValuesOf(AllocatorSummaries())
                                       : what_ == "networks"   ? Networks()
                                       : what_ == "machines"   ? Machines()
                                                               : Formats();
    TIDEMARK_TRY(WriteOut(format_ == OutputFormat::json       ? AsJson(entries)
                          : format_ == OutputFormat::markdown ? AsMarkdown(entries)
                                                              : AsText(entries)));
    return 0;
  }

 private:
  std::string what_;
  bool matrix_ = false;
  OutputFormat format_ = OutputFormat::text;
};

}  // namespace

std::unique_ptr<Command> CmdList() { return std::make_unique<ListCommand>(); }

}  // namespace tidemark
