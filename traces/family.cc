// SPDX-License-Identifier: Apache-2.0
#include "traces/family.h"

#include <algorithm>
#include <sstream>

namespace tidemark {

std::string FamilyOf(const std::string& name) {
  std::istringstream parts(name.substr(0, name.find('[') == 0 ? std::string::npos : name.find('[')));
  std::string family;
  for (std::string part; std::getline(parts, part, '.');) {
    const bool index =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    family += (family.empty() ? "" : ".") + (index ? "*" : part);
  }
  return family;
}

}  // namespace tidemark
