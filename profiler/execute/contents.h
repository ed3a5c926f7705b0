// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "models/job/job.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// A stretch of one parameter's numbers, and where it lies in a buffer. In elements.
struct Stretch {
  Model::Weight weight;
  std::int64_t block = 0;  ///< which of equal blocks
  std::int64_t begin = 0, elements = 0;
  std::int64_t offset = 0;

  bool SameAs(const Stretch& other) const {
    return weight.name == other.weight.name && block == other.block && begin == other.begin &&
           elements == other.elements;
  }
};

/// What a buffer of weights, gradients or optimizer state holds, by the end of its name: "of layer.wq" that parameter,
/// "of layer" all trained parameters of the block, in the order of their definition. Moments stand one after the other,
/// each as the weights do. Empty: none of these, or a part of them.
std::optional<std::vector<Stretch>> ContentsOf(const Model& model, const Buffer& buffer, std::int64_t index);

/// Elements that the weights of a buffer have, once.
std::int64_t ElementsOf(const std::vector<Stretch>& contents);

/// What such a buffer is as the job says: the precision of what it is for, and as many numbers for each weight as its
/// optimizer keeps. Of communication buffers the dtype is the program's own; collectives are compared with it.
kernels::TensorType StateType(const Job& job, const Buffer& buffer, const std::vector<Stretch>& contents);

}  // namespace tidemark
