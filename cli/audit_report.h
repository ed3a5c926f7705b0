// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/job/job.h"
#include "reports/summarise/audit.h"
#include "sim/predict/audit.h"

namespace tidemark {

/// Brings an audit and its job into the form that the renderers read.
AuditReport MakeReport(const Job& job, StepKind step, const JobAudit& audit);

}  // namespace tidemark
