// SPDX-License-Identifier: Apache-2.0
#include "cli/predict_command.h"

#include "cli/shell_word.h"

namespace tidemark {

std::string CommandLineOfPredict(const JobOptions& job, const std::vector<std::string>& change) {
  std::string line = "tidemark predict " + ShellWord(job.path);
  if (!job.format.empty()) {
    line += " --job-format " + ShellWord(job.format);
  }
  for (const std::string& word : job.words) {
    line += " " + ShellWord(word);
  }
  for (const std::vector<std::string>& sets : {job.set, change}) {
    for (const std::string& set : sets) {
      line += " --set " + ShellWord(set);
    }
  }
  return line;
}

}  // namespace tidemark
