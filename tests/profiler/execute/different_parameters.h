// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "profiler/execute/executor.h"
#include "profiler/execute/numerics.h"

namespace tidemark {

/// Names of parameters whose gradients on one rank are further apart than fp64's bound, or all zero, which proves
/// nothing.
inline std::set<std::string> DifferentParameters(const ParameterParts& some, const ParameterParts& others) {
  const double bound = BoundOf(DType::fp64, 0);
  std::set<std::string> names;
  for (const auto& [key, parts] : some) {
    const std::vector<double>&values = parts.at(0), &other = others.at(key).at(0);
    double difference = 0, length = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += (values[i] - other[i]) * (values[i] - other[i]);
      length += other[i] * other[i];
    }
    if (!(difference <= bound * bound * length && length > 0)) {
      names.insert(key.first);
    }
  }
  return names;
}

}  // namespace tidemark
