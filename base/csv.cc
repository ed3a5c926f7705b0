// SPDX-License-Identifier: Apache-2.0
#include "base/csv.h"

namespace tidemark {

std::string CsvField(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == std::string_view::npos) {
    return std::string(value);
  }
  std::string quoted = "\"";
  for (const char letter : value) {
    quoted += letter;
    if (letter == '"') {
      quoted += letter;
    }
  }
  return quoted + "\"";
}

}  // namespace tidemark
