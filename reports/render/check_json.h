// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reports/summarise/check_report.h"

namespace tidemark {

/// What github-action-benchmark takes as `customSmallerIsBetter`: a list of `name`, `unit`, `value`, `extra`, one for
/// every peak that is known.
std::string CheckBenchmark(const CheckReport& report);

}  // namespace tidemark
