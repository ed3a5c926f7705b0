// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/common_machine.h"
#include "cli/interruption.h"
#include "cli/observed_job.h"
#include "cli/options.h"
#include "cli/progress_line.h"
#include "cli/sweep_base.h"
#include "cli/sweep_csv.h"
#include "cli/sweep_id.h"
#include "cli/sweep_ranks.h"
#include "cli/sweep_values.h"
#include "cli/write_file.h"
#include "models/job/job_template.h"
#include "models/job/read.h"
#include "reports/render/render.h"
#include "sim/strategies/strategy.h"
#include "sim/sweep/segment_folder.h"
#include "sim/sweep/summary.h"
#include "sim/sweep/sweep.h"

namespace tidemark {
namespace {

constexpr std::size_t kRowsOfText = 20, kRowsOfPage = 100'000, kRowsOfJson = 1'000'000;
/// A sweep that would take longer asks first.
constexpr double kLongSeconds = 600, kTrialSeconds = 1;

class SweepCommand : public Command {
 public:
  std::string_view name() const override { return "sweep"; }
  std::string_view summary() const override { return "Peak memory and step time of every combination of values"; }
  std::string_view examples() const override {
    return "  tidemark sweep job.yaml --vary micro_batch_size=1..8 --vary recompute.policy=none,full\n"
           "  tidemark sweep job.yaml --vary strategy=ddp-last,fsdp2-defer --vary accumulation_steps=1..64:x2 "
           "--pareto\n"
           "  tidemark sweep job.yaml --global-batch 1024 --vary layout.tp=1,2,4,8 --vary layout.dp=8..64:x2 "
           "--where 'ranks == 64'\n"
           "  tidemark sweep job.yaml --vary machine=h100-sxm-80gb,b200-sxm-180gb --fit --top 5\n"
           "  tidemark sweep job.yaml --vary layout.tp=1,2 --out rows.csv    all rows; .json and .html as well\n"
           "  mpirun -n 4 tidemark sweep job.yaml --vary layout.tp=1,2 --threads 1 --out rows.csv    by four "
           "processes\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddObservedOptions(app, observed_);
    app.add_option("--vary", vary_,
                   "a key and its values: layout.tp=1,2,4, ranges 1..8, 8..64:+8, powers of two 1..64:x2")
        ->type_name("KEY=VALUES")
        ->expected(1)
        ->take_all()
        ->required();
    AddGlobalBatchOption(app, global_batch_, "sequences of a step on all ranks; accumulation_steps follows from it");
    app.add_option("--where", where_,
                   "only combinations for which this holds: \"ranks == 64 and layout.tp <= 8\"; over layout.*, ranks, "
                   "micro_batch_size, accumulation_steps, sequence_length and varied whole numbers")
        ->type_name("EXPR");
    app.add_flag("--fit", fit_, "only what fits into the device, exit code 1 where nothing does; the rest is pruned");
    auto* pareto = app.add_option("--pareto", pareto_,
                                  fmt::format("only rows that none beats in both of two metrics; default "
                                              "allocated_bytes,step_ns; there are {}",
                                              fmt::join(SweepMetricNames(), ", ")))
                       ->type_name("X,Y")
                       ->expected(0, 1);
    app.add_option("--top", top_, "only the first N rows: those that fit, fastest first")
        ->type_name("N")
        ->excludes(pareto);
    app.add_option("--threads", threads_, "default: all processors")->type_name("N")->check(CLI::Range(1, 1024));
    app.add_option("--out", out_, "write rows to a file: F.csv (all, refused ones too), F.json or F.html")
        ->type_name("FILE");
    app.add_flag("--resume", resume_, "go on with an interrupted sweep of the same --out");
    app.add_flag("--yes", yes_, "begin even where it takes more than ten minutes");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
    pareto_option_ = pareto;
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckOptions());
    TIDEMARK_ASSIGN(const Observation observation, Observe(observed_, job_));
    const std::vector<StrategyDefaults> strategies = KnownStrategies();
    TIDEMARK_ASSIGN(JobTemplate job, ReadJobTemplate(job_, strategies));
    TIDEMARK_ASSIGN(const Job base, SweepBase(job, vary_));
    TIDEMARK_ASSIGN(const Sweep sweep, MakeSweep(base, job));
    const SweepValues columns(sweep.groups().space(), global_batch_, base);
    TIDEMARK_ASSIGN(SweepRanks ranks, SweepRanks::Meet());
    if (ranks.first()) {
      TellObserved(observation);
    }
    if (ranks.several() && out_.empty()) {
      return BadInput("several ranks need --out, beside which each keeps what it prices",
                      "for example --out rows.csv, in a folder that all of them see");
    }
    Result<std::optional<SegmentFolder>> segments =
        OpenSegments(SweepId(sweep, base, job, fmt::format("{} {} {}", global_batch_.value_or(0), fit_, where_)),
                     sweep.chunks(), ranks);
    TIDEMARK_TRY(ranks.Gather(segments ? Status(Done{}) : Status(segments.error())));
    TIDEMARK_TRY(ranks.Gather(AskIfLong(sweep, ranks, *segments)));
    SweepSummary all(RowsKept(), x_, y_);
    const auto start = std::chrono::steady_clock::now();
    TIDEMARK_TRY(ranks.Gather(Price(sweep, ranks, *segments, all)));
    if (!ranks.first()) {
      return StopRequested() ? static_cast<int>(ErrorCode::interrupted) : 0;
    }
    if (ranks.several()) {
      all = SweepSummary(RowsKept(), x_, y_);
      TIDEMARK_TRY((*segments)->Refresh());
      TIDEMARK_TRY(AddThere(**segments, all));
    }
    SweepReport report = MakeReport(sweep, base, job, columns, all);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    TIDEMARK_TRY(WriteRows(report, columns, *segments, all));
    return Tell(std::move(report), *segments);
  }

