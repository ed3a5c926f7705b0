// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace tidemark {

/// What tensors are told together as: a block's moments, of all its parameters, are "moments of layer" for "first
/// moment of layer.w1", as a reader asks for the optimizer's state of a block; DistributedDataParallel's buckets are
/// "buckets". Others are told by their own names.
std::string FamilyName(const std::string& tensor);

/// Whether tensor number `index` of a trace, of this name, belongs to the same as another: all of a FamilyName that is
/// not their own, else itself alone.
using FamilyKey = std::pair<std::string, std::uint32_t>;
FamilyKey FamilyKeyOf(const std::string& tensor, std::uint32_t index);

}  // namespace tidemark
