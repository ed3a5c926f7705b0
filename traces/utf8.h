// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "traces/trace.h"

namespace tidemark {

/// Text as UTF-8: what is none becomes U+FFFD. Files and what other tools call things may have any bytes as names;
/// Protobuf, JSON, XML and browsers take UTF-8 only.
std::string Utf8(const std::string& text);

/// The same with all text of a trace.
void MakeUtf8(Trace& trace);

}  // namespace tidemark
