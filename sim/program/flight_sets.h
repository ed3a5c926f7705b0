// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// What becomes Program::flight_sets.
class FlightSets {
 public:
  /// The id of these flights, a new one if they have none yet; of none not valid.
  FlightSetId Intern(const std::vector<FlightId>& flights) {
    if (flights.empty()) {
      return {};
    }
    const auto [at, added] = ids_.try_emplace(flights, FlightSetId{static_cast<std::uint32_t>(sets_.size())});
    if (added) {
      sets_.push_back(flights);
    }
    return at->second;
  }

  const std::vector<std::vector<FlightId>>& sets() const { return sets_; }

 private:
  std::map<std::vector<FlightId>, FlightSetId> ids_;
  std::vector<std::vector<FlightId>> sets_;
};

}  // namespace tidemark
