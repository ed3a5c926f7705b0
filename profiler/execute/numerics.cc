// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/numerics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

double DistanceOf(const std::vector<double>& own, const std::vector<double>& whole,
                  const std::vector<std::int64_t>& places, double least) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double expected = whole[static_cast<std::size_t>(places[i])];
    difference += (own[i] - expected) * (own[i] - expected);
    length += expected * expected;
  }
  if (difference == 0) {
    return 0;
  }
  const double shortest = least * least * static_cast<double>(own.size());
  const double distance = std::sqrt(difference / std::max(length, shortest));
  return std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity();
}

double RootMeanSquare(const Tensors& tensors) {
  double sum = 0, count = 0;
  for (const auto& [key, values] : tensors) {
    for (const double value : values) {
      sum += value * value;
    }
    count += static_cast<double>(values.size());
  }
  return count > 0 ? std::sqrt(sum / count) : 0;
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

Distance DistanceOf(const Model& model, const Tensors& own, const Tensors& reference, double floor) {
  const double least = floor * RootMeanSquare(reference);
  Distance farthest;
  for (const auto& [key, whole] : reference) {
    const auto found = own.find(key);
    const auto weight = model.WeightOf(key.first);
    const double distance = found == own.end() || !weight
                                ? std::numeric_limits<double>::infinity()
                                : DistanceOf(found->second, whole, model.PlacesOf(*weight), least);
    if (distance > farthest.highest || farthest.tensor.empty()) {
      farthest = {distance, key.first};
    }
  }
  return farthest;
}

double BoundOf(DType dtype, std::int64_t roundings) {
  constexpr double kExact = 1e-10, kDeviations = 4, kMost = 0.2;
  const double walk = kDeviations * UnitRoundoff(dtype) * std::sqrt(static_cast<double>(roundings));
  return dtype == DType::fp64 ? kExact : std::min(walk, kMost);
}

std::int64_t RoundingsOf(const Program& program, std::int64_t microbatches, std::int64_t ranks) {
  std::int64_t kernels = 0;
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t>) {
    const auto* compute = std::get_if<Compute>(&program.nodes[at]);
    kernels += compute != nullptr && compute->work != Work::optimizer ? 1 : 0;
    return true;
  });
  return kernels / microbatches + microbatches + ranks;
}

}  // namespace tidemark
