// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "traces/trace.h"

namespace tidemark {

/// Whether the work on streams goes into the page: it is the larger half of a trace.
enum class Streams : bool { left_out, drawn };

/// One trace as JSON for page/role_data.js, safe inside a <script> element: columns of integers; `tensor` is -id - 1
/// for a free; times and totals are differences to the row before, `ready` is relative to `issue`.
std::string TraceJson(const Trace& trace, Streams streams);

}  // namespace tidemark
