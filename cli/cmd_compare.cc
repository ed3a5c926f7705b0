// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/execution.h"
#include "cli/load_trace.h"
#include "cli/options.h"
#include "cli/prediction_report.h"
#include "cli/unlike_ranks.h"
#include "cli/write_file.h"
#include "profiler/execute/run.h"
#include "reports/render/render.h"
#include "sim/predict/steps.h"

namespace tidemark {
namespace {

class CompareCommand : public Command {
 public:
  std::string_view name() const override { return "compare"; }
  std::string_view summary() const override { return "Where and why a predicted and a measured trace differ"; }
  std::string_view examples() const override {
    return "  tidemark compare predicted.trace measured.trace         errors of the peak, by phase and of time, and "
           "why\n"
           "  tidemark compare predicted.trace measured.trace --html both.html\n"
           "                                                          the same with both in one chart, for a browser\n"
           "  tidemark compare predicted.trace measured.trace --format json\n"
           "                                                          for scripts\n"
           "  tidemark predict job.yaml --trace predicted.trace       writes such a trace\n"
           "  tidemark compare job.yaml --device cpu                  predicts the job, runs it here, and compares\n"
           "\n"
           "Errors are predicted minus measured. Tensors are matched by role, step, phase, microbatch and name;\n"
           "of several ranks of a role the one with the largest error is told first. Of several steps the median\n"
           "time of each kind is told. In what tidemark executes, a step has the time of its work alone from the\n"
           "fourth one on (--steps 8): before, memory is filled with NaNs, once for each kind of step; with\n"
           "--verify always. The exit code is 0 where the peaks of tensors are equal in every role, 1 where one\n"
           "differs or a file is cut short, 2 where a file is no trace or nothing in them can be matched.\n";
  }

  void Setup(CLI::App& app) override {
    app.add_option("PREDICTED", predicted_,
                   "a trace file of any readable format (tidemark list formats); with --device a JOB")
        ->required();
    app.add_option("MEASURED", measured_, "another one, of the same job; with --device none");
    AddDeviceOption(app, execution_.device, "none, and two traces are compared");
    AddJobChanges(app, job_);
    AddExecutionOptions(app, execution_);
    AddTimedOption(app, execution_);
    app.add_option("--html", html_path_,
                   "write the same as a page with both memory curves to this file; - is stdout, without the report")
        ->type_name("FILE");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckOptions());
    if (measured_.empty()) {
      return RunAndCompare();
    }
    TIDEMARK_ASSIGN(ReadTrace predicted, LoadTrace(predicted_));
    TIDEMARK_ASSIGN(ReadTrace measured, LoadTrace(measured_));
    return Compare(std::move(predicted), std::move(measured));
  }

 private:
  Status CheckOptions() const {
    TIDEMARK_TRY(CheckDevice(execution_.device));
    TIDEMARK_TRY(RefuseToOverwrite(html_path_, predicted_));
    TIDEMARK_TRY(RefuseToOverwrite(html_path_, measured_));
    if (measured_.empty() && execution_.device.empty()) {
      return BadInput("compare needs two traces, or a job and --device",
                      "tidemark compare PREDICTED MEASURED, or tidemark compare JOB --device cpu");
    }
    if (!measured_.empty() && (!job_.set.empty() || execution_ != ExecutionOptions())) {
      return BadInput(
          "--device, --set, --steps, --data, --seed and --hang-timeout are of a job, and here are two traces",
          "leave out MEASURED, or these");
    }
    TIDEMARK_TRY(CheckWritable(html_path_));
    return CheckExecution(execution_);
  }

  /// The job's first steps, predicted and then executed.
  Result<int> RunAndCompare() {
    job_.path = predicted_;
    TIDEMARK_ASSIGN(const Job job, LoadJob(job_));
    TIDEMARK_ASSIGN(ReadTrace predicted, PredictedAsRun(job));
    execution_.traces = true;
    execution_.job_path = job_.path;
    TIDEMARK_ASSIGN(Execution execution, Execute(job, execution_));
    if (!execution.reports()) {
      return execution.place.exit_code;
    }
    if (RanksAreUnlike(job)) {
      std::fprintf(
          stderr,
          "comparing data-parallel rank 0, whose program was predicted: others keep unlike parts of padded state\n");
      KeepFirstShard(job, execution.traces);
    }
    return Compare(std::move(predicted), {"measured", {std::move(execution.traces), {}, "tidemark"}});
  }

  /// What a run will compute: sequences of different lengths are padded there.
  Result<ReadTrace> PredictedAsRun(Job job) const {
    if (job.mean_sequence_length > 0) {
      std::fprintf(stderr, "comparing sequences padded to sequence_length.max, which is what a run computes\n");
      job.mean_sequence_length = 0;
    }
    PredictOptions options;
    options.steps = FirstSteps(execution_.steps);
    TIDEMARK_ASSIGN(Prediction prediction, Predict(job, options));
    PredictionReport report = MakeReport(job, options, std::move(prediction));
    ReadTrace predicted{"predicted", {}};
    for (RoleReport& role : report.roles) {
      predicted.file.traces.push_back(std::move(*role.trace));
    }
    return predicted;
  }

  /// Of the traces of all ranks.
  static void KeepFirstShard(const Job& job, std::vector<Trace>& traces) {
    std::vector<Trace> kept;
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      if (ShardOf(job, static_cast<std::int64_t>(rank)) == 0) {
        kept.push_back(std::move(traces[rank]));
      }
    }
    traces = std::move(kept);
  }

  Result<int> Compare(ReadTrace predicted, ReadTrace measured) const {
    TIDEMARK_ASSIGN(const ComparisonReport report, MakeComparison(std::move(predicted), std::move(measured)));
    if (!html_path_.empty()) {
      TIDEMARK_TRY(WriteFile(html_path_, RenderAs("html", report)));
    }
    if (html_path_ != "-") {
      TIDEMARK_TRY(WriteMeasured(RenderAs(RendererOf(format_), report, {WantsColour()})));
    }
    return report.Agrees() || exit_zero_ ? 0 : 1;
  }

  std::string predicted_, measured_, html_path_;
  JobOptions job_;
  ExecutionOptions execution_;
  OutputFormat format_ = OutputFormat::text;
  bool exit_zero_ = false;
};

}  // namespace

std::unique_ptr<Command> CmdCompare() { return std::make_unique<CompareCommand>(); }

}  // namespace tidemark
