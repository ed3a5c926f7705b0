// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"
#include "reports/summarise/explanation_causes.h"

namespace tidemark {

/// "weights"
std::string_view NounOf(Category category);

/// "the backward pass of the first microbatch", "the optimizer's update". `count` microbatches make a step.
std::string PlaceText(const PhasePlace& place, std::int64_t count);

/// "4.00 GiB instead of 2.00 GiB"; where both read alike, by how much more or less.
template <class Quantity>
std::string InsteadOf(Quantity after, Quantity before) {
  const std::string text = tidemark::Text(after);
  if (text != tidemark::Text(before)) {
    return fmt::format("{} instead of {}", text, tidemark::Text(before));
  }
  return after == before  ? fmt::format("{}, as before", text)
         : after > before ? fmt::format("{}, {} more", text, tidemark::Text(after - before))
                          : fmt::format("{}, {} less", text, tidemark::Text(before - after));
}

}  // namespace tidemark
