// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/command.h"
#include "cli/execution.h"
#include "cli/observe.h"
#include "cli/options.h"
#include "cli/write_file.h"
#include "reports/check/baseline.h"
#include "reports/check/verdict.h"
#include "reports/render/check_annotations.h"
#include "reports/render/check_json.h"
#include "reports/render/check_junit.h"
#include "reports/render/render.h"
#include "reports/summarise/check_report.h"

namespace tidemark {
namespace {

/// A variable of the environment; empty where it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class CheckCommand : public Command {
 public:
  std::string_view name() const override { return "check"; }
  std::string_view summary() const override { return "Fail where the peak memory of one of many jobs has grown"; }
  std::string_view examples() const override {
    return "  tidemark check scenarios.yaml --baseline baseline.json     has any peak grown, and which tensors did "
           "it?\n"
           "  tidemark check scenarios.yaml --baseline baseline.json --junit junit.xml --format markdown\n"
           "                                                             for CI: test results, and a comment\n"
           "  tidemark baseline update scenarios.yaml --baseline baseline.json --reason 'longer sequences'\n"
           "                                                             makes what is now the baseline\n"
           "\n"
           "SCENARIOS is YAML: scenarios: [{name: small, job: job.yaml, set: {layout.tp: 8}, mode: predict, steps: 2,\n"
           "budget: 24 GiB}]. mode: run executes the job here and compares what was measured, within tolerance (5 %).\n"
           "In GitHub Actions annotations and the job's summary are written by themselves. Nothing changes the "
           "baseline.\n";
  }

  void Setup(CLI::App& app) override {
    app.add_option("SCENARIOS", scenarios_path_, "jobs, their budgets, and whether they are predicted or run")
        ->required();
    app.add_option("--baseline", baseline_path_, "peaks that were agreed to; where there is no such file, it fails")
        ->type_name("FILE")
        ->required();
    AddDeviceOption(app, device_);
    app.add_option("--junit", junit_path_,
                   "write test results as JUnit XML to this file; - is stdout, without the report")
        ->type_name("FILE");
    app.add_option("--github-benchmark", benchmark_path_,
                   "write peaks as customSmallerIsBetter of github-action-benchmark to this file; - is stdout, without "
                   "the report")
        ->type_name("FILE");
    app.add_option("--markdown", markdown_path_,
                   "write a comment for a pull request to this file; - is stdout, without the report")
        ->type_name("FILE");
    app.add_flag("--github", github_,
                 "annotations on stderr, and the summary that $GITHUB_STEP_SUMMARY names; also where GITHUB_ACTIONS is "
                 "true");
    AddFormatOption(app, format_);
    AddExitZeroOption(app, exit_zero_);
  }

  Result<int> Run() override {
    TIDEMARK_TRY(CheckPlaces());
    TIDEMARK_ASSIGN(std::vector<Scenario> scenarios, LoadScenarios(scenarios_path_));
    CheckReport report{scenarios_path_, baseline_path_, TIDEMARK_VERSION, true, {}};
    std::error_code none;
    report.has_baseline = std::filesystem::exists(baseline_path_, none);
    Baseline baseline;
    if (report.has_baseline) {
      TIDEMARK_ASSIGN(const std::string text, ReadTextFile(baseline_path_));
      TIDEMARK_ASSIGN(baseline, ParseBaseline(text, baseline_path_));
    }
    TIDEMARK_ASSIGN(const std::vector<ObservedScenario> observed, Observe(std::move(scenarios), device_));
    report.scenarios = Judge(observed, baseline, baseline_path_);
    // The verdict first, and every output that can be written: none of them hides it.
    Status told = TakesStdout() ? Status(Done{}) : WriteOut(RenderAs(RendererOf(format_), report, {WantsColour()}));
    const auto write = [&](Status written) {
      if (told) {
        told = std::move(written);
      }
    };
    write(Write(junit_path_, CheckJunit(report)));
    write(Write(benchmark_path_, CheckBenchmark(report)));
    write(Write(markdown_path_, RenderAs("markdown", report)));
    if (github_ || Variable("GITHUB_ACTIONS") == "true") {
      write(TellGithub(report));
    }
    TIDEMARK_TRY(told);
    return report.Passes() || exit_zero_ ? 0 : static_cast<int>(ErrorCode::finding);
  }

 private:
  std::vector<std::string> Outputs() const { return {junit_path_, benchmark_path_, markdown_path_}; }

  bool TakesStdout() const { return junit_path_ == "-" || benchmark_path_ == "-" || markdown_path_ == "-"; }

  Status CheckPlaces() const {
    const std::vector<std::string> outputs = Outputs();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      TIDEMARK_TRY(RefuseToOverwrite(outputs[i], scenarios_path_));
      TIDEMARK_TRY(RefuseToOverwrite(outputs[i], baseline_path_));
      TIDEMARK_TRY(CheckWritable(outputs[i]));
      for (std::size_t other = 0; other < i; ++other) {
        if (!outputs[i].empty() && IsSamePlace(outputs[i], outputs[other])) {
          return BadInput(fmt::format("'{}' is named for two outputs", outputs[i]), "give each a file of its own");
        }
      }
    }
    return Done{};
  }

  static bool IsSamePlace(const std::string& a, const std::string& b) {
    const auto place = [](const std::string& path) {
      std::error_code none;
      return std::filesystem::weakly_canonical(std::filesystem::absolute(path, none), none);
    };
    return a == b || place(a) == place(b);
  }

  /// An output that nobody asked for has no path.
  static Status Write(const std::string& path, const std::string& text) {
    return path.empty() ? Status(Done{}) : WriteFile(path, text);
  }

  /// GitHub reads commands from both streams; stdout is the report's.
  static Status TellGithub(const CheckReport& report) {
    std::error_code none;
    const std::string here = std::filesystem::current_path(none).string();
    const std::string workspace = Variable("GITHUB_WORKSPACE");
    const std::string annotations = CheckAnnotations(report, workspace.empty() ? here : workspace, here);
    std::fwrite(annotations.data(), 1, annotations.size(), stderr);
    const std::string path = Variable("GITHUB_STEP_SUMMARY");
    if (path.empty()) {
      return Done{};
    }
    const std::string text = RenderAs("markdown", report);
    std::ofstream summary(path, std::ios::app | std::ios::binary);
    summary << text;
    if (!summary.flush()) {
      return Error{ErrorCode::machine_cannot, path,
                   fmt::format("$GITHUB_STEP_SUMMARY names no file that can be written ({})", std::strerror(errno)),
                   "the verdict stands above; is the disk full, or the folder gone?"};
    }
    return Done{};
  }

  std::string scenarios_path_, baseline_path_, device_, junit_path_, benchmark_path_, markdown_path_;
  bool github_ = false, exit_zero_ = false;
  OutputFormat format_ = OutputFormat::text;
};

}  // namespace

std::unique_ptr<Command> CmdCheck() { return std::make_unique<CheckCommand>(); }

}  // namespace tidemark
