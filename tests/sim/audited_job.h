// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/sim/ledger.h"
#include "tests/sim/sound_program.h"

namespace tidemark {

/// The book of a job's first role, whose program is sound.
inline Ledger BookOf(const Job& job, StepKind kind = StepKind::steady) { return Audit(Sound(job, kind), job.machine); }

}  // namespace tidemark
