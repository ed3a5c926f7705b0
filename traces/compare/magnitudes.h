// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "traces/trace.h"

namespace tidemark {

/// Refuses a trace whose times or bytes, added up, come near the end of 64 bits: files are hostile, and what is
/// compared is differences and sums.
Status CheckMagnitudes(const Trace& trace);

}  // namespace tidemark
