// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/changed_job.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/observed_job.h"
#include "cli/options.h"
#include "cli/prediction_report.h"
#include "cli/write_file.h"
#include "reports/render/render.h"
#include "sim/predict/predict.h"

namespace tidemark {
namespace {

PredictOptions OneStep(StepKind kind) {
  PredictOptions options;
  options.steps.front().kind = kind;
  return options;
}

class ExplainCommand : public Command {
 public:
  std::string_view name() const override { return "explain"; }
  std::string_view summary() const override { return "Why one job needs more memory or time than another, in words"; }
  std::string_view examples() const override {
    return "  tidemark explain job.yaml --against accumulation_steps=4        JOB is before, --against after\n"
           "  tidemark explain job.yaml --set accumulation_steps=1 --against accumulation_steps=4\n"
           "                                                                  the same from 1 microbatch, whatever the "
           "file says\n"
           "  tidemark explain job.yaml --against strategy=ddp-last --against layout.tp=2\n"
           "                                                                  several values changed at once\n"
           "  tidemark explain before.yaml --against after.yaml               two files\n"
           "  tidemark explain job.yaml --against accumulation_steps=4 --html why.html\n"
           "                                                                  with both memory curves, for a browser\n"
           "  tidemark explain job.yaml --against accumulation_steps=4 --format json\n"
           "                                                                  for scripts\n"
           "\n"
           "A paragraph says what is different and why: which tensors, how large, from when to when. Below it stand\n"
           "both peaks tensor by tensor (the rows sum to the difference), the time by cause, and what is alive at the\n"
           "moments of a step that have a name. Compared is the fullest GPU of each job.\n";
  }

