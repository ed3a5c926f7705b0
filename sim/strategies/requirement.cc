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

Requirement HasBucket(const Sync& sync, const char* hint) {
  return {sync.bucket_elements > 0, "sync.bucket_elements", "a reduction bucket of no elements holds nothing", hint};
}

}  // namespace tidemark
