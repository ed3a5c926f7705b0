// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// A value that its reader may not find.
///
/// clobber  A value that is read although its memory was written since under another name. A buffer that is shared
///          (Buffer::base) holds one value at a time: the one written last. Whoever reads a view expects what was last
///          written through that very view. There is one hazard per (value, last write before the read), with the first
///          read that falls for it. A view that is read and was never written is one too.
/// race     Two streams touch the same bytes, one writes, and nothing orders them (verify_role.h). One per pair of
///          accesses. Of two writes the earlier one stands as the reader; a free is a write.
struct Hazard {
  enum class Kind : std::uint8_t { clobber, race };
  Kind kind = Kind::clobber;
  BufferId buffer;                    ///< the memory: what is written and read are views of it, or itself
  std::string value;                  ///< the name whose value is gone: "residual[0][1]"
  std::string overwritten_by;         ///< an operation: "layer.wo.scatter"; empty: nothing was ever written
  std::string read_by;                ///< an operation: "layer.residual1.forward"
  std::int64_t microbatch = 0;        ///< of the read; -1 outside the microbatches
  Side side = Side::none;             ///< otherwise `microbatch` is a chunk of this side
  std::optional<std::int64_t> layer;  ///< of the reading operator: the model's, from 0; none where it is in no layer
  std::size_t read_node = 0;
  std::string streams;  ///< of a race, in words: "compute, which has not waited for tp"
};

/// All clobbers of one role, in the order of the reads. The program must be well-formed. Cost: the unrolled program.
std::vector<Hazard> FindHazards(const Program& program);

/// All races of one role, in issue order, but at most `limit`. Every id of the program points somewhere.
std::vector<Hazard> FindRaces(const Program& program, std::size_t limit);

/// "microbatch 1, layer 0: layer.residual1.forward reads residual[0][1], which layer.wo.scatter has overwritten in
/// pool".
std::string Describe(const Program& program, const Hazard& hazard);

/// The name of a node's operation; of a node without one its line of text.
std::string OperationName(const Program& program, const Node& node);

}  // namespace tidemark