  void Setup(CLI::App& app) override {
    AddJobOptions(app, job_);
    AddObservedOptions(app, observed_);
    app.add_option("--against", against_,
                   "what is different afterwards: KEY=VALUE, on top of JOB and its --set, or the file of a second job")
        ->type_name("KEY=VALUE|JOB")
        ->expected(1)
        ->take_all()
        ->required();
    AddChoice<StepKind>(app, "--step", step_,
                        {{"first", StepKind::first}, {"second", StepKind::second}, {"steady", StepKind::steady}},
                        "which optimizer step: first, second or steady (default)");
    app.add_option("--html", html_path_,
                   "write the same as a page with pictures to this file; - is stdout, without the report")
        ->type_name("FILE");
    AddFormatOption(app, format_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(RefuseToOverwrite(html_path_, job_.path));
    TIDEMARK_TRY(RefuseToOverwrite(html_path_, observed_.path));
    TIDEMARK_ASSIGN(const Observation observation, Observe(observed_, job_));
    TellObserved(observation);
    TIDEMARK_ASSIGN(const JobOptions other, OtherJob());
    TIDEMARK_TRY(RefuseToOverwrite(html_path_, other.path));
    TIDEMARK_ASSIGN(ExplainedSide before, Predicted(job_));
    Result<ExplainedSide> after = Predicted(other);
    if (!after) {
      Error error = std::move(after).At("--against").error();
      // What is set for JOB is not set for another file.
      for (std::size_t at = error.hint.find("--set "); at != std::string::npos && other_file_;
           at = error.hint.find("--set ", at)) {
        error.hint.replace(at, std::string_view("--set").size(), "--against");
      }
      return error;
    }
    Explanation explanation = Explain(std::move(before), std::move(*after), asked_);
    explanation.suggestion = Suggest(explanation, other);
    if (!html_path_.empty()) {
      TIDEMARK_TRY(WriteFile(html_path_, RenderAs("html", explanation)));
    }
    if (html_path_ != "-") {
      TIDEMARK_TRY(WriteOut(RenderAs(RendererOf(format_), explanation, {WantsColour()})));
    }
    return 0;
  }

 private:
  /// The second job: a file of its own, or JOB with other values. Values change the file where both are given.
  Result<JobOptions> OtherJob() {
    JobOptions other = job_;
    std::string file;
    std::vector<std::string> values;
    for (const std::string& against : against_) {
      std::error_code unknown;
      if (against.find('=') != std::string::npos && !std::filesystem::exists(against, unknown)) {
        values.push_back(against);
      } else if (file.empty()) {
        file = against;
      } else {
        return BadInput(fmt::format("--against names two jobs: '{}' and '{}'", file, against),
                        "compare them one after the other");
      }
    }
    other_file_ = !file.empty();
    if (other_file_) {
      other.path = file;  // what differs is then for the resolved jobs to say
      other.set.clear();
      other.format.clear();
      other.text.reset();
      Forget(other);
    }
    for (const std::string& value : values) {
      if (value.starts_with("network=")) {
        Forget(other);
      }
      other.set.push_back(value);
      if (file.empty()) {
        asked_.push_back(value.substr(0, value.find('=')));
      }
    }
    return other;
  }

  /// What was observed is of JOB's network only.
  static void Forget(JobOptions& other) {
    other.read.clear();
    other.words.clear();
  }

  Result<ExplainedSide> Predicted(const JobOptions& options) const {
    TIDEMARK_ASSIGN(const Job job, LoadJob(options));
    const PredictOptions predict = OneStep(step_);
    TIDEMARK_ASSIGN(Prediction prediction, Predict(job, predict));
    ExplainedSide side;
    side.report = MakeReport(job, predict, std::move(prediction));
    side.microbatches = job.Microbatches();
    side.tokens = TokensPerRank(job) * static_cast<double>(job.Ranks());
    side.stages = job.layout.pp;
    if (step_ != StepKind::first && job.last_window.microbatches == 0) {
      TIDEMARK_TRY(AddFirstStep(job, side.report));
    }
    return side;
  }

  /// The first step's optimizer is another instant than that of later ones: there its state appears.
  static Status AddFirstStep(const Job& job, PredictionReport& report) {
    TIDEMARK_ASSIGN(const Prediction first, Predict(job, OneStep(StepKind::first)));
    for (Instant& instant : FindInstants(*first.roles.at(report.worst).trace)) {
      if (instant.name == kOptimizerFirst) {
        report.instants.push_back(std::move(instant));
      }
    }
    return Done{};
  }

  /// Single changes that may help against tensors of a category, in the order in which they are tried.
  static std::vector<std::string> ChangesAgainst(Category category) {
    switch (category) {
      case Category::gradient:
      case Category::accumulator:
        return {"sync.when=every", "precision.accumulate=bf16"};
      case Category::activation:
        return {"recompute.policy=full", "recompute.policy=selective"};
      case Category::logits:
        return {"loss=fused", "loss=chunked"};
      default:
        return {};
    }
  }

  /// The first of them that the system accepts, that brings no new warning, and that saves at least a twentieth of the
  /// peak.
  std::optional<Suggestion> Suggest(const Explanation& explanation, const JobOptions& after) const {
    const std::optional<Category> grows = GrowsMost(explanation);
    if (!grows || explanation.peak_delta() <= Bytes(0)) {
      return std::nullopt;
    }
    for (const std::string& change : ChangesAgainst(*grows)) {
      const Result<ChangedJob> changed = PredictChanged(after, {change}, step_);
      if (!changed || !NewWarnings(changed->report.lints, explanation.after.report.lints).empty()) {
        continue;
      }
      const Bytes peak = explanation.after.peak().allocated, lower = changed->report.Worst().peak.allocated;
      if ((peak - lower) * 20 >= peak) {
        return Suggestion{change, lower, changed->report.time.step};
      }
    }
    return std::nullopt;
  }

  JobOptions job_;
  ObservedOptions observed_;
  bool other_file_ = false;  ///< --against names one
  std::vector<std::string> against_, asked_;
  StepKind step_ = StepKind::steady;
  std::string html_path_;
  OutputFormat format_ = OutputFormat::text;
};

}  // namespace

std::unique_ptr<Command> CmdExplain() { return std::make_unique<ExplainCommand>(); }

}  // namespace tidemark
