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
    read_before_write,  ///< allocated, and nothing was put into it
    never_freed,        ///< alive at the end and not `kept`
    not_kept,           ///< `kept`, but dead at the end
    wait_without_record,
    unordered_access,  ///< two streams touch the same bytes, one writes (a free is a write), no order between them
    index_out_of_range,
    unbalanced_phase,
    send_without_recv,  ///< the messages of a channel differ between its two roles in number or size
    collective_order,   ///< roles of one pipeline group see different collectives
    wrong_factor,       ///< the optimizer reads a gradient whose factor is not 1/(M N) on behalf of every rank
    lost_gradient,      ///< a microbatch's gradient does not reach the optimizer behind its window
    stale_gradient,     ///< a gradient of an earlier window reaches the optimizer
    deadlock,           ///< all roles that are left wait for messages of each other
    clobbered_value,    ///< a value is read after its memory was written under another name (hazards.h)
    wrong_place,        ///< a kernel of the device touches memory of the host
    lost_update,        ///< what the host has updated is not copied to the device
    early_update,       ///< weights are updated while the pass that made their gradient still reads them
  };
  Rule rule;
  std::string message;  ///< names buffer, node, role and loop values
};

/// Whether a rule is about the numbers a program computes. One that breaks only such rules is well-formed: it runs, and
/// computes something else than the gradient of one big batch.
bool IsWrongResult(Finding::Rule rule);

/// Whether a program is well-formed, and whether it computes the right gradients: each once per microbatch, scaled by
/// exactly 1/(M N) (verify_gradients.h says how that is followed).
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
