// SPDX-License-Identifier: Apache-2.0
#include "cli/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "models/findings/findings.h"
#include "models/job/read.h"
#include "reports/render/lints.h"
#include "reports/render/place_json.h"
#include "reports/render/role_json.h"
#include "reports/summarise/peak.h"
#include "reports/summarise/title.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kStepsShown = 20;  ///< of a long training the first and the last ones

std::string StepsText(const std::vector<StepOutcome>& steps) {
  std::string text = "  step        loss        time\n";
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps.size() > kStepsShown && i == kStepsShown / 2) {
      i = steps.size() - kStepsShown / 2;
      text += "   ...\n";
    }
    const std::string loss = steps[i].loss ? fmt::format("{:.6f}", *steps[i].loss) : "-";
    text += fmt::format("  {:>4}  {:>10}  {:>10}\n", i + 1, loss, Text(steps[i].time));
  }
  return text;
}

/// What is known to be wrong before anything runs; where numbers differ also what may be the reason.
std::string LintsText(const std::vector<Lint>& lints, bool numbers_differ) {
  std::string text;
  for (const Lint& lint : lints) {
    if (lint.severity == "error" || (numbers_differ && IsAboutNumbers(lint))) {
      text += fmt::format("\n{} {}: {}\n  hint: {}\n", lint.severity, lint.id, lint.message, lint.hint);
    }
  }
  return text;
}

std::string CheckText(const GradientCheck& check) {
  return fmt::format("  in {}: {:.2e} away at most (bound {:.2e}){}\n", Name(check.arithmetic), check.error,
                     check.bound, check.equal() ? "" : fmt::format(", at {}: the numbers differ", check.tensor));
}

std::string RoutingText(const RunNumerics& numerics) {
  if (numerics.routed_tokens == 0) {
    return "";
  }
  return fmt::format(
      "  {} of {} choices of experts (tokens times layers) in {} are others than in fp64; there the batch follows "
      "them\n",
      Grouped(numerics.routed_otherwise), Grouped(numerics.routed_tokens), Name(numerics.working.arithmetic));
}

std::string NumericsText(const RunNumerics& numerics) {
  return fmt::format("\ngradients of the first step against one batch of {} sequences on one rank, in fp64\n",
                     numerics.one_batch.micro_batch_size) +
         CheckText(numerics.exact) + CheckText(numerics.working) + RoutingText(numerics);
}

std::string OutOfMemoryText(const OutOfMemory& out, const Trace& trace) {
  constexpr std::size_t kShown = 5;
  const std::string place = InPhaseText(out.at);
  std::string text =
      fmt::format("\nout of memory: '{}' asked for {} ({} bytes) {}, with {} of {} reserved\n", out.tensor,
                  Text(out.requested), Grouped(out.requested.count()), place, Text(out.reserved), Text(out.capacity));
  const std::vector<LiveBuffers> alive = SummariseEnd(trace);
  for (const LiveBuffers& live : std::span(alive).first(std::min(kShown, alive.size()))) {
    text += fmt::format("  {:>10}  {} x {}\n", Text(live.bytes), live.count, live.name);
  }
  return text;
}

ordered_json JsonOf(const OutOfMemory& out, const Trace& trace) {
  ordered_json alive = ordered_json::array();
  for (const LiveBuffers& live : SummariseEnd(trace)) {
    alive.push_back({{"name", live.name},
                     {"category", Name(live.category)},
                     {"bytes", live.bytes.count()},
                     {"count", live.count},
                     {"since_phase", live.since_phase}});
  }
  ordered_json found = {{"requested_bytes", out.requested.count()},
                        {"capacity_bytes", out.capacity.count()},
                        {"reserved_bytes", out.reserved.count()},
                        {"cache_flushes", out.cache_flushes}};
  found.update(RefusedPlaceJson(out.at));
  found["tensor"] = out.tensor;
  found["live"] = alive;
  return found;
}

ordered_json JsonOf(const GradientCheck& check) {
  return {{"arithmetic", Name(check.arithmetic)},
          {"max_relative_error", check.error},
          {"bound", check.bound},
          {"equal", check.equal()}};
}

ordered_json JsonOf(const RankPeak& of) {
  const Peak& peak = of.peak;
  ordered_json by_category = ordered_json::object();
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    if (peak.by_category[category] > Bytes()) {
      by_category[std::string(Name(category))] = peak.by_category[category].count();
    }
  }
  return {{"role", of.role},
          {"allocated_bytes", peak.allocated.count()},
          {"allocator_bytes", of.allocator.count()},
          {"reserved_bytes", of.reserved.count()},
          {"mapped_bytes", of.mapped.count()},
          {"cache_flushes", of.cache_flushes},
          {"at", PlaceJson(peak)},
          {"by_category", by_category},
          {"live", LiveJson(peak.live, peak.live.size())}};
}

