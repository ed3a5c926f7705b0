// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "traces/formats/format.h"
#include "traces/trace.h"

/// Any bytes are either refused with a sentence, or become sound traces; written again as Chrome JSON they are sound
/// traces still.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const std::unique_ptr<tidemark::TraceFormat> format = std::move(*tidemark::FindTraceFormat("chrome"));
  const tidemark::Result<tidemark::TraceFile> file = format->Read(bytes);
  if (!file) {
    TIDEMARK_CHECK(!file.error().message.empty());
    return 0;
  }
  for (const tidemark::Trace& trace : file->traces) {
    TIDEMARK_CHECK(tidemark::Verify(trace).empty());
  }
  const tidemark::Result<std::string> written = format->Write(file->traces);
  TIDEMARK_CHECK(written.ok());
  if (const tidemark::Result<tidemark::TraceFile> again = format->Read(*written); again) {
    for (const tidemark::Trace& trace : again->traces) {
      TIDEMARK_CHECK(tidemark::Verify(trace).empty());
    }
  }
  return 0;
}
