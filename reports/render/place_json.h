// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "traces/place.h"

namespace tidemark {

/// `phase`, `microbatch`, `side`, `chunk` and `step`, null for what there is none of.
nlohmann::ordered_json PlaceJson(const PhasePlace& place);

/// The same of a request that was refused: kBeforeStep in place of no phase.
nlohmann::ordered_json RefusedPlaceJson(const PhasePlace& place);

}  // namespace tidemark
