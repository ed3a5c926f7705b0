// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/family_name.h"

#include <string_view>

namespace tidemark {

std::string FamilyName(const std::string& tensor) {
  for (const std::string_view of : {"first moment of ", "second moment of "}) {
    const std::size_t at = tensor.find(of);
    if (at != std::string::npos) {
      const std::string parameter = tensor.substr(at + of.size());
      return tensor.substr(0, at) + "moments of " + parameter.substr(0, parameter.rfind('.'));
    }
  }
  return tensor;
}

FamilyKey FamilyKeyOf(const std::string& tensor, std::uint32_t index) {
  std::string name = FamilyName(tensor);
  const bool is_alone = name == tensor;
  return {std::move(name), is_alone ? index : ~std::uint32_t{0}};
}

}  // namespace tidemark
