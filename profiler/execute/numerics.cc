// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

double DistanceOf(const std::vector<double>& own, const std::vector<double>& whole,
                  std::span<const std::int64_t> places, double least) {
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

double RootMeanSquare(const ParameterParts& tensors) {
  double sum = 0, count = 0;
  for (const auto& [key, parts] : tensors) {
    for (const auto& [begin, values] : parts) {
      for (const double value : values) {
        sum += value * value;
      }
      count += static_cast<double>(values.size());
    }
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

Distance DistanceOf(const Model& model, const ParameterParts& own, const ParameterParts& reference, double floor) {
  const double least = floor * RootMeanSquare(reference);
  Distance farthest;
  for (const auto& [key, parts] : own) {
    const auto whole = reference.find(key);
    const auto weight = model.Held(key.first, key.second);
    const std::vector<std::int64_t> places = weight ? model.PlacesOf(*weight) : std::vector<std::int64_t>();
    for (const auto& [begin, values] : parts) {
      const bool known = whole != reference.end() && weight;
      const double distance =
          known ? DistanceOf(values, whole->second.at(0),
                             std::span(places).subspan(static_cast<std::size_t>(begin), values.size()), least)
                : std::numeric_limits<double>::infinity();
      if (distance > farthest.highest || farthest.tensor.empty()) {
        farthest = {distance, key.first};
      }
    }
  }
  return farthest;
}

std::string PlacesText(const Model& model, const ParameterParts& own) {
  std::string text;
  for (const auto& [key, parts] : own) {
    const auto weight = model.Held(key.first, key.second);
    if (!weight) {
      continue;  // DistanceOf tells of it
    }
    const std::vector<std::int64_t> places = model.PlacesOf(*weight);
    for (const auto& [begin, values] : parts) {
      const auto first = static_cast<std::size_t>(begin);
      for (std::size_t i = first, run = first; i < first + values.size(); ++i) {
        if (i + 1 == first + values.size() || places[i + 1] != places[i] + 1) {
          text += fmt::format("{} {} {} {}\n", key.first, key.second, places[run], i + 1 - run);
          run = i + 1;
        }
      }
    }
  }
  return text;
}

std::optional<std::string> FirstMissing(const ParameterParts& reference, std::span<const std::string> places) {
  std::map<ParameterKey, std::vector<bool>> had;
  for (const auto& [key, parts] : reference) {
    had[key].resize(parts.at(0).size());
  }
  for (const std::string& text : places) {
    std::istringstream lines(text);
    ParameterKey key;
    for (std::int64_t first = 0, count = 0; lines >> key.first >> key.second >> first >> count;) {
      const auto of = had.find(key);
      if (of != had.end() && first >= 0 && first + count <= static_cast<std::int64_t>(of->second.size())) {
        std::fill_n(of->second.begin() + first, count, true);
      }
    }
  }
  for (const auto& [key, of] : had) {
    if (std::find(of.begin(), of.end(), false) != of.end()) {
      return key.first;
    }
  }
  return std::nullopt;
}

double BoundOf(DType dtype, std::int64_t roundings) {
  constexpr double kExact = 1e-10, kDeviations = 4;
  const double walk = kDeviations * UnitRoundoff(dtype) * std::sqrt(static_cast<double>(roundings));
  return dtype == DType::fp64 ? kExact : walk;
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
