// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/options.h"

namespace tidemark {

/// The compatibility matrix (sim/matrix) of all strategies as a document: marks and notes as text and Markdown, every
/// cell as JSON.
std::string ListMatrix(OutputFormat format);

}  // namespace tidemark
