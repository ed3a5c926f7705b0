// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/first_steps.h"
#include "cli/observed_job.h"
#include "cli/options.h"
#include "cli/prediction_report.h"
#include "cli/trace_name.h"
#include "cli/write_file.h"
#include "reports/render/render.h"
#include "sim/memory/trace_replay.h"
#include "sim/predict/predict.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000;

class PredictCommand : public Command {
 public:
  std::string_view name() const override { return "predict"; }
  std::string_view summary() const override { return "Peak memory and step time of a job, with the reasons"; }
  std::string_view examples() const override {
    return "  tidemark predict job.yaml                                 what it needs, and whether that fits\n"
           "  tidemark predict job.yaml --set accumulation_steps=16     the same with one value changed\n"
           "  tidemark predict job.yaml --set sequence_length.mean=3000 memory of the longest sequences, time of the "
           "mean\n"
           "  tidemark predict job.yaml --html report.html              pictures of memory and streams, for a browser\n"
           "  tidemark predict job.yaml --steps 5 --trace five.trace    the first five steps, for tidemark report\n"
           "  tidemark predict job.yaml --capacity 40GiB                what the allocator does on a smaller device\n"
           "  tidemark predict job.yaml --observed step.json            the network as a trace of one microbatch shows "
           "it\n"
           "  tidemark predict job.yaml --format json                   for scripts\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddObservedOptions(app, observed_);
    AddChoice<Engine>(app, "--engine", options_.engine,
                      {{"simulate", Engine::simulate}, {"closed-form", Engine::closed_form}, {"both", Engine::both}},
                      "simulate (default), closed-form (no trace, no allocator) or both, which compares them");
    AddChoice<StepKind>(app, "--step", step_,
                        {{"first", StepKind::first}, {"second", StepKind::second}, {"steady", StepKind::steady}},
                        "which optimizer step: first, second or steady (default)");
    app.add_option("--steps", steps_, "the first K steps in a row, instead of one")->type_name("K");
    app.add_option("--capacity", capacity_, "what happens where the allocator gets no more than this: 40GiB")
        ->type_name("SIZE");
    app.add_option("--trace", trace_path_,
                   "write what happens, event by event, to this file (with --capacity under that limit); - is stdout, "
                   "without the report")
        ->type_name("FILE");
    app.add_option("--html", html_path_, "write a page with pictures to this file; - is stdout, without the report")
        ->type_name("FILE");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckOptions());
    TIDEMARK_ASSIGN(Observation observation, Observe(observed_, job_));
    TIDEMARK_ASSIGN(const Job job, LoadJob(job_));
    options_.minimum = true;
    TIDEMARK_ASSIGN(Prediction prediction, Predict(job, options_));
    const bool engines_agree = prediction.engines_agree;
    PredictionReport report = MakeReport(job, options_, std::move(prediction));
    report.provenance.observed = std::move(observation.lines);
    if (observation.lint) {
      AddLint(report, *observation.lint);
    }
    LookAtFirstSteps(job, report);
    TIDEMARK_TRY(WriteFiles(job, report));
    if (trace_path_ != "-" && html_path_ != "-") {
      TIDEMARK_TRY(WriteOut(RenderAs(RendererOf(format_), report, {WantsColour()})));
    }
    return ExitCode(report, engines_agree);
  }

 private:
  Status CheckOptions() {
    TIDEMARK_TRY(ChooseSteps());
    if (trace_path_ == "-" && html_path_ == "-") {
      return BadInput("--trace and --html cannot both go to stdout", "give one of them a file name");
    }
    if (!html_path_.empty() && html_path_ == trace_path_) {
      return BadInput(fmt::format("--trace and --html both name '{}'", html_path_), "give each a file of its own");
    }
    TIDEMARK_TRY(CheckTraceName(trace_path_));
    for (const std::string& path : {html_path_, trace_path_}) {
      TIDEMARK_TRY(RefuseToOverwrite(path, job_.path));
      TIDEMARK_TRY(RefuseToOverwrite(path, observed_.path));
    }
    if (!capacity_.empty()) {
      TIDEMARK_ASSIGN(options_.capacity, ParseBytes(capacity_).At("--capacity"));
      if (*options_.capacity < Bytes(1 << 20)) {
        return BadInput(fmt::format("--capacity: {} is no device", Text(*options_.capacity)),
                        "expected at least 1 MiB: write the unit as well, for example 80GiB");
      }
    }
    if (options_.engine == Engine::closed_form && (!trace_path_.empty() || options_.capacity)) {
      return BadInput("--trace and --capacity need the simulation; the closed form walks through no events",
                      "leave out --engine closed-form");
    }
    return Done{};
  }

  Status ChooseSteps() {
    if (!steps_) {
      options_.steps = {{step_.value_or(StepKind::steady), 1}};
      return Done{};
    }
    if (step_) {
      return BadInput("--step and --steps cannot both be given: --step picks one step, --steps K the first K of them",
                      "leave one of them out");
    }
    if (*steps_ < 1 || *steps_ > kMostSteps) {
      return BadInput(fmt::format("--steps: expected a number from 1 to {}, found {}", Grouped(kMostSteps), *steps_),
                      "count steps from the first on: --steps 1 is the first one, --step steady any later one");
    }
    options_.steps = FirstSteps(*steps_);
    return Done{};
  }

  void LookAtFirstSteps(const Job& job, PredictionReport& report) const {
    if (steps_ || step_ || !report.Fits() || options_.engine == Engine::closed_form) {
      return;
    }
    if (const std::optional<Lint> lint = FirstStepsThatDoNotFit(job)) {
      AddLint(report, *lint);
    }
  }

  /// As it happens on the device, or where the allocator gets --capacity and no more.
  Trace TraceOf(const Job& job, const RoleReport& role) const {
    if (!options_.capacity) {
      return *role.trace;
    }
    TraceReplay replay = ReplayTrace(*role.trace, job.allocator, *options_.capacity);
    if (!replay.refused) {
      replay.trace.device_low = role.trace->device_low;
      replay.trace.device_expected = role.trace->device_expected;
      replay.trace.device_high = role.trace->device_high;
    }
    return std::move(replay.trace);
  }

  Status WriteFiles(const Job& job, const PredictionReport& report) const {
    if (!html_path_.empty()) {
      TIDEMARK_TRY(WriteFile(html_path_, RenderAs("html", report)));
    }
    if (!trace_path_.empty()) {
      std::vector<Trace> traces;
      for (const RoleReport& role : report.roles) {
        traces.push_back(TraceOf(job, role));
      }
      TIDEMARK_ASSIGN(const auto format, FindTraceFormat("tidemark"));
      TIDEMARK_ASSIGN(const std::string bytes, format->Write(traces));
      TIDEMARK_TRY(WriteFile(trace_path_, bytes));
    }
    return Done{};
  }

  int ExitCode(const PredictionReport& report, bool engines_agree) const {
    if (!engines_agree) {
      std::fputs(
          "tidemark: the closed form and the simulation differ, which is a fault of tidemark: please report the job\n",
          stderr);
      return static_cast<int>(ErrorCode::internal);
    }
    const bool out_of_memory = report.capacity && report.capacity->outcome == "out_of_memory";
    const bool finding = !report.Fits() || out_of_memory;
    return finding && !exit_zero_ ? static_cast<int>(ErrorCode::finding) : 0;
  }

  JobOptions job_;
  ObservedOptions observed_;
  PredictOptions options_;
  std::optional<StepKind> step_;
  std::optional<std::int64_t> steps_;
  std::string capacity_, trace_path_, html_path_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
};

}  // namespace

std::unique_ptr<Command> CmdPredict() { return std::make_unique<PredictCommand>(); }

}  // namespace tidemark
