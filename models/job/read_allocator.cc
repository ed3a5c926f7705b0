// SPDX-License-Identifier: Apache-2.0
#include "models/job/read_allocator.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "models/configs/value.h"
#include "models/job/change.h"
#include "models/job/fields.h"
#include "models/job/validate_parts.h"

namespace tidemark {
namespace {

constexpr std::string_view kSection = "allocator.";
constexpr std::string_view kKind = "allocator.kind";

/// A size in whole MiB, as people write it; anything else as it is.
std::string InMebibytes(const std::string& value, const std::string& example) {
  constexpr std::int64_t kMiB = 1 << 20;
  const std::optional<std::int64_t> bytes = example.ends_with("iB") ? ParseWhole(value) : std::nullopt;
  return bytes && *bytes > 0 && *bytes % kMiB == 0 ? fmt::format("{}MiB", *bytes / kMiB) : value;
}

/// Reads what a few settings say of the allocator of a job that has nothing else.
Result<AllocatorOptions> Read(const AllocatorOptions& base, const Settings& settings) {
  Job job;
  job.allocator = base;
  for (const bool kinds : {true, false}) {  // another kind has other knobs: it comes first
    for (const Field<Job>& field : AllocatorFields()) {
      const auto given = settings.find(field.key);
      if (given == settings.end() || (field.key == kKind) != kinds) {
        continue;
      }
      const AllocatorKind before = job.allocator.kind;
      TIDEMARK_TRY(ReadField(field, job, given->second, field.key));
      if (kinds && job.allocator.kind != before) {
        job.allocator = AllocatorOptions{.kind = job.allocator.kind};
      }
    }
  }
  TIDEMARK_TRY(CheckAllocator(job.allocator));
  return job.allocator;
}

}  // namespace

Result<AllocatorOptions> ReadAllocator(const AllocatorOptions& base, std::span<const std::string> settings) {
  Settings given;
  for (const std::string& setting : settings) {
    const std::string full = setting.starts_with(kSection) ? setting : std::string(kSection) + setting;
    TIDEMARK_ASSIGN(const JobChange change, ParseJobChange(full, std::string(kCommandLine)));
    Apply(change, given);
  }
  return Read(base, given);
}

Result<AllocatorOptions> AllocatorOfJobYaml(const std::string& job_yaml) {
  if (job_yaml.empty()) {
    return AllocatorOptions{};
  }
  TIDEMARK_ASSIGN(const ConfigValue job, ParseConfig(job_yaml, "the trace's job"));
  Settings settings;
  for (const Field<Job>& field : AllocatorFields()) {
    if (const ConfigValue* value = job.FindPath(field.key); value != nullptr && !value->is_null()) {
      settings[field.key] = *value;
    }
  }
  return Read({}, settings);
}

std::vector<std::string> AllocatorSettings(const AllocatorOptions& options) {
  Job job, plain;
  job.allocator = options;
  plain.allocator.kind = options.kind;
  std::vector<std::string> settings;
  for (const Field<Job>& field : AllocatorFields()) {
    if (field.write && (field.key == kKind || field.write(job) != field.write(plain))) {
      settings.push_back(fmt::format("{}={}", std::string_view(field.key).substr(kSection.size()),
                                     InMebibytes(field.write(job), field.example)));
    }
  }
  return settings;
}

std::string AllocatorText(const AllocatorOptions& options) {
  const std::string text = fmt::format("{}", fmt::join(AllocatorSettings(options), " "));
  return text.substr(text.find('=') + 1);  // the kind comes first
}

}  // namespace tidemark
