// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

std::string_view Name(GpuWorkRecord::Kind kind) {
  switch (kind) {
    case GpuWorkRecord::Kind::kernel:
      return "kernel";
    case GpuWorkRecord::Kind::copy:
      return "copy";
    case GpuWorkRecord::Kind::fill:
      return "fill";
  }
  return "";
}

class Writer {
 public:
  Writer(const GpuRecords& records, const GpuNames& names, Nanos zero, Trace& trace)
      : names_(names), zero_(zero), trace_(trace) {
    for (const GpuOperationRecord& record : records.operations) {
      operation_of_[record.correlation] = record.operation;
    }
    for (std::size_t i = 0; i < trace.strings.size(); ++i) {
      strings_.emplace(trace.strings[i], static_cast<std::uint32_t>(i));
    }
  }

  void Write(const GpuWorkRecord& work) {
    if (work.end <= zero_) {
      return;
    }
    const std::uint16_t stream = StreamOf(work.stream);
    const Nanos start = std::max(work.start - zero_, Nanos()), end = work.end - zero_;
    const auto operation = operation_of_.find(work.correlation);
    if (operation == operation_of_.end() || operation->second >= names_.operations.size()) {
      const std::string name = work.name.empty() ? std::string(Name(work.kind)) : work.name;
      trace_.slices.push_back({stream, StringOf(name), start, end});
      return;
    }
    const auto [slice, is_new] = slice_of_.emplace(std::pair(operation->second, stream), trace_.slices.size());
    if (is_new) {
      trace_.slices.push_back({stream, StringOf(names_.operations[operation->second]), start, end});
      return;
    }
    Slice& whole = trace_.slices[slice->second];
    whole.start = std::min(whole.start, start);
    whole.end = std::max(whole.end, end);
  }

 private:
  TraceStringId StringOf(const std::string& text) {
    const auto [at, is_new] = strings_.emplace(text, static_cast<std::uint32_t>(trace_.strings.size()));
    if (is_new) {
      trace_.strings.push_back(text);
    }
    return TraceStringId{at->second};
  }

  std::uint16_t StreamOf(std::uint32_t stream) {
    const auto [at, is_new] = streams_.emplace(stream, 0);
    if (is_new) {
      const auto named = names_.streams.find(stream);
      const TraceStream wanted =
          named == names_.streams.end() ? TraceStream{fmt::format("gpu stream {}", stream), "compute"} : named->second;
      const auto found = std::find_if(trace_.streams.begin(), trace_.streams.end(),
                                      [&](const TraceStream& one) { return one.name == wanted.name; });
      at->second = static_cast<std::uint16_t>(std::distance(trace_.streams.begin(), found));
      if (found == trace_.streams.end()) {
        trace_.streams.push_back(wanted);
      }
    }
    return at->second;
  }

  const GpuNames& names_;
  Nanos zero_;
  Trace& trace_;
  std::map<std::uint32_t, std::uint64_t> operation_of_;                      ///< by correlation
  std::map<std::pair<std::uint64_t, std::uint16_t>, std::size_t> slice_of_;  ///< by operation and stream
  std::map<std::string, std::uint32_t> strings_;
  std::map<std::uint32_t, std::uint16_t> streams_;
};

}  // namespace

void AddGpuWork(const GpuRecords& records, const GpuNames& names, Nanos zero, Trace& trace) {
  Writer writer(records, names, zero, trace);
  for (const GpuWorkRecord& work : records.work) {
    writer.Write(work);
  }
}

}  // namespace tidemark