 private:
  Status CheckOptions() {
    const std::string metrics = pareto_.empty() ? "allocated_bytes,step_ns" : pareto_;
    const std::size_t comma = metrics.find(',');
    if (comma == std::string::npos || metrics.find(',', comma + 1) != std::string::npos) {
      return BadInput(fmt::format("--pareto: expected two metrics, found '{}'", metrics),
                      "for example --pareto allocated_bytes,step_ns");
    }
    TIDEMARK_ASSIGN(x_, FindSweepMetric(metrics.substr(0, comma)).At("--pareto"));
    TIDEMARK_ASSIGN(y_, FindSweepMetric(metrics.substr(comma + 1)).At("--pareto"));
    if (x_.name == y_.name) {
      return BadInput(fmt::format("--pareto: {} is named twice", x_.name), "a front is of two metrics");
    }
    if (top_ && *top_ < 1) {
      return BadInput(fmt::format("--top: expected a number from 1 on, found {}", *top_));
    }
    if (resume_ && out_.empty()) {
      return BadInput("--resume needs --out, beside which an interrupted sweep keeps its rows");
    }
    if (!out_.empty() && !EndsIn(".csv") && !EndsIn(".json") && !EndsIn(".html")) {
      return BadInput(fmt::format("--out: expected a name that ends in .csv, .json or .html, found '{}'", out_));
    }
    TIDEMARK_TRY(RefuseToOverwrite(out_, job_.path));
    TIDEMARK_TRY(RefuseToOverwrite(out_, observed_.path));
    return out_.empty() ? Status(Done{}) : CheckWritable(out_);
  }

  bool EndsIn(std::string_view ending) const { return out_.ends_with(ending); }

  Result<Sweep> MakeSweep(const Job& base, const JobTemplate& job) const {
    std::vector<SweepAxis> axes;
    for (const std::string& vary : vary_) {
      TIDEMARK_ASSIGN(SweepAxis axis, ParseSweepAxis(vary));
      if (global_batch_ && axis.key == "accumulation_steps") {
        return BadInput("--global-batch decides accumulation_steps, which --vary varies", "leave one of them out");
      }
      TIDEMARK_TRY(RefuseSet(job_, axis.key));
      axes.push_back(std::move(axis));
    }
    TIDEMARK_ASSIGN(SweepSpace space, SweepSpace::Of(std::move(axes)));
    SweepLimits limits;
    limits.global_batch = global_batch_;
    limits.fit = fit_ ? SweepLimits::Fit::fitting : SweepLimits::Fit::all;
    if (RowsKept() == 0 && out_.empty()) {  // nobody sees any other row
      limits.front = ParetoFront(x_, y_);
    }
    if (!where_.empty()) {
      TIDEMARK_ASSIGN(limits.condition, SweepCondition::Parse(where_, space, base, global_batch_));
    }
    TIDEMARK_ASSIGN(SweepGroups groups, SweepGroups::Of(std::move(space), !job.follows()));
    return Sweep(std::move(groups), std::move(limits), job);
  }

