// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/numerics.h"

#include <cmath>
#include <limits>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

double DistanceOf(const std::vector<double>& own, const std::vector<double>& whole,
                  const std::vector<std::int64_t>& places) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double expected = whole[static_cast<std::size_t>(places[i])];
    difference += (own[i] - expected) * (own[i] - expected);
    length += expected * expected;
  }
  if (difference == 0) {
    return 0;
  }
  const double distance = std::sqrt(difference / length);
  return std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity();
}

double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::fp16:
      return 0x1p-11;
    case DType::fp32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

}  // namespace

Distance DistanceOf(const Model& model, const Tensors& own, const Tensors& reference) {
  Distance farthest;
  for (const auto& [key, whole] : reference) {
    const auto found = own.find(key);
    const auto weight = model.WeightOf(key.first);
    const double distance = found == own.end() || !weight ? std::numeric_limits<double>::infinity()
                                                          : DistanceOf(found->second, whole, model.PlacesOf(*weight));
    if (distance > farthest.highest || farthest.tensor.empty()) {
      farthest = {distance, key.first};
    }
  }
  return farthest;
}

double BoundOf(DType dtype, std::int64_t roundings) {
  constexpr double kExact = 1e-10, kDeviations = 4;
  return dtype == DType::fp64 ? kExact : kDeviations * UnitRoundoff(dtype) * std::sqrt(static_cast<double>(roundings));
}

std::int64_t RoundingsOf(const Program& program, std::int64_t microbatches, std::int64_t ranks) {
  std::int64_t kernels = 0;
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t>) {
    kernels += std::holds_alternative<Compute>(program.nodes[at]) ? 1 : 0;
    return true;
  });
  return kernels / microbatches + microbatches + ranks;
}

}  // namespace tidemark
