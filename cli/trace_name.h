// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "traces/formats/format.h"

namespace tidemark {

/// ".trace" of "step.trace" and of "STEP.TRACE".
std::string EndingOf(const std::string& path);

/// The formats that Tidemark writes, and those of them whose files, or archives of files, end like this one.
std::vector<std::unique_ptr<TraceFormat>> WrittenFormats();
std::vector<std::unique_ptr<TraceFormat>> FormatsOfEnding(const std::string& path);

/// What --trace writes is Tidemark's own format, not compressed: a name whose ending says otherwise is refused.
Status CheckTraceName(const std::string& path);

}  // namespace tidemark
