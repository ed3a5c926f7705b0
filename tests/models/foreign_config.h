// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "models/configs/arguments.h"
#include "models/configs/config.h"
#include "models/configs/parse.h"
#include "models/job/change.h"
#include "models/job/read.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

/// Of a name that a text of that format may have; a command line has options on its first line.
inline std::string PathOf(const std::string& format, const std::string& text) {
  const bool options = !text.starts_with('#') && HasOptions(text.substr(0, text.find('\n')));
  return format == "torchtitan" ? "runs/job.toml" : format == "megatron" || options ? "runs/job.args" : "runs/job.json";
}

/// What a reader of another tool's configs makes of a text, with `set` on the command line.
inline Result<Settings> ReadForeign(const std::string& format, const std::string& text,
                                    const std::vector<std::string>& set) {
  TIDEMARK_ASSIGN(const ConfigValue root, ParseAnyConfig(text, PathOf(format, text)));
  Settings given;
  for (const std::string& change : set) {
    TIDEMARK_ASSIGN(const JobChange parsed, ParseJobChange(change, "--set"));
    Apply(parsed, given);
  }
  const std::vector<ConfigFormat> formats = ConfigFormats();
  const auto recognised = std::ranges::find_if(formats, [&](const ConfigFormat& one) { return one.recognises(root); });
  if (recognised == formats.end() || recognised->name != format) {
    return BadInput("is not recognised as " + format);
  }
  return recognised->read(root, given);
}

/// The settings of a text that must be read, and be a job that its strategy takes.
inline Settings MustRead(const std::string& format, const std::string& text, const std::vector<std::string>& set = {}) {
  Result<Settings> settings = ReadForeign(format, text, set);
  EXPECT_TRUE(settings.ok()) << text << "\n" << (settings.ok() ? "" : settings.error().Text());
  if (settings) {
    const std::vector<StrategyDefaults> strategies = KnownStrategies();
    const Result<Job> job = ParseJob(text, PathOf(format, text), {set, std::nullopt, {}}, strategies);
    EXPECT_TRUE(job.ok()) << text << "\n" << (job.ok() ? "" : job.error().Text());
  }
  return settings.ok() ? *settings : Settings();
}

/// The error of a text that must be refused.
inline std::string RefusalOf(const std::string& format, const std::string& text,
                             const std::vector<std::string>& set = {}) {
  const Result<Settings> settings = ReadForeign(format, text, set);
  EXPECT_FALSE(settings.ok()) << text;
  return settings.ok() ? std::string() : settings.error().Text();
}

/// A setting as text; "(nothing)" where there is none.
inline std::string TextOf(const Settings& settings, const std::string& key) {
  const ConfigValue* value = Find(settings, key);
  return value == nullptr ? "(nothing)" : value->text;
}

}  // namespace tidemark
