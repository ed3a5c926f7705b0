// SPDX-License-Identifier: Apache-2.0
//
// Any bytes are a snapshot of PyTorch's or refused with a sentence; and a snapshot gives sound traces, which are
// written and read back with the same events.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/result.h"
#include "traces/formats/format.h"

namespace {

/// Requests of no bytes are not written.
std::size_t EventsOf(const tidemark::Trace& trace) {
  std::size_t events = 0;
  for (const tidemark::MemoryEvent& event : trace.memory) {
    events += trace.tensors[event.tensor.index].bytes > tidemark::Bytes(0) ? 1 : 0;
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto format = tidemark::FindTraceFormat("torch-snapshot");
  const tidemark::Result<tidemark::TraceFile> file =
      (*format)->Read(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!file) {
    TIDEMARK_CHECK(!file.error().message.empty());
    return 0;
  }
  for (const tidemark::Trace& trace : file->traces) {
    TIDEMARK_CHECK(Verify(trace).empty());
  }
  const tidemark::Result<std::string> written = (*format)->Write(file->traces);
  if (!written) {  // more memory than addresses
    return 0;
  }
  const tidemark::Result<tidemark::TraceFile> back = (*format)->Read(*written);
  std::size_t with_events = 0, events = 0, events_back = 0;
  for (const tidemark::Trace& trace : file->traces) {
    with_events += EventsOf(trace) > 0 ? 1 : 0;
    events += EventsOf(trace);
  }
  TIDEMARK_CHECK(back.ok() || with_events == 0);
  if (back) {
    for (const tidemark::Trace& trace : back->traces) {
      events_back += EventsOf(trace);
    }
    TIDEMARK_CHECK(events_back == events);
  }
  return 0;
}
