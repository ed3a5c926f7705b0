// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// One broken rule of a program.
struct Finding {
  enum class Rule : std::uint8_t {
    bad_reference,      ///< an id that no table has, a name given twice, a loop that is not around, a body that leaks
    used_before_alloc,  ///< read, written or freed while not alive
    allocated_twice,
    never_freed,  ///< alive at the end and not `kept`
    not_kept,     ///< `kept`, but dead at the end
    wait_without_record,
    unordered_access,  ///< two streams touch the same bytes, one writes (a free is a write), no order between them
    index_out_of_range,
    unbalanced_phase,
    send_without_recv,  ///< the messages of a channel differ between its two roles in number or size
    collective_order,   ///< roles of one pipeline group see different collectives
  };
  Rule rule;
  std::string message;  ///< names buffer, node, role and loop values
};

/// Whether a program is well-formed. Whether it computes the right gradients (each once per microbatch, scaled by
/// exactly 1/(M N)) is not checked here: programs do not carry the loss's scale yet.
///
/// Checks all roles of a step, each role unrolled in issue order; at most `limit` findings. A node that breaks a rule
/// in many iterations is reported for the first. Cost: one pass over the unrolled program times its streams (vector
/// clocks, see the essay in verify_role.h).
///
/// Groups named "pp", "embedding" and "world" span roles; each role that lists such a group must issue the same
/// collectives over it in the same order. Other groups connect ranks of one role, which agree because they run one
/// program.
std::vector<Finding> Verify(const StepProgram& step, std::size_t limit = 20);

std::string_view Name(Finding::Rule rule);

}  // namespace tidemark
