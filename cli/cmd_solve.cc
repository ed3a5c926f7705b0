// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/changed_job.h"
#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/options.h"
#include "cli/predict_command.h"
#include "cli/progress_line.h"
#include "cli/strategies.h"
#include "models/job/change.h"
#include "models/job/fields.h"
#include "models/job/job_template.h"
#include "reports/render/render.h"
#include "reports/summarise/solution.h"
#include "sim/sweep/alternatives.h"
#include "sim/sweep/single_changes.h"
#include "sim/sweep/sweep.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestBatch = 1'000'000'000'000, kMostOthers = 1000;

/// What was found of the ways that a sweep looks at.
struct Found {
  std::vector<PricedRow> rows;  ///< that fit
  std::int64_t too_large = 0, refused = 0;
  std::int64_t indivisible = 0;  ///< of the refused ones: no accumulation_steps makes the global batch
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
    app.add_option("--memory", memory_, "what a device has: 80GiB; default: the machine's")->type_name("SIZE");
    app.add_option("--global-batch", global_batch_, "sequences of a step on all ranks; default: as the job has")
        ->type_name("B")
        ->check(CLI::Range(std::int64_t{1}, kLargestBatch));
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
    TIDEMARK_TRY(CheckKept());
    const std::vector<StrategyDefaults> strategies = KnownStrategies();
    JobChanges changes{job_.set, std::nullopt};
    if (!job_.format.empty()) {
      changes.format = job_.format;
    }
    TIDEMARK_ASSIGN(JobTemplate job, JobTemplate::Read(job_.path, changes, strategies));
    TIDEMARK_ASSIGN(const Job base, job.Unchecked({}).At(job_.path));
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
    const auto start = std::chrono::steady_clock::now();
    TIDEMARK_ASSIGN(Found found, Search(sweep));
    if (found.indivisible == sweep.size()) {
      return BadInput(fmt::format("no micro_batch_size times layout.dp that was tried divides a global batch of {}",
                                  Grouped(solution.global_batch)),
                      "--global-batch takes another, and fewer --keep leave more to try");
    }
    solution.size = sweep.size();
    solution.fit = std::ranges::count_if(found.rows, &PricedRow::fits);
    solution.near = std::ssize(found.rows) - solution.fit;
    solution.too_large = found.too_large;
    solution.refused = found.refused;
    solution.complete = solution.size == std::ssize(found.rows) + solution.too_large + solution.refused;
    TIDEMARK_TRY(Choose(sweep, job, base, std::move(found.rows), solution));
    if (solution.options.empty() && found.nearest) {
      TIDEMARK_ASSIGN(const Job nearest, JobAt(sweep, job, found.nearest->combination, solution.global_batch));
      if (!IsDeclaredWrong(nearest) && SameArithmetic(base, nearest)) {
        TIDEMARK_ASSIGN(const std::vector<std::string> change, ChangeOf(sweep, job, base, nearest));
        TIDEMARK_ASSIGN(solution.nearest, OptionOf(change, solution));
      }
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
    solution.title = fmt::format("{} on {} ranks, {} sequences a step", job_.path, Grouped(solution.ranks),
                                 Grouped(solution.global_batch));
    solution.job_yaml = JobYaml(base);
    solution.version = TIDEMARK_VERSION;
    solution.machine = base.machine.name;
    solution.memory = base.machine.device_memory;
    Result<ChangedJob> now = PredictChanged(job_, {}, StepKind::steady, Engine::simulate);
    now = now ? std::move(now) : PredictChanged(job_, {}, StepKind::steady, Engine::closed_form);
    if (now) {
      solution.now = CostOf(now->report, solution.memory);
      lints_ = now->report.lints;
    } else {
      solution.refusal = now.error().message;
    }
    return solution;
  }

  /// What makes the training run, its ranks and their machine.
  static bool IsGiven(const std::string& key) {
    constexpr std::string_view kSections[] = {"layout", "machine", "network", "sequence_length", "last_window"};
    return key == "accumulation_steps" || std::ranges::any_of(kSections, [&](std::string_view section) {
             return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
           });
  }

