// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reports/summarise/sweep.h"

namespace tidemark {

/// The rows of a sweep for the page's scripts, column by column: values of keys as indices into the distinct ones, the
/// metrics that can be drawn as numbers (null where one is not known). Safe inside a <script> element.
std::string SweepColumns(const SweepReport& report);

}  // namespace tidemark
