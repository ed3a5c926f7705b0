// SPDX-License-Identifier: Apache-2.0
//
// The SQLite export of Nsight Systems (traces/formats/nsys_log.h says what of it is read).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "traces/formats/annotations.h"
#include "traces/formats/device_recording.h"
#include "traces/formats/format.h"
#include "traces/formats/nsys_log.h"
#include "traces/formats/sqlite_file.h"
#include "traces/utf8.h"

namespace tidemark {
namespace {

/// Bytes that pools of the device hold, and those outside of pools.
class ReservedBytes {
 public:
  std::int64_t After(const NsysMemory& row) {
    if (row.pool.value_or(0) != 0) {
      std::int64_t& pool = pools_[*row.pool];
      total_ -= pool;
      pool = std::clamp<std::int64_t>(row.pool_bytes.value_or(0), 0, kMostRecorded - total_);
      total_ += pool;
    } else if (row.alloc) {
      std::int64_t& block = outside_[row.address];
      total_ -= block;
      block = std::min(row.n_bytes, kMostRecorded - total_);
      total_ += block;
    } else if (const auto found = outside_.find(row.address); found != outside_.end()) {
      total_ -= found->second;
      outside_.erase(found);
    }
    return total_;
  }

 private:
  std::map<std::int64_t, std::int64_t> pools_, outside_;  // by address
  std::int64_t total_ = 0;
};

/// The traces of a log, one for each device of each process.
class NsysReader {
 public:
  explicit NsysReader(NsysLog log) : log_(std::move(log)) {}

  Result<TraceFile> Read() {
    TraceFile file;
    for (auto& [key, device] : log_.devices) {
      std::vector<Annotation> annotations;
      for (const NsysAnnotation& one : log_.annotations) {
        if (one.process == key.process) {
          annotations.push_back(one.annotation);
        }
      }
      const Timeline timeline(std::move(annotations));
      left_out_ += timeline.left_out();
      DeviceRecording recording;
      recording.origin = "Nsight Systems";
      recording.clock = device.slices.empty() ? "" : "cupti";
      recording.role = RoleOf(key);
      AddBlocks(key, device.memory, timeline, recording);
      recording.slices = std::move(device.slices);
      TIDEMARK_ASSIGN(Trace trace, TraceOf(std::move(recording), timeline, log_.names, log_.begin));
      MakeUtf8(trace);
      file.traces.push_back(std::move(trace));
    }
    file.note = Note();
    return file;
  }

 private:
  /// The process is named where the device alone is not enough.
  std::string RoleOf(const NsysDeviceKey& key) const {
    const auto shared = std::count_if(log_.devices.begin(), log_.devices.end(),
                                      [&](const auto& other) { return other.first.device == key.device; });
    return shared == 1 ? fmt::format("cuda:{}", key.device)
                       : fmt::format("cuda:{} of process {}", key.device, key.process);
  }

  void AddBlocks(const NsysDeviceKey& key, std::vector<NsysMemory>& rows, const Timeline& timeline,
                 DeviceRecording& recording) const {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const NsysMemory& a, const NsysMemory& b) { return a.start < b.start; });
    const bool has_pools =
        std::any_of(rows.begin(), rows.end(), [](const NsysMemory& row) { return row.pool.value_or(0) != 0; });
    Timeline::Cursor cursor(timeline);
    ReservedBytes reserved;
    std::map<std::string, std::uint32_t> sites;
    for (const NsysMemory& row : rows) {
      const Timeline::Place place = cursor.At(Nanos(row.start));
      std::string site = CallerOf(key, row);
      if (place.inside != nullptr) {
        site = fmt::format("{}.{}", place.inside->name, site);
      }
      const auto [found, is_new] = sites.try_emplace(site, static_cast<std::uint32_t>(recording.sites.size()));
      if (is_new) {
        recording.sites.push_back({site, Category::unknown, DType::u8});
      }
      const std::int64_t reserved_bytes = reserved.After(row);
      const std::int64_t index = place.inside == nullptr ? 0 : std::max<std::int64_t>(place.inside->number, 0);
      recording.blocks.push_back({Nanos(row.start), static_cast<std::uint64_t>(row.address), row.alloc, row.n_bytes,
                                  kNotTold, has_pools ? reserved_bytes : kNotTold, found->second,
                                  static_cast<std::int32_t>(index), place.span});
    }
  }

  /// "cudaMalloc", the name of a static variable, or nothing better than "device memory".
  std::string CallerOf(const NsysDeviceKey& key, const NsysMemory& row) const {
    if (!row.name.empty()) {
      return row.name;
    }
    const auto caller = log_.callers.find({key.process, row.correlation.value_or(-1)});
    if (caller == log_.callers.end()) {
      return "device memory";
    }
    const std::string& name = log_.names[caller->second];
    return name.substr(0, name.find("_v"));  // cudaMalloc_v3020: the version of its parameters
  }

  std::string Note() const {
    std::vector<std::string> notes;
    if (log_.losses > 0) {
      notes.push_back(fmt::format("Nsight Systems says: \"{}\"", Excerpt(log_.loss, 0)) +
                      (log_.losses > 1 ? fmt::format(" and {} more", Grouped(log_.losses - 1)) : ""));
    }
    if (log_.unreadable > 0) {
      notes.push_back(
          fmt::format("{} rows lack a time, an address or a size that can be read", Grouped(log_.unreadable)));
    }
    if (left_out_ > 0) {
      notes.push_back(fmt::format("{} phases are left out, which are too many or too deep",
                                  Grouped(static_cast<std::int64_t>(left_out_))));
    }
    const bool has_memory = std::any_of(log_.devices.begin(), log_.devices.end(),
                                        [](const auto& device) { return !device.second.memory.empty(); });
    if (!has_memory) {
      notes.emplace_back("it was recorded without --cuda-memory-usage=true, and has no memory events");
    }
    return fmt::format("{}", fmt::join(notes, "; "));
  }

  NsysLog log_;
  std::uint64_t left_out_ = 0;
};

class NsysFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "nsys"; }
  std::string_view summary() const override { return "SQLite export of Nsight Systems"; }
  bool reads() const override { return true; }
  bool writes() const override { return false; }
  bool Sniff(std::string_view head) const override { return head.starts_with(kSqliteMagic); }

  Result<TraceFile> Read(std::string_view bytes) const override {
    TIDEMARK_ASSIGN(NsysLog log, ReadNsysLog(bytes));
    return NsysReader(std::move(log)).Read();
  }

  Result<std::string> Write(std::span<const Trace>) const override {
    return BadInput("nsys: exports of Nsight Systems can be read, not written");
  }
};

}  // namespace

std::unique_ptr<TraceFormat> FormatNsys() { return std::make_unique<NsysFormat>(); }

}  // namespace tidemark
