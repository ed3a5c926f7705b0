// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/change.h"
#include "models/job/job.h"
#include "models/job/job_template.h"

namespace CLI {
class App;
}

namespace tidemark {

// Options that several verbs share, so that they are spelled and explained the same everywhere.

/// A JOB: its path, and what the command line changes in it.
struct JobOptions {
  std::string path;
  std::vector<std::string> set;          ///< "layout.tp=8"
  std::string format;                    ///< name of a config format; empty: recognised by content
  std::optional<std::string> text = {};  ///< what `path` holds, where it was read before: a pipe is read once
  std::vector<JobChange> read = {};  ///< between the file and `set`: a network that was observed (cli/observed_job.h)
  std::vector<std::string> words = {};  ///< of the command line, that say what was `read`
};
void AddJobOptions(CLI::App& app, JobOptions& options);
/// The same without the path: of verbs whose positional is a job or something else.
void AddJobChanges(CLI::App& app, JobOptions& options);
/// Whether an argument is what --set takes: "layout.tp=8".
bool IsSetting(const std::string& argument);
Result<Job> LoadJob(const JobOptions& options);
Result<Job> LoadJob(const JobOptions& options, std::span<const StrategyDefaults> strategies);

/// Refuses a --set of the key that --vary varies, or of one in the section that it replaces.
Status RefuseSet(const JobOptions& options, const std::string& varied);

/// The job's config, to be resolved with one change after the other. The strategies must outlive it.
Result<JobTemplate> ReadJobTemplate(const JobOptions& options, std::span<const StrategyDefaults> strategies);

void AddMemoryOption(CLI::App& app, std::string& memory);
/// What `--memory` says of the device, "80GiB", becomes one of the job's changes, so that every command line says it.
/// Empty: nothing was said.
Status SetDeviceMemory(const std::string& memory, JobOptions& job);

void AddGlobalBatchOption(CLI::App& app, std::optional<std::int64_t>& global_batch, const std::string& help);

enum class OutputFormat : std::uint8_t { text, json, markdown };
void AddFormatOption(CLI::App& app, OutputFormat& format);
/// The renderer (reports/render/render.h) of a format.
std::string_view RendererOf(OutputFormat format);

/// Whether a person looks at stdout and has not asked for plain text (https://no-color.org).
bool WantsColour();

/// --exit-zero: a finding does not make the process fail.
void AddExitZeroOption(CLI::App& app, bool& exit_zero);

/// Writes to stdout. Fails with machine_cannot where stdout does not take it (a full disk, a closed pipe).
Status WriteOut(std::string_view text);
/// The same for what took long to find out: where stdout does not take it, it goes to stderr, and the error says so.
Status WriteMeasured(std::string_view text);

}  // namespace tidemark