/// What says how long a GPU worked; a processor has one clock.
std::string ClockText(WorkClock clock) {
  switch (clock) {
    case WorkClock::host:
      break;
    case WorkClock::marks:
      return "work on streams is timed by CUDA's events\n";
    case WorkClock::records:
      return "work on streams is timed by CUPTI's records\n";
    case WorkClock::nobody:
      return "steps alone are timed, not the work on streams\n";
  }
  return "";
}

/// What a GPU's libraries do at their first use and nobody can do for them; groups of ranks have met before.
std::vector<std::string> NotesOf(const RunOutcome& outcome) {
  std::vector<std::string> notes = outcome.notes;
  if (outcome.clock != WorkClock::host) {
    notes.emplace_back(
        "the first step's time contains what comes once: kernels are loaded, cuBLASLt chooses algorithms, and NCCL "
        "opens connections");
  }
  return notes;
}

}  // namespace

bool RunReport::NumbersDiffer() const { return numerics && !(numerics->exact.equal() && numerics->working.equal()); }

bool RunReport::Finding() const { return NumbersDiffer() || outcome.ran_out; }

std::string RenderText(const RunReport& report) {
  const RunOutcome& outcome = report.outcome;
  const Peak& peak = report.peak.peak;
  std::string text =
      fmt::format("{}\nmeasured on {}, {}{}\n{}\n{}", JobTitle(report.job), report.device,
                  Counted(report.job.Ranks(), "rank"), report.exchanges.empty() ? "" : ", by " + report.exchanges,
                  LintsText(report.lints, report.NumbersDiffer()), StepsText(outcome.steps)) +
      ClockText(outcome.clock);
  for (const std::string& note : NotesOf(outcome)) {
    text += note + "\n";
  }
  if (!outcome.ran_out) {
    const std::vector<std::int64_t>& changed = outcome.steps.back().parameters_changed_at;
    text += changed.empty()
                ? "\nno parameter changed in the last step\n"
                : fmt::format("\nparameters changed after microbatch {} of the last step\n", fmt::join(changed, ", "));
  }
  text += fmt::format("memory peak of rank {}: {} of tensors ({} bytes), {}\n", report.peak.rank, Text(peak.allocated),
                      Grouped(peak.allocated.count()), InPhaseText(peak.phase, peak.microbatch, peak.step, peak.side));
  text += fmt::format("with the allocator's rounding {}, reserved {}\n", Text(report.peak.allocator),
                      Text(report.peak.reserved));
  if (outcome.steps.back().out_of_memory) {
    text += OutOfMemoryText(*outcome.steps.back().out_of_memory, outcome.trace);
  }
  if (!report.budgets.empty()) {
    text += BudgetText(report.budgets, report.reasons);
  }
  return report.numerics ? text + NumericsText(*report.numerics) : text;
}

std::string RenderJson(const RunReport& report) {
  ordered_json steps = ordered_json::array();
  for (const StepOutcome& step : report.outcome.steps) {
    steps.push_back({{"loss", step.loss ? ordered_json(*step.loss) : ordered_json()},
                     {"step_ns", step.time.count()},
                     {"parameters_changed_at", step.parameters_changed_at}});
    if (step.recorded) {
      steps.back()["host_waits"] = step.recorded->waits;
      steps.back()["host_waited_ns"] = step.recorded->waited.count();
      steps.back()["recording_ns"] = step.recorded->overhead.count();
    }
  }
  ordered_json numerics;
  if (report.numerics) {
    const RunNumerics& found = *report.numerics;
    numerics = JsonOf(found.working);
    numerics["reference"] =
        fmt::format("one batch of {} sequences on one rank, in fp64", found.one_batch.micro_batch_size);
    numerics["exact"] = JsonOf(found.exact);
    if (found.routed_tokens > 0) {
      numerics["routed_tokens"] = found.routed_tokens;
      numerics["routed_otherwise"] = found.routed_otherwise;
    }
  }
  numerics["parameters_changed_at"] = report.outcome.steps.back().parameters_changed_at;
  ordered_json out_of_memory;
  if (const auto& out = report.outcome.steps.back().out_of_memory) {
    out_of_memory = JsonOf(*out, report.outcome.trace);
  }
  ordered_json budget, validity;
  if (!report.budgets.empty()) {
    budget = BudgetJson(report.budgets);
    validity = ValidityJson(report.budgets, report.reasons);
  }
  const ordered_json json = {{"schema", "tidemark.run/1"},
                             {"device", report.device},
                             {"hardware", report.hardware},
                             {"job", JsonOfYaml(JobYaml(report.job))},
                             {"ranks", report.job.Ranks()},
                             {"steps", steps},
                             {"clock", Name(report.outcome.clock)},
                             {"notes", NotesOf(report.outcome)},
                             {"peak", JsonOf(report.peak)},
                             {"numerics", numerics},
                             {"budget", budget},
                             {"validity", validity},
                             {"lints", LintsJson(report.lints)},
                             {"out_of_memory", out_of_memory},
                             {"provenance", {{"version", TIDEMARK_VERSION}}}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tidemark
