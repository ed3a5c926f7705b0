// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/quantity.h"
#include "sim/program/program.h"

namespace tidemark {

/// Messages of one kind, group and dtype in one step of one rank.
struct CommunicationRow {
  std::string kind, group;  ///< "all_gather", "dp"; messages between stages: "send", "recv", group "pp"
  DType dtype = DType::bf16;
  std::int64_t count = 0;
  Bytes payload, wire;  ///< full buffers; wire bytes rounded down per message, then summed
};

/// Counted on the tree, loops by multiplication. Ordered by kind, group, dtype.
std::vector<CommunicationRow> CountCommunication(const Program& program);

/// Groups with which a rank of the role keeps a communicator open.
std::int64_t CountCommunicators(const Program& program);

struct ProgramFlops {
  /// Operations; hardware: recomputation included. Real numbers: a long step passes 2^63.
  double model = 0, hardware = 0;
};

/// Matrix products (those of InfoNCE among them) and attention only, which is what model FLOP utilisation counts by
/// convention. One of the five products of a memory-linear attention's backward makes the scores again: hardware, not
/// model.
ProgramFlops CountFlops(const Program& program);

/// Leaves of the program with all loops written out: what a simulation walks.
std::int64_t CountLeaves(const Program& program);

}  // namespace tidemark
