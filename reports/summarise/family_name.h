// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark {

/// What tensors are told together as: a block's moments, of all its parameters, are "moments of layer" for "first
/// moment of layer.w1", as a reader asks for the optimizer's state of a block. Others are told by their own names.
std::string FamilyName(const std::string& tensor);

}  // namespace tidemark
