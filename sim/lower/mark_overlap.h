// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/program.h"

namespace tidemark {

/// Sets Compute::beside and Collective::flight. A collective is in flight for a kernel that is issued after it, until
/// the kernel's stream has waited for it: for an event behind it, itself or through others that waited, or the host
/// has. Those that one stream is given while the compute stream has not waited for the ones before are one flight.
/// Static: at the start of a loop body whatever is in flight before the loop or at the end of the body counts, and is
/// one flight where it is of one stream. Flights that no kernel is beside have no number; the others count from 0 in
/// order of their first collectives.
void MarkOverlap(Program& program);

}  // namespace tidemark
