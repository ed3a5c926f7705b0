// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/observed_job.h"
#include "cli/options.h"
#include "cli/progress_line.h"
#include "cli/solved_options.h"
#include "models/job/job_template.h"
#include "reports/render/render.h"
#include "reports/summarise/solution.h"
#include "sim/strategies/strategy.h"
#include "sim/sweep/alternative_jobs.h"
#include "sim/sweep/alternatives.h"
#include "sim/sweep/single_changes.h"
#include "sim/sweep/sweep.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostOthers = 1000;
constexpr std::size_t kRefusals = 3;  ///< the most frequent reasons

/// What was found of the ways that a sweep looks at.
struct Found {
  std::vector<PricedRow> rows;  ///< that fit
  std::int64_t too_large = 0, refused = 0;
  std::int64_t indivisible = 0;  ///< of the refused ones: no accumulation_steps makes the global batch
  std::map<std::string, std::int64_t> reasons;
  std::optional<PricedCombinations::Nearest> nearest;
};

class SolveCommand : public Command {
 public:
  std::string_view name() const override { return "solve"; }
  std::string_view summary() const override { return "The fastest way to do a job's training run that fits"; }
  std::string_view examples() const override {
    return "  tidemark solve job.yaml                                  the fastest that fits into the machine's "
           "device\n"
           "  tidemark solve job.yaml --memory 40GiB                   into a smaller one\n"
           "  tidemark solve job.yaml --global-batch 512               with so many sequences a step\n"
           "  tidemark solve job.yaml --keep strategy --keep layout    only micro batch and recomputation\n"
           "  tidemark solve job.yaml --vary schedule=1f1b,zb-h1       pipelines by both schedules\n"
           "  tidemark solve job.yaml --vary schedule=1f1b,interleaved --vary layout.vpp=1,2\n"
           "                                                           interleaved ones as well\n"
           "  tidemark solve job.yaml --vary layout.cp=1,2,4,8         so many ranks share each sequence\n"
           "\n"
           "Strategies, recomputation, micro batches and layouts are tried in all combinations, with as many ranks "
           "and\n"
           "sequences a step as the job has; accumulation_steps follows. What fits is decided by the high end of the\n"
           "device's band, as everywhere. Behind the fastest stand the next best of other kinds, each with its "
           "command\n"
           "line.\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddObservedOptions(app, observed_);
    AddMemoryOption(app, memory_);
    AddGlobalBatchOption(app, global_batch_, "sequences of a step on all ranks; default: as the job has");
    app.add_option(
           "--keep", keep_,
           fmt::format("leave this as the job has it (any number of times): {}", fmt::join(AlternativeKeys(), ", ")))
        ->type_name("KEY")
        ->expected(1)
        ->take_all();
    app.add_option("--vary", vary_, "another key and its values, as `tidemark sweep` takes them")
        ->type_name("KEY=VALUES")
        ->expected(1)
        ->take_all();
    app.add_option("--top", top_, "so many of other kinds behind the fastest; default 5")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{0}, kMostOthers));
    app.add_option("--threads", threads_, "default: all processors")->type_name("N")->check(CLI::Range(1, 1024));
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(SetDeviceMemory(memory_, job_));
    TIDEMARK_ASSIGN(const Observation observation, Observe(observed_, job_));
    TellObserved(observation);
    TIDEMARK_TRY(CheckKept());
    const std::vector<StrategyDefaults> strategies = KnownStrategies();
    TIDEMARK_ASSIGN(JobTemplate job, ReadJobTemplate(job_, strategies));
    TIDEMARK_ASSIGN(const Job base, job.Base());
    if (base.last_window.microbatches > 0) {
      return BadInput("last_window.microbatches: a step that is cut short is no training run",
                      "remove the key: --set last_window.microbatches=0");
    }
    Solution solution = Begin(base);
    TIDEMARK_ASSIGN(SweepSpace space, SpaceOf(base, solution.global_batch));
    for (const SweepAxis& axis : space.axes()) {
      solution.varied.push_back(axis.key);
    }
    TIDEMARK_ASSIGN(SweepGroups groups, SweepGroups::Of(std::move(space)));
    SweepLimits limits;
    limits.global_batch = solution.global_batch;
    limits.fit = SweepLimits::Fit::perhaps_fitting;  // the allocator's cache is simulated where it decides
    const Sweep sweep(std::move(groups), std::move(limits), job);
    AlternativeJobs jobs(std::move(job), base, sweep.groups().space(), solution.global_batch);
    SolvedOptions options(job_, jobs, solution);
    options.PredictNow();
    const auto start = std::chrono::steady_clock::now();
    TIDEMARK_ASSIGN(Found found, Search(sweep));
    if (found.indivisible == sweep.size()) {
      return BadInput(fmt::format("no micro_batch_size times layout.dp that was tried divides a global batch of {}",
                                  Grouped(solution.global_batch)),
                      "--global-batch takes another, and fewer --keep leave more to try");
    }
    Count(found, sweep.size(), solution);
    TIDEMARK_TRY(options.Pick(std::move(found.rows), top_, StopRequested));
    if (solution.options.empty() && found.nearest) {
      TIDEMARK_TRY(options.PickNearest(found.nearest->combination));
    }
    solution.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    TIDEMARK_TRY(WriteOut(RenderAs(RendererOf(format_), solution, {WantsColour()})));
    if (!solution.complete) {
      return static_cast<int>(ErrorCode::interrupted);
    }
    return solution.options.empty() && !exit_zero_ ? static_cast<int>(ErrorCode::finding) : 0;
  }

 private:
  Status CheckKept() const {
    for (const std::string& key : keep_) {
      if (std::ranges::find(AlternativeKeys(), key) == AlternativeKeys().end()) {
        return BadInput(fmt::format("--keep: '{}' is not varied", key),
                        fmt::format("expected one of {}", fmt::join(AlternativeKeys(), ", ")));
      }
    }
    return Done{};
  }

  Solution Begin(const Job& base) {
    Solution solution;
    const std::int64_t own_batch = GlobalBatch(base);
    solution.global_batch = global_batch_.value_or(own_batch);
    solution.same_batch = solution.global_batch == own_batch;
    solution.ranks = base.Ranks();
    solution.title = fmt::format("{} on {}, {} a step", job_.path, Counted(solution.ranks, "rank"),
                                 Counted(solution.global_batch, "sequence"));
    solution.job_yaml = JobYaml(base);
    solution.version = TIDEMARK_VERSION;
    solution.machine = base.machine.name;
    solution.memory = base.machine.device_memory;
    return solution;
  }

  /// Model chunks: what a stage holds depends on them. Ranks that share sequences: how many others there are does.
  static Result<std::vector<std::int64_t>> PartsOfLayouts(const SweepAxis& axis) {
    std::optional<std::vector<std::int64_t>> numbers = NumbersOf(axis);
    if (!numbers || std::ranges::any_of(*numbers, [](std::int64_t number) { return number < 1; })) {
      return BadInput(fmt::format("--vary {}: expected whole numbers from 1", axis.key),
                      fmt::format("for example --vary {}=1,2,4", axis.key));
    }
    return std::move(*numbers);
  }

  Result<SweepSpace> SpaceOf(const Job& base, std::int64_t global_batch) const {
    const bool varies_layout = std::ranges::find(keep_, "layout") == keep_.end();
    std::set<std::string> keys;
    std::vector<SweepAxis> varied;
    std::vector<std::int64_t> vpp = {base.layout.vpp}, cp = {base.layout.cp};
    for (const std::string& vary : vary_) {
      TIDEMARK_ASSIGN(SweepAxis axis, ParseSweepAxis(vary));
      if (!keys.insert(axis.key).second) {
        return BadInput(fmt::format("--vary: {} is varied twice", axis.key), "give all its values to one --vary");
      }
      if (axis.key == "layout.layers_per_stage" && varies_layout) {
        return BadInput("--vary: layout.layers_per_stage is as each layout that is tried needs it",
                        "keep them with --keep layout, or use tidemark sweep");
      }
      if (axis.key == "layout.vpp" && varies_layout) {
        TIDEMARK_ASSIGN(vpp, PartsOfLayouts(axis));
      } else if (axis.key == "layout.cp" && varies_layout) {
        TIDEMARK_ASSIGN(cp, PartsOfLayouts(axis));
      } else {
        varied.push_back(std::move(axis));
      }
    }
    std::vector<SweepAxis> axes = Alternatives(base, global_batch, {keep_.begin(), keep_.end()}, vpp, cp);
    for (SweepAxis& axis : varied) {
      if (IsGivenToAlternatives(axis.key) || SettingOf(base, axis.key).empty()) {
        return BadInput(
            fmt::format("--vary: with another {} it would be another training run, or other ranks", axis.key),
            "tidemark sweep varies any key");
      }
      if (std::ranges::find(keep_, axis.key) != keep_.end()) {
        return BadInput(fmt::format("{} is to be kept and to be varied", axis.key), "leave out --keep or --vary");
      }
      const auto same = std::ranges::find(axes, axis.key, &SweepAxis::key);
      same == axes.end() ? axes.push_back(std::move(axis)) : void(*same = std::move(axis));
    }
    if (axes.empty()) {
      return BadInput("--keep keeps all there is to vary", "leave one out, or use tidemark predict");
    }
    return SweepSpace::Of(std::move(axes));
  }

  Result<Found> Search(const Sweep& sweep) const {
    ProgressLine progress(sweep.size(), "ways");
    StopOnRequest();
    Found found;
    std::int64_t chunk = 0;
    Sweep::Handlers handlers;
    handlers.next = [&] { return chunk < sweep.chunks() ? std::optional(chunk++) : std::nullopt; };
    handlers.done = [&](std::int64_t done, PricedCombinations priced) -> Status {
      found.rows.insert(found.rows.end(), priced.rows.begin(), priced.rows.end());
      found.too_large += priced.pruned;
      found.refused += std::ssize(priced.refused);
      found.indivisible += priced.indivisible;
      for (const PricedCombinations::Refused& refused : priced.refused) {
        ++found.reasons[priced.reasons[refused.reason]];
      }
      if (priced.nearest && (!found.nearest || priced.nearest->ComesBefore(*found.nearest))) {
        found.nearest = priced.nearest;
      }
      progress.Add(sweep.RowsOf(done));
      return Done{};
    };
    handlers.cancelled = StopRequested;
    TIDEMARK_TRY(sweep.Run(threads_.value_or(0), handlers));
    return found;
  }

  static void Count(const Found& found, std::int64_t size, Solution& solution) {
    solution.size = size;
    solution.fit = std::ranges::count_if(found.rows, &PricedRow::fits);
    solution.near = std::ssize(found.rows) - solution.fit;
    solution.too_large = found.too_large;
    solution.refused = found.refused;
    solution.complete = solution.size == std::ssize(found.rows) + solution.too_large + solution.refused;
    for (const auto& [reason, count] : found.reasons) {
      solution.refusals.push_back({reason, count});
    }
    std::ranges::stable_sort(solution.refusals, std::greater(), &SweepRefusal::count);
    solution.refusals.resize(std::min(solution.refusals.size(), kRefusals));
  }

  JobOptions job_;
  ObservedOptions observed_;
  std::string memory_;
  std::optional<std::int64_t> global_batch_;
  std::vector<std::string> keep_, vary_;
  std::int64_t top_ = 5;
  std::optional<int> threads_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
};

}  // namespace

std::unique_ptr<Command> CmdSolve() { return std::make_unique<SolveCommand>(); }

}  // namespace tidemark
