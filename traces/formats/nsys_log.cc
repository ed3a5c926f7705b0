// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/nsys_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <span>

#include "traces/formats/sqlite_file.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostNsysDevices = 64;                    ///< of all processes; each becomes a trace
constexpr std::int64_t kFarthestStamp = std::int64_t{1} << 61;  ///< ns, so that sums of three do not overflow

/// The identifiers of processes and threads hold the process in bits 24 to 47.
std::int64_t ProcessOf(std::int64_t global_id) { return (global_id >> 24) & 0xffffff; }

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

bool HasAny(const std::string& text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

bool IsTime(std::optional<std::int64_t> nanos) { return nanos && -kFarthestStamp < *nanos && *nanos < kFarthestStamp; }

using Call = std::pair<std::int64_t, std::int64_t>;  ///< process and correlation

/// A table of the file with what its numbers stand for, in capitals.
Result<std::map<std::int64_t, std::string>> ReadEnum(SqliteFile& file, const std::string& table) {
  std::map<std::int64_t, std::string> names;
  constexpr std::array<std::string_view, 3> kColumns = {"id", "name", "label"};
  TIDEMARK_TRY(file.Read(table, kColumns, [&](const SqliteRow& row) {
    if (const auto id = row.Whole(0)) {
      names[*id] = Upper(row.Text(1).empty() ? row.Text(2) : row.Text(1));
    }
  }));
  return names;
}

class LogReader {
 public:
  explicit LogReader(SqliteFile file) : file_(std::move(file)) {}

  Result<NsysLog> Read() {
    TIDEMARK_TRY(ReadStrings());
    TIDEMARK_TRY(ReadMemory());
    TIDEMARK_TRY(ReadSlices("CUPTI_ACTIVITY_KIND_KERNEL", ""));
    TIDEMARK_TRY(ReadSlices("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy"));
    TIDEMARK_TRY(ReadSlices("CUPTI_ACTIVITY_KIND_MEMSET", "memset"));
    if (log_.devices.empty()) {
      return BadInput("an export of Nsight Systems with memory events or kernels was expected, but it has neither",
                      "record with nsys profile --cuda-memory-usage=true, then nsys export --type sqlite");
    }
    if (log_.devices.size() > kMostNsysDevices) {
      return BadInput(
          fmt::format("at most {} devices were expected, but there are {}", kMostNsysDevices, log_.devices.size()),
          "record fewer processes in one report");
    }
    TIDEMARK_TRY(ReadCalls());
    TIDEMARK_TRY(ReadAnnotations());
    TIDEMARK_TRY(ReadDiagnostics());
    log_.begin = Nanos(*begin_);
    return std::move(log_);
  }

 private:
  Status ReadStrings() {
    constexpr std::array<std::string_view, 2> kColumns = {"id", "value"};
    return file_.Read("StringIds", kColumns, [&](const SqliteRow& row) {
      if (const auto id = row.Whole(0)) {
        strings_.emplace(*id, log_.names.Intern(row.Text(1)));
      }
    });
  }

  std::optional<std::uint32_t> StringAt(std::optional<std::int64_t> id) const {
    const auto found = id ? strings_.find(*id) : strings_.end();
    return found == strings_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Device memory only: no host memory, and no managed memory, which may be anywhere.
  Status ReadMemory() {
    TIDEMARK_ASSIGN(auto kinds, ReadEnum(file_, "ENUM_CUDA_MEM_KIND"));
    TIDEMARK_ASSIGN(auto operations, ReadEnum(file_, "ENUM_CUDA_DEV_MEM_EVENT_OPER"));
    if (kinds.empty()) {
      kinds = {{2, "DEVICE"}, {3, "ARRAY"}, {5, "DEVICE"}};
    }
    if (operations.empty()) {
      operations = {{0, "ALLOCATION"}, {1, "DEALLOCATION"}};
    }
    constexpr std::array<std::string_view, 11> kColumns = {"start",
                                                           "globalPid",
                                                           "deviceId",
                                                           "address",
                                                           "bytes",
                                                           "memKind",
                                                           "memoryOperationType",
                                                           "localMemoryPoolAddress",
                                                           "localMemoryPoolSize",
                                                           "correlationId",
                                                           "name"};
    return file_.Read("CUDA_GPU_MEMORY_USAGE_EVENTS", kColumns, [&](const SqliteRow& row) {
      const auto start = row.Whole(0), address = row.Whole(3), n_bytes = row.Whole(4);
      const std::string& kind = kinds[row.Whole(5).value_or(-1)];
      const std::string& operation = operations[row.Whole(6).value_or(-1)];
      const bool is_free = HasAny(operation, std::array<std::string_view, 2>{"DEALLOC", "FREE"});
      if (!HasAny(kind, std::array<std::string_view, 2>{"DEVICE", "ARRAY"}) ||
          (!is_free && operation.find("ALLOC") == std::string::npos)) {
        return;
      }
      if (!IsTime(start) || !address || !n_bytes || *n_bytes < 0 || *n_bytes > kMostRecorded) {
        ++log_.unreadable;
        return;
      }
      Hear(*start);
      log_.devices[KeyOf(row, 2, 1)].memory.push_back(
          {*start, *address, *n_bytes, !is_free, row.Whole(7), row.Whole(8), row.Whole(9), row.Text(10)});
    });
  }

  static NsysDeviceKey KeyOf(const SqliteRow& row, int device, int process) {
    return {row.Whole(device).value_or(0), ProcessOf(row.Whole(process).value_or(0))};
  }

  /// `what`: of copies, whose rows have no names.
  Status ReadSlices(const std::string& table, std::string_view what) {
    constexpr std::array<std::string_view, 8> kColumns = {"start",    "end",       "deviceId",      "globalPid",
                                                          "streamId", "shortName", "demangledName", "correlationId"};
    return file_.Read(table, kColumns, [&](const SqliteRow& row) {
      const auto start = row.Whole(0), end = row.Whole(1);
      if (!IsTime(start) || !IsTime(end) || *end < *start) {
        ++log_.unreadable;
        return;
      }
      Hear(*start);
      const auto name = StringAt(row.Whole(5)), long_name = StringAt(row.Whole(6));
      const std::uint32_t shown = !what.empty() ? log_.names.Intern(what)
                                  : name        ? *name
                                  : long_name   ? *long_name
                                                : log_.names.Intern("kernel");
      NsysDevice& device = log_.devices[KeyOf(row, 2, 3)];
      device.slices.push_back(
          {Nanos(*start), Nanos(*end), shown, static_cast<std::uint32_t>(row.Whole(4).value_or(0)), !what.empty()});
      device.correlations.push_back(row.Whole(7).value_or(-1));
    });
  }

  /// Which call of the CUDA API allocated, and when which one issued work: by its correlation.
  Status ReadCalls() {
    std::set<Call> asked;
    std::vector<std::pair<Call, RecordedSlice*>> issued;
    for (auto& [key, device] : log_.devices) {
      for (const NsysMemory& row : device.memory) {
        if (row.correlation) {
          asked.emplace(key.process, *row.correlation);
        }
      }
      for (std::size_t i = 0; i < device.slices.size(); ++i) {
        issued.emplace_back(Call(key.process, device.correlations[i]), &device.slices[i]);
      }
    }
    const auto earlier = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::sort(issued.begin(), issued.end(), earlier);
    constexpr std::array<std::string_view, 4> kColumns = {"globalTid", "correlationId", "nameId", "start"};
    return file_.Read("CUPTI_ACTIVITY_KIND_RUNTIME", kColumns, [&](const SqliteRow& row) {
      const Call call(ProcessOf(row.Whole(0).value_or(0)), row.Whole(1).value_or(-1));
      if (const auto name = StringAt(row.Whole(2)); name && asked.contains(call)) {
        log_.callers.emplace(call, *name);
      }
      if (const auto start = row.Whole(3); IsTime(start) && call.second >= 0) {
        auto slice =
            std::lower_bound(issued.begin(), issued.end(), std::pair<Call, RecordedSlice*>(call, nullptr), earlier);
        for (; slice != issued.end() && slice->first == call && !slice->second->issued; ++slice) {
          slice->second->issued = Nanos(*start);
        }
      }
    });
  }

  /// Ranges with an end; marks have none.
  Status ReadAnnotations() {
    constexpr std::array<std::string_view, 5> kColumns = {"start", "end", "text", "textId", "globalTid"};
    return file_.Read("NVTX_EVENTS", kColumns, [&](const SqliteRow& row) {
      const auto start = row.Whole(0), end = row.Whole(1);
      if (!IsTime(start) || !IsTime(end) || *end < *start) {
        return;
      }
      std::string text = row.Text(2);
      if (const auto shared = StringAt(row.Whole(3)); text.empty() && shared) {
        text = log_.names[*shared];
      }
      if (!text.empty()) {
        Hear(*start);
        log_.annotations.push_back(
            {ProcessOf(row.Whole(4).value_or(0)), {std::move(text), Nanos(*start), Nanos(*end)}});
      }
    });
  }

  /// What the profiler says that it lost.
  Status ReadDiagnostics() {
    TIDEMARK_ASSIGN(auto severities, ReadEnum(file_, "ENUM_DIAGNOSTIC_SEVERITY_LEVEL"));
    constexpr std::array<std::string_view, 2> kColumns = {"severity", "text"};
    return file_.Read("DIAGNOSTIC_EVENT", kColumns, [&](const SqliteRow& row) {
      const std::string& severity = severities[row.Whole(0).value_or(-1)];
      const std::string text = row.Text(1);
      if (!HasAny(severity, std::array<std::string_view, 1>{"INFO"}) &&
          HasAny(Upper(text), std::array<std::string_view, 7>{"LOST", "LOSE", "DROP", "DISCARD", "INCOMPLETE",
                                                              "TRUNCAT", "NOT ALL"})) {
        ++log_.losses;
        log_.loss = log_.loss.empty() ? text : log_.loss;
      }
    });
  }

  void Hear(std::int64_t nanos) { begin_ = std::min(begin_.value_or(nanos), nanos); }

  SqliteFile file_;
  NsysLog log_;
  std::map<std::int64_t, std::uint32_t> strings_;  // by their ids in the file
  std::optional<std::int64_t> begin_;
};

}  // namespace

Result<NsysLog> ReadNsysLog(std::string_view bytes) {
  TIDEMARK_ASSIGN(SqliteFile file, SqliteFile::Open(bytes));
  return LogReader(std::move(file)).Read();
}

}  // namespace tidemark
