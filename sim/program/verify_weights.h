// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/verify_role.h"

namespace tidemark {

/// Updates in one well-formed role that come too early: a kernel of the same pass still reads the weights, to make a
/// gradient of what they were.
void CheckEarlyUpdates(const Program& program, Findings& findings);

}  // namespace tidemark
