// SPDX-License-Identifier: Apache-2.0
#include "cli/process_sample.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace tidemark {

std::optional<RankSample> SampleProcess(pid_t pid, const RankProgress& progress) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // proc(5): "pid (name) state ..."; a name may hold anything
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(name_end + 1));
  char state = 0;
  fields >> state;
  std::string skipped;
  for (int field = 4; field < 14; ++field) {
    fields >> skipped;
  }
  std::int64_t user_ticks = 0, system_ticks = 0;  // fields 14 and 15
  if (!(fields >> user_ticks >> system_ticks)) {
    return std::nullopt;
  }
  const std::int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  return RankSample{progress.beats(), progress.state(), state == 'T' || state == 't',
                    Nanos((user_ticks + system_ticks) * tick_ns)};
}

}  // namespace tidemark
