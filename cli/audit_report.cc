// SPDX-License-Identifier: Apache-2.0
#include "cli/audit_report.h"

#include <optional>

#include "base/rational_text.h"
#include "models/job/read.h"
#include "reports/summarise/title.h"
#include "sim/predict/steps.h"

namespace tidemark {
namespace {

HazardReport MakeHazard(const RoleHazard& found) {
  const Hazard& hazard = found.hazard;
  HazardReport report;
  report.kind = hazard.kind == Hazard::Kind::race ? "race" : "clobber";
  report.buffer = found.buffer;
  report.value = hazard.value;
  report.overwritten_by = hazard.overwritten_by;
  report.read_by = hazard.read_by;
  report.microbatch = hazard.microbatch < 0 ? std::nullopt : std::optional(hazard.microbatch);
  report.layer = hazard.layer;
  report.role = found.role;
  report.stage = found.stage;
  report.message = found.message;
  report.side = Name(hazard.side);
  return report;
}

WindowReport MakeWindow(const WindowFactor& window) {
  WindowReport report;
  report.microbatches = window.microbatches;
  report.uniform = window.uniform;
  report.lost = window.lost;
  report.right = window.right();
  report.factor = window.factor.too_large() ? std::nullopt : std::optional(ToDouble(window.factor));
  report.exact = Text(window.factor);
  return report;
}

IdleReport MakeIdle(const KeptBuffers& kept) {
  return {kept.buffers, kept.bytes, kept.last_used_by, std::string(Name(kept.freed_in)),
          kept.why,     kept.role,  kept.stage};
}

}  // namespace

AuditReport MakeReport(const Job& job, StepKind step, const JobAudit& audit) {
  AuditReport report;
  report.title = JobTitle(job);
  report.job_yaml = JobYaml(job);
  report.step = Name(step);
  report.version = TIDEMARK_VERSION;
  report.accumulation_steps = job.accumulation_steps;
  report.evaluated_microbatches = kAuditedSpans * job.accumulation_steps;
  report.chunks = job.CachesRepresentations();
  report.clean = audit.clean();
  report.several_roles = job.layout.pp > 1;
  const Sync& sync = job.axes.sync;
  report.synchronises = sync.expression;
  report.steps = sync.step_expression.empty() ? sync.expression : sync.step_expression;
  for (const RoleHazard& hazard : audit.hazards) {
    report.hazards.push_back(MakeHazard(hazard));
  }
  report.hazards_left_out = audit.hazards_left_out;
  report.followed = audit.followed;
  for (const Lint& lint : audit.lints) {
    report.lints.push_back(lint);
    report.evaluated = report.evaluated && lint.id != kBoundaryFails;
  }
  for (const KeptBuffers& kept : audit.kept) {
    report.idle.push_back(MakeIdle(kept));
  }
  for (const WindowFactor& window : audit.windows) {
    if (window.steps) {
      report.windows.push_back(MakeWindow(window));
    } else {
      report.pending = window.microbatches;
    }
  }
  return report;
}

}  // namespace tidemark
