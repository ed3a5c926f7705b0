// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/job/job.h"

namespace tidemark {

/// The job in one line: "llama-3-8b, fsdp2-defer, 8 ranks (dp 8), 4 microbatches of 1 x 8192 tokens". Of a window
/// that is cut short it says how many microbatches run: "3 of 4 microbatches".
std::string JobTitle(const Job& job);

}  // namespace tidemark
