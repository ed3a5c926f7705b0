// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace tidemark {

/// The command line, for a shell, that predicts a job with changes on top of its own.
std::string CommandLineOfPredict(const JobOptions& job, const std::vector<std::string>& change);

}  // namespace tidemark
