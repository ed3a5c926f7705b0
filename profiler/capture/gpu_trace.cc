// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/capture/kernel_name.h"

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

TraceStream StreamOf(std::uint32_t number, const GpuNames& names) {
  const auto named = names.streams.find(number);
  return named == names.streams.end() ? TraceStream{fmt::format("gpu stream {}", number), "compute"} : named->second;
}

}  // namespace

std::vector<GpuSlice> SlicesOf(const GpuRecords& records, const GpuNames& names, Nanos zero) {
  std::map<std::uint32_t, std::uint64_t> operation_of;  // by correlation
  for (const GpuOperationRecord& record : records.operations) {
    operation_of[record.correlation] = record.operation;
  }
  std::map<std::string, std::string> shown_as;  // by symbol, of kernels that belong to no operation
  const auto shown = [&](const GpuWorkRecord& work) {
    if (work.name.empty()) {
      return std::string(Name(work.kind));
    }
    const auto [known, is_new] = shown_as.try_emplace(work.name);
    if (is_new) {
      known->second = KernelName(work.name);
    }
    return known->second;
  };
  std::vector<GpuSlice> slices;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::size_t> slice_of;  // by operation and stream
  for (const GpuWorkRecord& work : records.work) {
    if (work.end <= zero) {
      continue;
    }
    const Nanos start = std::max(work.start - zero, Nanos()), end = work.end - zero;
    const auto operation = operation_of.find(work.correlation);
    if (operation == operation_of.end() || operation->second < names.first ||
        operation->second - names.first >= names.operations.size()) {
      slices.push_back({StreamOf(work.stream, names), {shown(work)}, start, end});
      continue;
    }
    const auto [slice, is_new] = slice_of.emplace(std::pair(operation->second, work.stream), slices.size());
    if (is_new) {
      slices.push_back({StreamOf(work.stream, names), names.operations[operation->second - names.first], start, end});
      continue;
    }
    GpuSlice& whole = slices[slice->second];
    whole.start = std::min(whole.start, start);
    whole.end = std::max(whole.end, end);
  }
  return slices;
}

}  // namespace tidemark
