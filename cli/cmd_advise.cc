// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/lint.h"
#include "base/text.h"
#include "cli/changed_job.h"
#include "cli/command.h"
#include "cli/first_steps.h"
#include "cli/observed_job.h"
#include "cli/options.h"
#include "cli/predict_command.h"
#include "reports/render/render.h"
#include "reports/summarise/advice.h"
#include "sim/sweep/single_changes.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostOptions = 1000;
/// Events of all options together, and of their first steps: some seconds.
constexpr std::int64_t kMostSimulated = 40'000'000;

class AdviseCommand : public Command {
 public:
  std::string_view name() const override { return "advise"; }
  std::string_view summary() const override { return "Single changes to a job, by bytes saved for time lost"; }
  std::string_view examples() const override {
    return "  tidemark advise job.yaml                        what saves memory, and what that costs\n"
           "  tidemark advise job.yaml --memory 40GiB         which of these make it fit in a smaller device\n"
           "  tidemark advise job.yaml --set layout.tp=2      the same for a changed job\n"
           "  tidemark advise job.yaml --top 50               more of them\n"
           "  tidemark advise job.yaml --format json          for scripts\n"
           "\n"
           "Every key that the job's strategy looks at, every other strategy, parts of a layer to compute again,\n"
           "other micro batches and layouts are tried one at a time, with ranks and global batch as they are. Each\n"
           "option comes with its command line.\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddObservedOptions(app, observed_);
    AddMemoryOption(app, memory_);
    app.add_option("--top", top_, "so many options of each kind; default 12")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{1}, kMostOptions));
    AddFormatOption(app, format_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(SetDeviceMemory(memory_, job_));
    TIDEMARK_ASSIGN(const Observation observation, Observe(observed_, job_));
    TellObserved(observation);
    TIDEMARK_ASSIGN(const ChangedJob now, SimulateChanged(job_, {}));
    Advice advice;
    advice.title = now.report.title;
    advice.job_yaml = now.report.job_yaml;
    advice.version = now.report.provenance.version;
    advice.machine = now.report.machine;
    advice.memory = now.report.device_memory;
    advice.now = CostOf(now.report);
    std::vector<Candidate> candidates;
    for (const SingleChange& change : SingleChanges(now.job)) {
      Try(change, now, advice, candidates);
    }
    for (auto& [change, option] : candidates) {
      const std::int64_t most_events = kMostSimulated / std::ssize(candidates);
      TIDEMARK_ASSIGN(const ChangedJob changed, SimulateChanged(job_, change, most_events));
      option.cost = CostOf(changed.report);
      if (option.cost.fits && option.cost.simulated) {
        if (const std::optional<Lint> lint = FirstStepsThatDoNotFit(changed.job, most_events)) {
          option.begins = false;
          option.lints.push_back(lint->id);
        }
      }
      Sort(std::move(option), advice);
    }
    Finish(advice, static_cast<std::size_t>(top_));
    TIDEMARK_TRY(WriteOut(RenderAs(RendererOf(format_), advice, {WantsColour()})));
    return 0;
  }

 private:
  /// A change that is of use by the closed form, or may be by the simulated allocator.
  struct Candidate {
    SingleChange change;
    AdvisedOption option;
  };

  void Try(const SingleChange& change, const ChangedJob& now, Advice& advice,
           std::vector<Candidate>& candidates) const {
    ++advice.tried;
    const Result<ChangedJob> changed = PredictChanged(job_, change);
    if (!changed) {
      ++advice.refused;
      return;
    }
    if (IsDeclaredWrong(changed->job)) {
      ++advice.wrong;
      return;
    }
    AdvisedOption option;
    option.change = fmt::format("{}", fmt::join(change, " "));
    option.cost = CostOf(changed->report);
    option.alters = !ComputeAlike(now.job, changed->job);
    option.lints = NewWarnings(changed->report.lints, now.report.lints);
    option.command = CommandLineOfPredict(job_, change);
    const bool of_allocator =
        std::ranges::all_of(change, [](const std::string& set) { return set.starts_with("allocator."); });
    if (option.cost.Improves(advice.now) || (of_allocator && !advice.now.fits)) {
      candidates.push_back({change, std::move(option)});
    } else {
      Sort(std::move(option), advice);
    }
  }

  JobOptions job_;
  ObservedOptions observed_;
  std::string memory_;
  std::int64_t top_ = 12;
  OutputFormat format_ = OutputFormat::text;
};

}  // namespace

std::unique_ptr<Command> CmdAdvise() { return std::make_unique<AdviseCommand>(); }

}  // namespace tidemark
