// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tidemark {

void GpuRecords::Append(GpuRecords more) {
  const auto move_to = [](auto& all, auto& added) {
    all.insert(all.end(), std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  };
  move_to(memory, more.memory);
  move_to(virtual_memory, more.virtual_memory);
  move_to(modules, more.modules);
  move_to(work, more.work);
  move_to(operations, more.operations);
  move_to(waits, more.waits);
  move_to(overhead, more.overhead);
  dropped += more.dropped;
  without_times += more.without_times;
  unknown += more.unknown;
}

GpuRecords GpuRecords::TakeWork() {
  GpuRecords taken;
  taken.work.swap(work);
  taken.operations.swap(operations);
  taken.waits.swap(waits);
  taken.overhead.swap(overhead);
  return taken;
}

GpuRecords GpuRecords::MemoryBetween(Nanos from, Nanos until) const {
  GpuRecords between;
  const auto copy = [&](const auto& all, auto& chosen) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [&](const auto& record) { return from < record.at && record.at <= until; });
  };
  copy(memory, between.memory);
  copy(virtual_memory, between.virtual_memory);
  copy(modules, between.modules);
  return between;
}

std::vector<std::string> GpuRecords::Doubts() const {
  std::vector<std::string> doubts;
  if (dropped > 0) {
    doubts.push_back(fmt::format("CUPTI dropped {} records: what they were of is missing here", dropped));
  }
  if (without_times > 0) {
    doubts.push_back(
        fmt::format("{} records have no times: they were flushed before they were complete", without_times));
  }
  return doubts;
}

}  // namespace tidemark
