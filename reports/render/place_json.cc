// SPDX-License-Identifier: Apache-2.0
#include "reports/render/place_json.h"

namespace tidemark {

using Json = nlohmann::ordered_json;

Json PlaceJson(const PhasePlace& place) {
  return {{"phase", place.phase.empty() ? Json(nullptr) : Json(place.phase)},
          {"microbatch", place.microbatch >= 0 && place.side.empty() ? Json(place.microbatch) : Json(nullptr)},
          {"side", place.side.empty() ? Json(nullptr) : Json(place.side)},
          {"chunk", place.side.empty() ? Json(nullptr) : Json(place.microbatch)},
          {"step", place.step >= 0 ? Json(place.step) : Json(nullptr)}};
}

Json RefusedPlaceJson(const PhasePlace& place) {
  Json json = PlaceJson(place);
  if (place.phase.empty()) {
    json["phase"] = kBeforeStep;
  }
  return json;
}

}  // namespace tidemark
