// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Several buffers per trained parameter and block, of which a microbatch uses one: gradients kept per microbatch, or
/// the old and the new value of a sum that is not updated in place.
class VersionTable {
 public:
  void Declare(Role& role, const std::string& what, Category category, DType dtype, std::int64_t versions);
  BufferRef operator()(const Role& role, const ParameterAt& at, Index version) const;

 private:
  std::vector<std::vector<BufferId>> buffers_;  ///< per run and parameter
  std::int64_t versions_ = 1;
};

}  // namespace tidemark
