// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>

#include "base/category.h"
#include "base/csv.h"

namespace tidemark {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

void AppendKeys(fmt::memory_buffer& line, const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    fmt::format_to(std::back_inserter(line), "{},", CsvField(value));
  }
}

std::string Heading(const SweepValues& columns) {
  fmt::memory_buffer line;
  AppendKeys(line, columns.keys());
  fmt::format_to(std::back_inserter(line),
                 "status,fits,pareto,allocated_bytes,device_high_bytes,host_bytes,step_ns,compute_ns,recompute_ns,"
                 "exposed_communication_ns,bubble_ns,optimizer_ns,host_ns,tokens_per_s_per_gpu,mfu,phase");
  for (std::size_t i = 0; i < kProgramCategories; ++i) {
    fmt::format_to(std::back_inserter(line), ",{}_bytes", Name(static_cast<Category>(i)));
  }
  return fmt::to_string(line) + ",reason\n";
}

std::string Line(const SweepValues& columns, const PricedRow& row, bool on_front) {
  fmt::memory_buffer line;
  AppendKeys(line, columns.Values(row.combination));
  const StepTime& time = row.time;
  fmt::format_to(std::back_inserter(line), "priced,{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", row.fits, on_front,
                 row.allocated.count(), row.device.high.count(), row.host.count(), time.step.count(),
                 time.compute.count(), time.recompute.count(), time.exposed_communication.count(), time.bubble.count(),
                 time.optimizer.count(), time.host.count(), row.tokens_per_s_per_gpu,
                 row.mfu > 0 ? fmt::to_string(row.mfu) : std::string(), Name(row.phase));
  for (std::size_t i = 0; i < kProgramCategories; ++i) {
    fmt::format_to(std::back_inserter(line), ",{}", row.by_category[static_cast<Category>(i)].count());
  }
  return fmt::to_string(line) + ",\n";
}

std::string RefusedLine(const SweepValues& columns, std::int64_t combination, const std::string& reason) {
  constexpr std::size_t kEmpty = 15 + kProgramCategories;  // between the status and the reason
  fmt::memory_buffer line;
  AppendKeys(line, columns.Values(combination));
  return fmt::format("{}refused{},{}\n", fmt::to_string(line), std::string(kEmpty, ','), CsvField(reason));
}

}  // namespace

Status WriteSweepCsv(const std::string& path, const SweepValues& columns, const SegmentFolder& segments,
                     const std::set<std::int64_t>& front) {
  const std::string unfinished = path + ".unfinished";
  const bool to_stdout = path == "-";
  std::unique_ptr<std::FILE, Close> opened(to_stdout ? nullptr : std::fopen(unfinished.c_str(), "w"));
  std::FILE* const file = to_stdout ? stdout : opened.get();
  const auto cannot = [&] {
    return Error{ErrorCode::machine_cannot, path, fmt::format("cannot be written ({})", std::strerror(errno)),
                 "is the disk full? The rows are kept: --resume writes them without pricing them again"};
  };
  if (file == nullptr) {
    return cannot();
  }
  const auto put = [&](const std::string& line) -> Status {
    return std::fwrite(line.data(), 1, line.size(), file) == line.size() ? Status(Done{}) : Status(cannot());
  };
  TIDEMARK_TRY(put(Heading(columns)));
  TIDEMARK_TRY(segments.ForEachRow(
      [&](const PricedRow& row) { return put(Line(columns, row, front.contains(row.combination))); }));
  const auto put_refused = [&](const PricedCombinations& priced) -> Status {
    Status written = Done{};
    for (std::size_t i = 0; written && i < priced.refused.size(); ++i) {
      const PricedCombinations::Refused& refused = priced.refused[i];
      written = put(RefusedLine(columns, refused.combination, priced.reasons[refused.reason]));
    }
    return written;
  };
  TIDEMARK_TRY(segments.ForEachRefused(put_refused));
  if (std::fflush(file) != 0 || (!to_stdout && std::fclose(opened.release()) != 0)) {
    return cannot();
  }
  if (!to_stdout && std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return cannot();
  }
  return Done{};
}

}  // namespace tidemark
