// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "profiler/capture/gpu_capture.h"

namespace tidemark {

/// A capture whose records a test builds.
class BuiltCapture : public GpuCapture {
 public:
  GpuRecords records;
  std::string other_profiler{};

  std::string reduced() const override { return other_profiler; }
  bool records_work() const override { return other_profiler.empty(); }
  void StopAskingForSources() override {}
  void Issuing(std::optional<std::uint64_t>) override {}
  std::optional<std::uint32_t> NumberOf(void*) override { return std::nullopt; }
  GpuRecords TakeWork() override { return records.TakeWork(); }
  GpuRecords TakeMemory() override { return std::exchange(records, {}); }
};

}  // namespace tidemark
