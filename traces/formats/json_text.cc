// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/json_text.h"

#include <nlohmann/json.hpp>

namespace tidemark {

std::string JsonText(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tidemark
