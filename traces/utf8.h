// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "traces/trace.h"

namespace tidemark {

/// Makes UTF-8 of all text of a trace: what is none becomes U+FFFD. Files and what other tools call things may have any
/// bytes as names; Protobuf, JSON and browsers take UTF-8 only.
void MakeUtf8(Trace& trace);

}  // namespace tidemark
