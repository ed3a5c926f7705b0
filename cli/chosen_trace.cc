// SPDX-License-Identifier: Apache-2.0
#include "cli/chosen_trace.h"

#include <algorithm>
#include <vector>

#include "cli/load_trace.h"
#include "reports/summarise/peak.h"

namespace tidemark {

Result<std::size_t> ChooseTrace(const ReadTrace& file, const std::string& role) {
  const std::vector<Trace>& traces = file.file.traces;
  if (role.empty()) {
    std::vector<Bytes> peaks;
    for (const Trace& trace : traces) {
      peaks.push_back(SummarisePeak(trace).allocated);
    }
    return static_cast<std::size_t>(std::ranges::max_element(peaks) - peaks.begin());
  }
  TIDEMARK_TRY(CheckRole(role, {&file, 1}));
  return static_cast<std::size_t>(std::ranges::find(traces, role, &Trace::role) - traces.begin());
}

}  // namespace tidemark
