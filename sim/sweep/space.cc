// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/space.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostCombinations = 1'000'000'000'000'000'000;

}  // namespace

Result<SweepSpace> SweepSpace::Of(std::vector<SweepAxis> axes) {
  if (axes.empty()) {
    return BadInput("nothing is varied", "for example --vary micro_batch_size=1,2,4");
  }
  std::set<std::string> keys;
  std::int64_t size = 1;
  for (const SweepAxis& axis : axes) {
    if (!keys.insert(axis.key).second) {
      return BadInput(fmt::format("--vary: {} is varied twice", axis.key), "give all its values to one --vary");
    }
    if (std::ssize(axis.values) > kMostCombinations / size) {
      return BadInput(fmt::format("--vary: more than {} combinations", Grouped(kMostCombinations)),
                      "name fewer values");
    }
    size *= std::ssize(axis.values);
  }
  return SweepSpace(std::move(axes), size);
}

void SweepSpace::At(std::int64_t combination, std::span<std::size_t> values) const {
  TIDEMARK_CHECK(values.size() == axes_.size() && combination >= 0 && combination < size_);
  for (std::size_t i = axes_.size(); i-- > 0;) {
    const std::int64_t count = std::ssize(axes_[i].values);
    values[i] = static_cast<std::size_t>(combination % count);
    combination /= count;
  }
}

}  // namespace tidemark