  Result<SweepSpace> SpaceOf(const Job& base, std::int64_t global_batch) const {
    std::vector<SweepAxis> axes = Alternatives(base, global_batch, {keep_.begin(), keep_.end()});
    for (const std::string& vary : vary_) {
      TIDEMARK_ASSIGN(SweepAxis axis, ParseSweepAxis(vary));
      if (IsGiven(axis.key) || ValueOf(base, axis.key).empty()) {
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
      found.indivisible += std::ranges::count_if(priced.refused, [&](const PricedCombinations::Refused& refused) {
        return priced.reasons[refused.reason].starts_with("--global-batch");
      });
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

  static Result<Job> JobAt(const Sweep& sweep, JobTemplate& job, std::int64_t combination, std::int64_t global_batch) {
    const std::vector<SweepAxis>& axes = sweep.groups().space().axes();
    std::vector<std::size_t> at(axes.size());
    sweep.groups().space().At(combination, at);
    std::vector<JobChange> changes;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      TIDEMARK_ASSIGN(changes.emplace_back(), ParseJobChange(axes[i].key + "=" + axes[i].values[at[i]], "--vary"));
    }
    std::vector<const JobChange*> all;
    for (const JobChange& change : changes) {
      all.push_back(&change);
    }
    TIDEMARK_ASSIGN(Job found, job.Unchecked(all));
    found.accumulation_steps = global_batch / (found.micro_batch_size * found.layout.dp);
    return found;
  }

  /// Keys of a space, sections by their keys.
  static std::vector<std::string> KeysOf(const Sweep& sweep) {
    std::vector<std::string> keys;
    for (const SweepAxis& axis : sweep.groups().space().axes()) {
      if (axis.key == "layout") {
        keys.insert(keys.end(), {"layout.dp", "layout.tp", "layout.pp", "layout.layers_per_stage"});
      } else {
        keys.push_back(axis.key);
      }
    }
    keys.emplace_back("accumulation_steps");
    return keys;
  }

  static std::string ValueOf(const Job& job, const std::string& key) {
    if (key == "strategy") {
      return job.strategy;
    }
    const auto field = std::ranges::find(JobFields(), key, &Field<Job>::key);
    return field == JobFields().end() || !field->write ? "" : field->write(job);
  }

  /// What makes the job at a place of the space of the job that was given. Axes have other defaults under another
  /// strategy.
  static Result<std::vector<std::string>> ChangeOf(const Sweep& sweep, JobTemplate& job, const Job& base,
                                                   const Job& found) {
    TIDEMARK_ASSIGN(const JobChange strategy, ParseJobChange("strategy=" + found.strategy, "--vary"));
    const JobChange* const changes[] = {&strategy};
    TIDEMARK_ASSIGN(const Job bare, job.Unchecked(changes));
    std::vector<std::string> change;
    for (const std::string& key : KeysOf(sweep)) {
      if (ValueOf(key == "strategy" ? base : bare, key) != ValueOf(found, key)) {
        change.push_back(fmt::format("{}={}", key, ValueOf(found, key)));
      }
    }
    return change;
  }

  /// Varied keys in which two jobs differ; those that follow from others are left out.
  static std::vector<std::string> DifferenceOf(const Sweep& sweep, const Job& a, const Job& b) {
    std::vector<std::string> keys;
    for (const std::string& key : KeysOf(sweep)) {
      if (key != "accumulation_steps" && ValueOf(a, key) != ValueOf(b, key)) {
        const std::string shown = key.starts_with("layout.") ? "layout" : key;
        if (keys.empty() || keys.back() != shown) {
          keys.push_back(shown);
        }
      }
    }
    return keys;
  }

  /// The fastest of those that compute the job's numbers, and behind it those that differ from it in other keys than
  /// the ones before. Of all these the allocator is simulated, which decides whether they fit.
  Status Choose(const Sweep& sweep, JobTemplate& job, const Job& base, std::vector<PricedRow> rows,
                Solution& solution) const {
    constexpr std::int64_t kMostLooks = 300;  // at what may fit and does not
    std::ranges::sort(rows, {}, [](const PricedRow& row) { return std::pair(row.time.step, row.combination); });
    std::optional<Job> best;
    std::set<std::vector<std::string>> kinds;
    for (const PricedRow& row : rows) {
      if (std::ssize(solution.options) > top_ || StopRequested()) {
        break;
      }
      if (!row.fits && solution.tight >= kMostLooks) {
        continue;
      }
      TIDEMARK_ASSIGN(const Job found, JobAt(sweep, job, row.combination, solution.global_batch));
      if (IsDeclaredWrong(found) || !SameArithmetic(base, found)) {
        solution.altering += best || !row.fits ? 0 : 1;
        continue;
      }
      const std::vector<std::string> kind = best ? DifferenceOf(sweep, *best, found) : std::vector<std::string>();
      if (kinds.contains(kind)) {
        continue;
      }
      TIDEMARK_ASSIGN(const std::vector<std::string> change, ChangeOf(sweep, job, base, found));
      TIDEMARK_ASSIGN(SolvedOption option, OptionOf(change, solution));
      if (!option.cost.fits) {
        ++solution.tight;
        continue;
      }
      best = best ? std::move(best) : std::optional(found);
      kinds.insert(kind);
      option.differs_in = kind;
      solution.options.push_back(std::move(option));
    }
    return Done{};
  }

  Result<SolvedOption> OptionOf(const std::vector<std::string>& change, const Solution& solution) const {
    Result<ChangedJob> simulated = PredictChanged(job_, change, StepKind::steady, Engine::simulate);
    if (!simulated) {  // too many microbatches to simulate
      simulated = PredictChanged(job_, change, StepKind::steady, Engine::closed_form);
    }
    TIDEMARK_ASSIGN(const ChangedJob changed, std::move(simulated));
    SolvedOption option;
    option.change = fmt::format("{}", fmt::join(change, " "));
    option.cost = CostOf(changed.report, solution.memory);
    if (solution.now) {
      option.saved = solution.now->allocated - option.cost.allocated;
      if (solution.same_batch) {
        option.lost = option.cost.step - solution.now->step;
      }
    }
    option.tokens_per_s_per_gpu = changed.report.throughput.tokens_per_s_per_gpu;
    if (changed.report.throughput.mfu > 0) {
      option.mfu = changed.report.throughput.mfu;
    }
    option.lints = NewWarnings(changed.report.lints, lints_);
    option.command = PredictCommand(job_, change);
    return option;
  }

  JobOptions job_;
  std::string memory_;
  std::optional<std::int64_t> global_batch_;
  std::vector<std::string> keep_, vary_;
  std::int64_t top_ = 5;
  std::optional<int> threads_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
  std::vector<Lint> lints_;  ///< of the job itself
};

}  // namespace

std::unique_ptr<Command> CmdSolve() { return std::make_unique<SolveCommand>(); }

}  // namespace tidemark
