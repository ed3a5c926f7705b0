// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark {

/// The name of a tensor or an operation without the index of its layer or microbatch: "layers.7.mlp" and
/// "layers.12.mlp" are "layers.*.mlp"; "bucket[3]" is "bucket".
std::string FamilyOf(const std::string& name);

}  // namespace tidemark
