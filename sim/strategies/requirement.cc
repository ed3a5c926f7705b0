// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/requirement.h"

namespace tidemark {

Status Check(std::span<const Requirement> requirements) {
  for (const Requirement& requirement : requirements) {
    if (!requirement.holds) {
      return BadKey(requirement.key, requirement.message, requirement.hint);
    }
  }
  return Done{};
}

}  // namespace tidemark
