// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "traces/formats/format.h"

namespace tidemark {

inline constexpr std::string_view kArchiveEnding = ".zip";

/// A ZIP with a file of `format` for each trace and Perfetto's manifest of them (version 1), by which one time line
/// shows each trace as a machine of its own; interfaces before v58 (August 2026) show one of the files.
/// https://github.com/google/perfetto, docs/reference/perfetto-manifest.md. The same traces give the same bytes.
/// Fails with bad_input where the format has no archives.
Result<std::string> WriteArchive(const TraceFormat& format, std::span<const Trace> traces);

}  // namespace tidemark
