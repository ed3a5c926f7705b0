// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/lower/boundary.h"
#include "sim/lower/window.h"
#include "sim/predict/program_length.h"
#include "sim/program/verify.h"
#include "sim/program/verify_gradients.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostFindings = 10'000;
constexpr std::size_t kMostHazards = 10'000;

bool HasOwnBoundary(const Job& job) { return job.axes.sync.when == Sync::When::custom && !job.CachesRepresentations(); }

/// Why no step can be made of the job's own predicates: nothing, a sentence for the first microbatch that fails, or
/// that none of them steps.
struct BoundaryFault {
  std::string id;
  Error error;
};

std::optional<BoundaryFault> FaultOf(const Job& job) {
  if (!HasOwnBoundary(job) || job.accumulation_steps > Boundary::kMostMicrobatches) {
    return std::nullopt;  // the strategy refuses so many
  }
  const Result<Boundary> boundary = Boundary::Of(job);
  if (!boundary) {
    return std::nullopt;  // and what does not parse
  }
  const Result<std::vector<Boundary::Place>> places = boundary->Places();
  if (!places) {
    return BoundaryFault{kBoundaryFails, places.error()};
  }
  if (std::none_of(places->begin(), places->end(), [](const Boundary::Place& place) { return place.steps; })) {
    return BoundaryFault{"never-steps", boundary->NeverSteps()};
  }
  return std::nullopt;
}

Error FaultOfOurs(const Finding& finding) {
  return {ErrorCode::internal, std::string(Name(finding.rule)), finding.message,
          "this is a fault of tidemark: please report the job"};
}

/// Appends to `list` up to `limit`.
void AddHazards(const Program& role, std::vector<Hazard> hazards, std::size_t limit, HazardList& list) {
  for (Hazard& hazard : hazards) {
    if (list.hazards.size() == limit) {
      list.left_out = true;
      return;
    }
    list.hazards.push_back({role.role, role.role_index, role.buffers[hazard.buffer.index].name, Describe(role, hazard),
                            std::move(hazard)});
  }
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
      AddLint(fault->id, fault->error);
      audit_.followed = false;
      return std::move(audit_);
    }
    TIDEMARK_ASSIGN(const StepProgram program, Lower(job_, step_));
    TIDEMARK_TRY(CheckLength(program, job_, "use fewer microbatches: what is lost among many is lost among few"));
    TIDEMARK_TRY(Follow(program));
    TIDEMARK_ASSIGN(const Strategy strategy, FindStrategy(job_.strategy));
    audit_.kept = FindKept(program, strategy);
    return std::move(audit_);
  }

 private:
  void AddLint(std::string id, const Error& error) {
    audit_.lints.push_back({std::move(id), "error", fmt::format("{}: {}", error.where, error.message), error.hint});
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
      window.uniform = synchronised || job_.layout.GradientRanks() == 1;
      window.steps = steps;
      audit_.windows.push_back(std::exchange(window, {}));
    };
    for (std::int64_t i = 0; i < kAuditedSpans * job_.accumulation_steps; ++i) {
      const Result<Boundary::Place> place = boundary.At(i);
      if (!place) {
        if (!reported) {
          AddLint(kBoundaryFails, place.error());
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

  Status Follow(const StepProgram& program) {
    TIDEMARK_ASSIGN(HazardList list, FindAllHazards(program, HasLint("wrong-gradient"), kMostHazards));
    audit_.hazards = std::move(list.hazards);
    audit_.hazards_left_out = list.left_out;
    if (!HasOwnBoundary(job_)) {
      Findings unused(1'000'000);
      audit_.windows = CheckGradients(program, unused);
    }
    return Done{};
  }

  const Job& job_;
  StepKind step_;
  JobAudit audit_;
};

}  // namespace

Result<HazardList> FindAllHazards(const StepProgram& program, bool declared_wrong, std::size_t limit) {
  bool races = false;
  for (const Finding& finding : Verify(program, kMostFindings)) {
    races = races || finding.rule == Finding::Rule::unordered_access;
    if (finding.rule == Finding::Rule::unordered_access || finding.rule == Finding::Rule::clobbered_value) {
      continue;  // listed below, one by one
    }
    if (!declared_wrong || !IsWrongResult(finding.rule)) {
      return FaultOfOurs(finding);
    }
  }
  HazardList list;
  for (const Program& role : program.roles) {
    AddHazards(role, FindHazards(role), limit, list);
    // One more than fits, to know whether any is left out.
    AddHazards(role, races ? FindRaces(role, limit + 1) : std::vector<Hazard>(), limit, list);
  }
  return list;
}

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
