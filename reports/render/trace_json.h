// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "traces/trace.h"

namespace tidemark {

/// Whether the work on streams goes into the page: it is the larger half of a trace.
enum class Streams : bool { left_out, drawn };

/// One trace as JSON for page/role_data.js, safe inside a <script> element. Columns are packed numbers (`type`: i8,
/// i16, i32 or f64; `values`: base64 of their bytes, lowest first); `tensor` is -id - 1 for a free; times and
/// totals are differences to the row before, `ready` is relative to `issue`; `layer`, where the trace knows any, is
/// a row of `layers` ([block, number of the layer]) or -1. Slices stand in the order of their starts.
std::string TraceJson(const Trace& trace, Streams streams);

}  // namespace tidemark
