// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/choice.h"
#include "cli/shell_word.h"
#include "models/configs/config.h"
#include "models/configs/hub_networks.h"
#include "models/job/fields.h"
#include "models/job/read.h"
#include "models/zoo/zoo.h"
#include "sim/strategies/strategy.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestBatch = 1'000'000'000'000;

JobChanges ChangesOf(const JobOptions& options) {
  return {options.set, options.format.empty() ? std::nullopt : std::optional(options.format), options.read};
}

/// What was given instead of a job says what it is good for: a trace, a setting, or a network.
Error HintingAtOthers(Error error, const std::string& path) {
  std::error_code unknown;
  const bool exists = std::filesystem::exists(path, unknown);
  if (!exists && IsSetting(path)) {
    error.hint = fmt::format("a job's file comes first, and settings behind it: JOB --set {}", ShellWord(path));
  }
  if (!exists && (FindInZoo(path).ok() || !NetworkOfHub(path).empty())) {
    error.hint = fmt::format(
        "this is a network, and a job has a machine, a strategy and lengths as well: write a file with "
        "\"network: {0}\" in it, or take one that there is: JOB --set network={0}",
        path);
  }
  if (!std::filesystem::is_regular_file(path, unknown)) {
    return error;  // a pipe has been read
  }
  constexpr std::size_t kHead = 1 << 16;
  std::string head(kHead, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), kHead);
  head.resize(static_cast<std::size_t>(file.gcount()));
  if (!head.empty() && IsTrace(head)) {
    error.hint =
        "this is a trace, which is no job: tidemark report TRACE shows it, predict JOB --observed TRACE asks "
        "what its network needs";
  }
  return error;
}

}  // namespace

bool IsSetting(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  return equals != std::string::npos && JobKeys().contains(argument.substr(0, equals));
}

void AddJobOptions(CLI::App& app, JobOptions& options) {
  app.add_option("JOB", options.path, "Tidemark YAML, or the config of another tool")->required();
  AddJobChanges(app, options);
}

void AddJobChanges(CLI::App& app, JobOptions& options) {
  std::vector<std::string> formats;
  for (const ConfigFormat& format : ConfigFormats()) {
    formats.push_back(format.name);
  }
  app.add_option("--set", options.set, "change one value: --set layout.tp=8 (any number of times)")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_option("--job-format", options.format, "what JOB is; default: recognised by content")
      ->check(CLI::IsMember(formats));
}

Result<Job> LoadJob(const JobOptions& options) { return LoadJob(options, KnownStrategies()); }

Result<Job> LoadJob(const JobOptions& options, std::span<const StrategyDefaults> strategies) {
  TIDEMARK_ASSIGN(JobTemplate job, ReadJobTemplate(options, strategies));
  return job.With();
}

Result<JobTemplate> ReadJobTemplate(const JobOptions& options, std::span<const StrategyDefaults> strategies) {
  if (options.text) {
    return JobTemplate::Parse(*options.text, options.path, ChangesOf(options), strategies);
  }
  Result<JobTemplate> job = JobTemplate::Read(options.path, ChangesOf(options), strategies);
  return job ? std::move(job) : HintingAtOthers(job.error(), options.path);
}

Status RefuseSet(const JobOptions& options, const std::string& varied) {
  const bool section = ReplacesSection({varied, {}});
  for (const std::string& set : options.set) {
    TIDEMARK_ASSIGN(const JobChange change, ParseJobChange(set, "--set"));
    for (const auto& [key, value] : change.given) {
      if (key == varied || (section && key.starts_with(varied + "."))) {
        return BadInput(
            fmt::format("--set {} says what --vary {} varies", set, varied),
            section ? fmt::format("leave one of them out, or vary both: --vary {}", set) : "leave one of them out");
      }
    }
  }
  return Done{};
}

void AddMemoryOption(CLI::App& app, std::string& memory) {
  app.add_option("--memory", memory, "what a device has: 80GiB; default: the machine's")->type_name("SIZE");
}

Status SetDeviceMemory(const std::string& memory, JobOptions& job) {
  if (memory.empty()) {
    return Done{};
  }
  TIDEMARK_ASSIGN(const Bytes bytes, ParseBytes(memory).At("--memory"));
  if (bytes < Bytes(1 << 20)) {
    return BadInput(fmt::format("--memory: {} is no device", Text(bytes)),
                    "expected at least 1 MiB: write the unit as well, for example 80GiB");
  }
  job.set.push_back("machine.device_memory=" + memory);
  return Done{};
}

void AddGlobalBatchOption(CLI::App& app, std::optional<std::int64_t>& global_batch, const std::string& help) {
  app.add_option("--global-batch", global_batch, help)
      ->type_name("B")
      ->check(CLI::Range(std::int64_t{1}, kLargestBatch));
}

void AddFormatOption(CLI::App& app, OutputFormat& format) {
  AddChoice<OutputFormat>(
      app, "--format", format,
      {{"text", OutputFormat::text}, {"json", OutputFormat::json}, {"markdown", OutputFormat::markdown}},
      "text, json or markdown", "FORMAT");
}

std::string_view RendererOf(OutputFormat format) {
  switch (format) {
    case OutputFormat::json:
      return "json";
    case OutputFormat::markdown:
      return "markdown";
    case OutputFormat::text:
      break;
  }
  return "terminal";
}

bool WantsColour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

void AddExitZeroOption(CLI::App& app, bool& exit_zero) {
  app.add_flag("--exit-zero", exit_zero, "exit with 0 even where a check found something");
}

Status WriteOut(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) {
    return Error{ErrorCode::machine_cannot, "stdout", fmt::format("cannot be written ({})", std::strerror(errno)),
                 "is the disk full, or the pipe closed?"};
  }
  return Done{};
}

Status WriteMeasured(std::string_view text) {
  Status written = WriteOut(text);
  if (!written && std::fwrite(text.data(), 1, text.size(), stderr) == text.size()) {
    Error error = written.error();
    error.hint += " What was measured stands on stderr instead";
    return error;
  }
  return written;
}

}  // namespace tidemark
