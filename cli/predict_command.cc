// SPDX-License-Identifier: Apache-2.0
#include "cli/predict_command.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace tidemark {
namespace {

/// A word as a shell takes it.
std::string ShellWord(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_=./:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace

std::string PredictCommand(const JobOptions& job, const std::vector<std::string>& change) {
  std::string line = "tidemark predict " + ShellWord(job.path);
  if (!job.format.empty()) {
    line += " --job-format " + ShellWord(job.format);
  }
  for (const std::vector<std::string>& sets : {job.set, change}) {
    for (const std::string& set : sets) {
      line += " --set " + ShellWord(set);
    }
  }
  return line;
}

}  // namespace tidemark
