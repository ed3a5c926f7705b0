// SPDX-License-Identifier: Apache-2.0
//
// For torch_snapshot_test.py: rewrite_torch_snapshot FILE SNAPSHOT reads traces of any format, writes them as a
// snapshot, and prints what it read as JSON: for each trace its events and the highest bytes that tensors, the
// allocator and the device had, all recounted here.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "traces/formats/format.h"

namespace {

std::string Summary(const tidemark::Trace& trace) {
  tidemark::Bytes alive, highest, allocator, reserved;
  std::size_t waits = 0;
  for (const tidemark::MemoryEvent& event : trace.memory) {
    const tidemark::Bytes bytes = trace.tensors[event.tensor.index].bytes;
    alive += event.alloc ? bytes : tidemark::Bytes(-bytes.count());
    highest = std::max(highest, alive);
    allocator = std::max(allocator, event.allocator_bytes);
    reserved = std::max(reserved, event.reserved_bytes);
    waits += event.waits ? 1 : 0;
  }
  return fmt::format(
      R"({{"role": "{}", "events": {}, "waits": {}, "peak": {}, "allocator": {}, "reserved": {}, "end": {}}})",
      trace.role, trace.memory.size(), waits, highest.count(), allocator.count(), reserved.count(), alive.count());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: rewrite_torch_snapshot FILE SNAPSHOT\n";
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const tidemark::Result<tidemark::TraceFile> file = tidemark::ReadTraces(bytes);
  if (!file) {
    std::cerr << file.error().Text() << "\n";
    return 2;
  }
  const auto format = tidemark::FindTraceFormat("torch-snapshot");
  const tidemark::Result<std::string> snapshot = (*format)->Write(file->traces);
  if (!snapshot) {
    std::cerr << snapshot.error().Text() << "\n";
    return 2;
  }
  std::ofstream(argv[2], std::ios::binary) << *snapshot;
  std::vector<std::string> summaries;
  for (const tidemark::Trace& trace : file->traces) {
    summaries.push_back(Summary(trace));
  }
  std::cout << fmt::format("{{\"note\": \"{}\", \"traces\": [{}]}}\n", file->note, fmt::join(summaries, ", "));
  return 0;
}
