// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/family_name.h"

#include <algorithm>
#include <string_view>

namespace tidemark {

namespace {

/// Of "bucket 12" and "stage 1 bucket 12", how long it is without its number; 0: it is neither.
std::size_t BucketIn(std::string_view tensor) {
  const std::size_t space = tensor.rfind(' ');
  if (space == std::string_view::npos || tensor.find_first_not_of("0123456789", space + 1) != std::string_view::npos) {
    return 0;
  }
  const std::string_view head = tensor.substr(0, space);
  std::string_view name = head;
  if (name.starts_with("stage ")) {
    name.remove_prefix(std::min(name.size(), name.find_first_not_of("0123456789 ", 6)));
  }
  return name == "bucket" ? head.size() : 0;
}

}  // namespace

std::string FamilyName(const std::string& tensor) {
  if (const std::size_t bucket = BucketIn(tensor); bucket > 0) {
    return tensor.substr(0, bucket) + "s";
  }
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
