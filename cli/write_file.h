// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemark {

/// Writes a whole file or none: the bytes go to a temporary name beside it, which then takes its place. "-" is stdout;
/// what exists and is no regular file (a pipe, /dev/null) is written to directly. Fails with bad_input where the place
/// does not exist or may not be written, with machine_cannot where the disk is full.
Status WriteFile(const std::string& path, std::string_view bytes);

/// Whether WriteFile will find a place, asked before anything long runs; empty: nothing is to be written. Leaves no
/// file where there was none. Fails as WriteFile does.
Status CheckWritable(const std::string& path);

/// Refuses a place to write to that is the file `input` under the same or another name.
Status RefuseToOverwrite(const std::string& path, const std::string& input);

}  // namespace tidemark
