// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "reports/summarise/peak.h"
#include "reports/summarise/prediction.h"

namespace tidemark {

/// What the gate knows of one peak, of a baseline or of now.
struct ObservedPeak {
  bool measured = false;
  std::int64_t steps = 0;                       ///< the first so many in a row; 0: one steady step
  std::map<std::string, std::string> hardware;  ///< of a measured one: what it was measured on
  Peak peak;                                    ///< its allocated bytes, and what is alive
  std::string at;                               ///< "forward of microbatch 0"; empty: before the step
  Bytes device;                                 ///< what a device has to have; 0: not known
  std::string job;                              ///< the resolved job as JSON
  std::vector<std::string> doubts;              ///< why the measurement is in doubt
};

/// The worst role of a prediction. `device` is the high end of its band, which decides what fits.
ObservedPeak PeakOf(const PredictionReport& report);

/// What `tidemark run --format json` wrote: the rank that has most. `device` is what its process took. Refuses what is
/// no tidemark.run/1, what lacks a key, and a run that ran out of memory; `path` is for messages.
Result<ObservedPeak> ReadRun(std::string_view json, const std::string& path);

}  // namespace tidemark
