// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/verify_role.h"

namespace tidemark {

/// What concerns the host's memory in one well-formed role: no kernel of the device touches it, and no collective that
/// touches the device's as well. Copies go between the two.
void CheckPlaces(const Program& program, Findings& findings);

/// Every update that the host makes must come back: something that it wrote, or that the host has made of that, is
/// copied to the device before the step ends, or stays where a step copies from before it is written.
void CheckHostUpdates(const Program& program, Findings& findings);

}  // namespace tidemark