  /// All ranks see the same folder, and look into it before any of them adds to it.
  Result<std::optional<SegmentFolder>> OpenSegments(std::uint64_t id, std::int64_t chunks,
                                                    const SweepRanks& ranks) const {
    if (out_.empty()) {
      return std::optional<SegmentFolder>();
    }
    TIDEMARK_ASSIGN(SegmentFolder folder, SegmentFolder::Open(out_ + ".segments", id, resume_));
    if (resume_ && ranks.first()) {
      fmt::print(stderr, "{} of {} chunks are there already\n", Grouped(std::ssize(folder.chunks())), Grouped(chunks));
    }
    return std::optional(std::move(folder));
  }

  Status AskIfLong(const Sweep& sweep, const SweepRanks& ranks, const std::optional<SegmentFolder>& segments) const {
    constexpr std::int64_t kSmall = 100'000;
    if (yes_ || sweep.size() <= kSmall || !ranks.first()) {
      return Done{};
    }
    TIDEMARK_ASSIGN(const double rate, sweep.MeasureRate(kTrialSeconds));
    const double there = segments ? static_cast<double>(segments->chunks().size()) : 0;
    const double share = 1 - there / static_cast<double>(sweep.chunks());
    const int threads = threads_.value_or(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    const double seconds = static_cast<double>(sweep.size()) * share / rate / threads;
    if (seconds <= kLongSeconds) {
      return Done{};
    }
    return BadInput(
        fmt::format("{} combinations would take about {} on {} threads ({} a second on each)", Grouped(sweep.size()),
                    Duration(seconds), threads, Grouped(static_cast<std::int64_t>(rate))),
        "--yes begins all the same (with --out it can be interrupted and resumed); --where or fewer values "
        "make it smaller");
  }

  static std::string Duration(double seconds) {
    constexpr double kHour = 3600, kDay = 24 * kHour, kYear = 365 * kDay;
    return seconds < 2 * kHour   ? fmt::format("{:.0f} minutes", seconds / 60)
           : seconds < 2 * kDay  ? fmt::format("{:.0f} hours", seconds / kHour)
           : seconds < 2 * kYear ? fmt::format("{:.0f} days", seconds / kDay)
                                 : fmt::format("{:.0f} years", seconds / kYear);
  }

  std::size_t RowsKept() const {
    if (pareto_option_->count() > 0 && !EndsIn(".html")) {
      return 0;
    }
    if (top_) {
      return static_cast<std::size_t>(*top_);
    }
    return EndsIn(".json") || format_ == OutputFormat::json ? kRowsOfJson : EndsIn(".html") ? kRowsOfPage : kRowsOfText;
  }

  /// What segments hold.
  static Status AddThere(const SegmentFolder& segments, SweepSummary& all) {
    const auto add_row = [&](const PricedRow& row) -> Status {
      all.Add(row);
      return Done{};
    };
    const auto add_refused = [&](const PricedCombinations& refused) -> Status {
      all.AddRefused(refused);
      return Done{};
    };
    TIDEMARK_TRY(segments.ForEachRow(add_row));
    return segments.ForEachRefused(add_refused);
  }

  Status Price(const Sweep& sweep, SweepRanks& ranks, std::optional<SegmentFolder>& segments, SweepSummary& all) const {
    ProgressLine progress(sweep.size(), "rows");
    std::vector<std::int64_t> left;
    std::int64_t had = 0;
    for (std::int64_t chunk = 0; chunk < sweep.chunks(); ++chunk) {
      if (segments && segments->chunks().contains(chunk)) {
        had += sweep.RowsOf(chunk);
      } else {
        left.push_back(chunk);
      }
    }
    progress.Had(had);
    if (segments && !ranks.several()) {  // else they are added up once all ranks are done
      TIDEMARK_TRY(AddThere(*segments, all));
    }
    StopOnRequest();
    Status counted = Done{};
    Sweep::Handlers handlers;
    handlers.next = [&]() -> std::optional<std::int64_t> {
      const Result<std::optional<std::int64_t>> next = ranks.Next(left);
      counted = next || !counted ? std::move(counted) : Status(next.error());
      return next ? *next : std::nullopt;
    };
    if (segments) {
      handlers.keep = [&](std::int64_t chunk, const PricedCombinations& priced) {
        return segments->Write(chunk, priced);
      };
    }
    handlers.done = [&](std::int64_t chunk, const PricedCombinations& priced) -> Status {
      if (segments) {
        segments->Add(chunk);
      }
      all.Add(priced);
      progress.Add(sweep.RowsOf(chunk));
      return Done{};
    };
    handlers.cancelled = StopRequested;
    TIDEMARK_TRY(sweep.Run(threads_.value_or(0), handlers));
    return counted;
  }

  SweepReport MakeReport(const Sweep& sweep, const Job& base, JobTemplate& job, const SweepValues& columns,
                         const SweepSummary& all) const {
    SweepReport report;
    report.title = fmt::format("{}, varying {}{}", job_.path, fmt::join(VariedKeys(sweep), ", "),
                               global_batch_ ? fmt::format(", at a global batch of {}", Grouped(*global_batch_)) : "");
    report.job_yaml = JobYaml(base);
    report.version = TIDEMARK_VERSION;
    if (const std::optional<Machine> machine = CommonMachine(sweep.groups(), job)) {
      report.machine = machine->name;
      report.device_memory = machine->device_memory;
    }
    report.keys = columns.keys();
    report.shares_device = base.allocator.memory_fraction > 0 ||
                           std::ranges::find(report.keys, "allocator.memory_fraction") != report.keys.end();
    report.same_batch = all.same_tokens();
    report.x = x_.name;
    report.y = y_.name;
    report.size = sweep.size();
    report.evaluated = all.evaluated();
    report.pruned = all.pruned();
    report.refused = all.refused();
    report.feasible = all.feasible();
    report.complete = report.size == report.evaluated + report.pruned + report.refused;
    std::vector<PricedRow> front = all.front().Rows();
    std::ranges::sort(front, ComesBefore);
    const std::set<std::int64_t> on_front = CombinationsOf(front);
    for (const PricedRow& row : RowsKept() == 0 ? front : all.Top()) {
      report.rows.push_back(columns.Row(row, on_front.contains(row.combination)));
    }
    if (all.first()) {
      report.first = columns.Row(*all.first(), on_front.contains(all.first()->combination));
      report.lowest = columns.Row(*all.lowest(), on_front.contains(all.lowest()->combination));
    }
    report.rows_left_out = report.evaluated - std::ssize(report.rows);
    for (const auto& [reason, count] : all.reasons()) {
      report.refusals.push_back({reason, count});
    }
    std::ranges::stable_sort(report.refusals, std::greater(), &SweepRefusal::count);
    return report;
  }

  static std::vector<std::string> VariedKeys(const Sweep& sweep) {
    std::vector<std::string> keys;
    for (const SweepAxis& axis : sweep.groups().space().axes()) {
      keys.push_back(axis.key);
    }
    return keys;
  }

  static std::set<std::int64_t> CombinationsOf(const std::vector<PricedRow>& rows) {
    std::set<std::int64_t> combinations;
    for (const PricedRow& row : rows) {
      combinations.insert(row.combination);
    }
    return combinations;
  }

  Status WriteRows(const SweepReport& report, const SweepValues& columns, const std::optional<SegmentFolder>& segments,
                   const SweepSummary& all) const {
    if (!segments || !report.complete) {
      return Done{};
    }
    if (EndsIn(".csv")) {
      return WriteSweepCsv(out_, columns, *segments, CombinationsOf(all.front().Rows()));
    }
    return WriteFile(out_, RenderAs(EndsIn(".html") ? "html" : "json", report));
  }

  Result<int> Tell(SweepReport report, std::optional<SegmentFolder>& segments) const {
    if (!report.complete) {
      const bool kept = segments && !segments->chunks().empty();
      fmt::print(stderr, "tidemark: interrupted{}\n",
                 kept ? fmt::format("; what was priced is kept in {}: the same command with --resume goes on",
                                    segments->path())
                      : "");
    }
    if (segments && (report.complete || segments->chunks().empty())) {
      segments->Remove();
    }
    if (format_ == OutputFormat::text && report.rows.size() > kRowsOfText && !top_) {
      report.rows_left_out += std::ssize(report.rows) - static_cast<std::int64_t>(kRowsOfText);
      report.rows.resize(kRowsOfText);
    }
    TIDEMARK_TRY(WriteOut(RenderAs(RendererOf(format_), report, {WantsColour()})));
    if (!report.complete) {
      return static_cast<int>(ErrorCode::interrupted);
    }
    const bool finding = fit_ ? report.feasible == 0 : report.evaluated == 0;
    return finding && !exit_zero_ ? static_cast<int>(ErrorCode::finding) : 0;
  }

  JobOptions job_;
  ObservedOptions observed_;
  std::vector<std::string> vary_;
  std::optional<std::int64_t> global_batch_, top_;
  std::string where_, pareto_, out_;
  std::optional<int> threads_;
  bool fit_ = false, resume_ = false, yes_ = false, exit_zero_ = false;
  OutputFormat format_ = OutputFormat::text;
  CLI::Option* pareto_option_ = nullptr;
  SweepMetric x_{}, y_{};
};

}  // namespace

std::unique_ptr<Command> CmdSweep() { return std::make_unique<SweepCommand>(); }

}  // namespace tidemark
