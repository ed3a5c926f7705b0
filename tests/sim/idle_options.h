// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/job/job.h"
#include "sim/predict/lints.h"

namespace tidemark {

/// What is said of a job's options that change nothing.
inline std::vector<std::string> IdleOptionsOf(const Job& job) {
  std::vector<std::string> messages;
  for (const Lint& lint : LintJob(job)) {
    if (lint.id == "option-without-effect") {
      messages.push_back(lint.message);
    }
  }
  return messages;
}

}  // namespace tidemark
