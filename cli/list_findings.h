// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/options.h"

namespace tidemark {

/// The catalogue of models/findings as a document: a line each as text, all of it as JSON and Markdown.
std::string ListFindings(OutputFormat format);

}  // namespace tidemark
