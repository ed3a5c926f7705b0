// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "sim/lower/boundary.h"
#include "sim/lower/window.h"
#include "sim/program/verify.h"
#include "sim/program/verify_gradients.h"

namespace tidemark {
namespace {

constexpr std::int64_t kSpans = 3;  ///< windows' worth of microbatches over which a predicate is looked at
constexpr std::size_t kMostHazards = 10'000;

bool HasOwnBoundary(const Job& job) { return job.axes.sync.when == Sync::When::custom && !job.CachesRepresentations(); }

/// Why no step can be made of the job's own predicates: nothing, a sentence for the first microbatch that fails, or
/// that none of them steps.
struct BoundaryFault {
  std::string id, message, hint;
};

std::optional<BoundaryFault> FaultOf(const Job& job) {
  if (!HasOwnBoundary(job) || job.accumulation_steps > Boundary::kMostMicrobatches) {
    return std::nullopt;  // the strategy refuses so many
  }
  const Result<Boundary> boundary = Boundary::Of(job);
  if (!boundary) {
    return std::nullopt;  // and what does not parse
  }
  bool steps = false;
  for (std::int64_t i = 0; i < job.accumulation_steps; ++i) {
    const Result<Boundary::Place> place = boundary->At(i);
    if (!place) {
      const Error& error = place.error();
      return BoundaryFault{kBoundaryFails, fmt::format("{}: {}", error.where, error.message), error.hint};
    }
    steps = steps || place->steps;
  }
  if (steps) {
    return std::nullopt;
  }
  return BoundaryFault{"never-steps",
                       fmt::format("{}: the optimizer does not step within {} microbatch{}", boundary->step_key(),
                                   Grouped(job.accumulation_steps), job.accumulation_steps == 1 ? "" : "es"),
                       "an ordinary window is (i + 1) % steps == 0"};
}

class Auditor {
 public:
  Auditor(const Job& job, StepKind step) : job_(job), step_(step) {}

  Result<JobAudit> Run() && {
    audit_.lints = LintJob(job_);
    const std::optional<BoundaryFault> fault = FaultOf(job_);
    if (HasOwnBoundary(job_)) {
      TIDEMARK_TRY(FollowBoundary(fault.has_value()));
    }
    if (fault) {
      AddLint(fault->id, fault->message, fault->hint);
      audit_.followed = false;
      return std::move(audit_);
    }
    TIDEMARK_ASSIGN(const StepProgram program, Lower(job_, step_));
    Follow(program);
    return std::move(audit_);
  }

 private:
  void AddLint(std::string id, std::string message, std::string hint) {
    audit_.lints.push_back({std::move(id), "error", std::move(message), std::move(hint)});
  }
  bool HasLint(std::string_view id) const {
    return std::any_of(audit_.lints.begin(), audit_.lints.end(), [id](const Lint& lint) { return lint.id == id; });
  }

  /// The windows of a loop that goes on behind the job's own microbatches.
  Status FollowBoundary(bool reported) {
    TIDEMARK_ASSIGN(const Boundary boundary, Boundary::Of(job_));
    WindowFactor window;
    const auto end = [&](bool steps, bool synchronised) {
      const auto microbatches = static_cast<std::int64_t>(window.microbatches.size());
      window.factor =
          SaturatingProduct(LossScaleOf(job_, job_.accumulation_steps), Inverse(LossScaleOf(job_, microbatches)));
      window.uniform = synchronised || job_.layout.dp == 1;
      window.steps = steps;
      audit_.windows.push_back(std::exchange(window, {}));
    };
    for (std::int64_t i = 0; i < kSpans * job_.accumulation_steps; ++i) {
      const Result<Boundary::Place> place = boundary.At(i);
      if (!place) {
        if (!reported) {
          AddLint(kBoundaryFails, fmt::format("{}: {}", place.error().where, place.error().message),
                  place.error().hint);
        }
        break;
      }
      window.microbatches.push_back(i);
      if (place->steps) {
        end(true, place->synchronises);
      }
    }
    if (!window.microbatches.empty()) {
      end(false, true);
    }
    return Done{};
  }

  static Rational Inverse(Rational factor) { return Rational(factor.denominator(), factor.numerator()); }

  void Follow(const StepProgram& program) {
    bool races = false;
    for (const Finding& finding : Verify(program, kMostHazards)) {
      races = races || finding.rule == Finding::Rule::unordered_access;
      if (finding.rule == Finding::Rule::unordered_access || finding.rule == Finding::Rule::clobbered_value) {
        continue;  // listed below, one by one
      }
      if (!IsWrongResult(finding.rule)) {
        AddLint("malformed-program", fmt::format("{}: {}", Name(finding.rule), finding.message),
                "this is a fault of tidemark: please report the job");
        return;
      }
      if (!HasLint("wrong-gradient")) {
        AddLint("wrong-gradient", fmt::format("{}: {}", Name(finding.rule), finding.message),
                "the strategy does not declare this: please report the job");
      }
    }
    for (const Program& role : program.roles) {
      AddHazards(role, FindHazards(role));
      AddHazards(role, races ? FindRaces(role, kMostHazards) : std::vector<Hazard>());
    }
    if (!HasOwnBoundary(job_)) {
      Findings unused(1'000'000);
      audit_.windows = CheckGradients(program, unused);
    }
  }

  void AddHazards(const Program& role, std::vector<Hazard> hazards) {
    for (Hazard& hazard : hazards) {
      if (audit_.hazards.size() == kMostHazards) {
        audit_.hazards_left_out = true;
        return;
      }
      audit_.hazards.push_back({role.role, role.role_index, role.buffers[hazard.buffer.index].name,
                                Describe(role, hazard), std::move(hazard)});
    }
  }

  const Job& job_;
  StepKind step_;
  JobAudit audit_;
};

}  // namespace

bool JobAudit::clean() const {
  return hazards.empty() &&
         std::none_of(lints.begin(), lints.end(), [](const Lint& lint) { return lint.severity == "error"; }) &&
         std::all_of(windows.begin(), windows.end(), [](const WindowFactor& window) { return window.right(); });
}

Result<JobAudit> AuditJob(const Job& job, StepKind step) { return Auditor(job, step).Run(); }

Job WithPlainBoundary(const Job& job) {
  Job plain = job;
  if (FaultOf(job)) {
    plain.axes.sync.expression = "(i + 1) % steps == 0";
    plain.axes.sync.step_expression.clear();
  }
  return plain;
}

}  // namespace tidemark
