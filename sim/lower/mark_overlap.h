// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/program.h"

namespace tidemark {

/// Sets Compute::beside, Program::flight_sets and Collective::flight. Of kernels on the compute stream: a collective is
/// in flight for one that is issued after it, until the compute stream has waited for it: for an event behind it,
/// itself or through others that waited, or the host has. Those that one stream is given while the ones before are in
/// flight are one flight; the last of them, where no kernel is issued behind them, are exposed and are not in it.
/// Static: at the start of a loop body whatever is in flight before the loop or at the end of the body counts, and is
/// one flight where it is of one stream. Flights count from 0 in order of their first collectives.
void MarkOverlap(Program& program);

}  // namespace tidemark
