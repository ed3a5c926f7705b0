// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/instants.h"
#include "reports/render/lints.h"
#include "reports/render/role_sections.h"
#include "reports/render/sparklines.h"

namespace tidemark {
namespace {

/// Whether it fits.
std::string SizeVerdict(const PredictionReport& report) {
  const std::string machine = fmt::format("{}{}", report.machine, report.machine_assumed ? " (assumed)" : "");
  if (report.capacity && report.capacity->outcome == "out_of_memory") {
    return fmt::format("OUT OF MEMORY under a limit of {}: a request of {} {} finds no room",
                       Text(report.capacity->capacity), Text(report.capacity->request),
                       InPhaseText(report.capacity->at));
  }
  const Bytes high = report.Worst().device.high, usable = report.usable_memory;
  const std::string memory = UsableMemoryText(usable, report.device_memory);
  if (report.Fits()) {
    return fmt::format("FITS on {}, with {} of {} to spare", machine, Text(usable - high), memory);
  }
  return fmt::format("DOES NOT FIT on {}: up to {} too much for its {}", machine, Text(high - usable), memory);
}

/// A size alone would recommend a job whose numbers are wrong.
std::string Verdict(const PredictionReport& report) {
  const std::string errors = ErrorSentence(report.lints);
  return SizeVerdict(report) + (errors.empty() ? "" : "; but " + errors);
}

bool Good(const PredictionReport& report) {
  return report.Fits() && ErrorSentence(report.lints).empty() &&
         !(report.capacity && report.capacity->outcome == "out_of_memory");
}

Figure SimulatedBytes(const std::string& label, const std::optional<Bytes>& bytes) {
  return bytes ? Figure{label, Text(*bytes), AllDigits(*bytes)} : Figure{label, "-", "needs --engine simulate"};
}

/// A network that tells times only has no FLOPs, and a machine may have no peak for a dtype: neither is a zero.
std::string UtilisationText(const Throughput& throughput) {
  if (throughput.model_tflops_per_gpu == 0) {
    return "the network tells no FLOPs";
  }
  const auto share = [](double utilisation) { return utilisation > 0 ? Percent(utilisation) : std::string("-"); };
  return fmt::format("{:.1f} model TFLOP/s, MFU {}, HFU {}", throughput.model_tflops_per_gpu, share(throughput.mfu),
                     share(throughput.hfu));
}

std::vector<Figure> Figures(const PredictionReport& report) {
  const RoleReport& worst = report.Worst();
  std::vector<Figure> figures;
  figures.push_back({"tensors at the peak", Text(worst.peak.allocated), AllDigits(worst.peak.allocated)});
  figures.push_back(SimulatedBytes(report.allocated_name, worst.allocator_bytes));
  figures.push_back(SimulatedBytes(report.reserved_name, worst.reserved));
  if (worst.reserved_late > worst.reserved) {
    figures.push_back({"reserved if streams lag", Text(*worst.reserved_late), AllDigits(*worst.reserved_late)});
  }
  figures.push_back({"device used (nvidia-smi)", Text(worst.device.expected), BandText(worst.device)});
  if (worst.host != Bytes(0)) {
    figures.push_back({"host memory", Text(worst.host), fmt::format("{} for one rank", AllDigits(worst.host))});
  }
  if (worst.minimum) {
    const bool shares = report.usable_memory < report.device_memory;  // of which the allocator may fill a part only
    figures.push_back({shares ? "smallest device that works" : "smallest limit that works", Text(*worst.minimum),
                       AllDigits(*worst.minimum)});
  }
  const Throughput& throughput = report.throughput;
  if (report.Steps() == 1) {
    figures.push_back({"step time", Text(report.time.step), report.StepText()});
  } else {
    const StepReport& last = report.steps.back();
    figures.push_back({fmt::format("time of {}", report.StepText()), Text(report.time.step),
                       fmt::format("{} for a {} step", Text(last.time), last.kind)});
  }
  figures.push_back({"throughput of a GPU",
                     fmt::format("{} tokens/s", Grouped(std::llround(throughput.tokens_per_s_per_gpu))),
                     UtilisationText(throughput)});
  return figures;
}

Section StepsSection(const PredictionReport& report) {
  Section section{
      "Step by step", fmt::format("{}; one begins when the one before is done", report.Worst().role), {}, {}};
  section.table.columns = {{"step", false, false},
                           {"time", true, false},
                           {"tensors at the peak", true, false},
                           {"reserved at most", true, false}};
  std::int64_t first = 1;
  for (const StepReport& step : report.steps) {
    const std::string numbers =
        step.count == 1 ? fmt::format("{}", first) : fmt::format("{} to {}", first, first + step.count - 1);
    section.table.rows.push_back({{fmt::format("{} ({})", numbers, step.kind), Text(step.time), Text(step.allocated),
                                   step.reserved ? Text(*step.reserved) : "-"},
                                  Share(step.allocated.count(), report.Worst().peak.allocated.count())});
    first += step.count;
  }
  return section;
}

Section TimeSection(const PredictionReport& report) {
  const TimeReport& time = report.time;
  Section section{fmt::format("Time of {} by cause", report.Steps() == 1 ? "a step" : report.StepText()),
                  fmt::format("on {}; idle time belongs to what was waited for", report.LastRoleText()),
                  {},
                  {}};
  section.table.columns = {{"cause", false, false}, {"time", true, false}, {"share", true, false}};
  const std::array<std::pair<const char*, Nanos>, 6> parts = {{{"compute", time.compute},
                                                               {"recompute", time.recompute},
                                                               {"optimizer", time.optimizer},
                                                               {"exposed communication", time.exposed_communication},
                                                               {"pipeline bubble", time.bubble},
                                                               {"host", time.host}}};
  for (const auto& [name, nanos] : parts) {
    const double share = Share(nanos.count(), time.step.count());
    section.table.rows.push_back({{name, Text(nanos), Percent(share)}, share});
  }
  return section;
}

Section CommunicationSection(const PredictionReport& report) {
  Section section{fmt::format("Communication of {}", report.Steps() == 1 ? "a step" : report.StepText()),
                  "one rank; payload is the full buffer, wire what leaves the rank",
                  {},
                  {}};
  section.table.columns = {{"kind", false, false}, {"group", false, false},  {"dtype", false, false},
                           {"count", true, false}, {"payload", true, false}, {"wire", true, false}};
  for (const CommunicationReport& row : report.communication) {
    section.table.rows.push_back(
        {{row.kind, row.group, std::string(Name(row.dtype)), Grouped(row.count), Text(row.payload), Text(row.wire)},
         std::nullopt});
  }
  return section;
}

Section RolesSection(const PredictionReport& report) {
  Section section{"Roles", "ranks that do the same are one role; the headline is that of the highest", {}, {}};
  section.table.columns = {{"role", false, true},     {"ranks", true, false},       {"tensors", true, false},
                           {"reserved", true, false}, {"device used", true, false}, {"peak in", false, true}};
  for (const RoleReport& role : report.roles) {
    section.table.rows.push_back(
        {{role.role, Grouped(role.ranks), Text(role.peak.allocated), role.reserved ? Text(*role.reserved) : "-",
          BandText(role.device), PhaseLabel(role.peak.phase, role.peak.microbatch, role.peak.step, role.peak.side)},
         Share(role.peak.allocated.count(), report.Worst().peak.allocated.count())});
  }
  return section;
}

Section EnginesSection(const PredictionReport& report) {
  Section section{"Engines", "two evaluations of the same program that must agree exactly", {}, {}};
  section.table.columns = {
      {"engine", false, false}, {"tensor bytes", true, false}, {"step", true, false}, {"evaluated in", true, false}};
  for (const auto& [name, engine] :
       {std::pair("closed form", report.engines->closed_form), std::pair("simulate", report.engines->simulate)}) {
    section.table.rows.push_back({{name, Grouped(engine.allocated.count()),
                                   fmt::format("{} ns", Grouped(engine.step.count())), Text(engine.evaluation)},
                                  std::nullopt});
  }
  return section;
}

Section LintsSection(const PredictionReport& report) {
  Section section{"Remarks on the job", "", {}, {}};
  for (const Lint& lint : report.lints) {
    section.remarks.push_back(LintRemark(lint));
  }
  return section;
}

Section CapacitySection(const CapacityReport& capacity) {
  Section section{fmt::format("Under a limit of {}", Text(capacity.capacity)), "", {}, {}};
  Remark remark{"outcome", "fine", "", Tone::good};
  if (capacity.outcome == "flushed") {
    remark = {"outcome", fmt::format("fine, after the allocator gave back its cache {} times", capacity.cache_flushes),
              "each flush stalls the device; a little more memory avoids it", Tone::warning};
  } else if (capacity.outcome == "out_of_memory") {
    remark = {"outcome",
              fmt::format("out of memory: a request of {} {} fails after {}", AllDigits(capacity.request),
                          InPhaseText(capacity.at), Counted(capacity.cache_flushes, "cache flush")),
              "", Tone::bad};
  }
  section.remarks.push_back(std::move(remark));
  return section;
}

Section ProvenanceSection(const PredictionReport& report) {
  Section section{"Where the numbers come from", fmt::format("tidemark {}", report.provenance.version), {}, {}};
  const auto add = [&](const char* label, const std::vector<std::string>& entries, Tone tone) {
    if (!entries.empty()) {
      section.remarks.push_back({label, fmt::format("{}", fmt::join(entries, "; ")), "", tone});
    }
  };
  add("modelled", report.provenance.modelled, Tone::neutral);
  add("observed", report.provenance.observed, Tone::neutral);
  add("calibrated", report.provenance.calibrated, Tone::neutral);
  add("assumed", report.provenance.assumed, Tone::warning);
  add("not modelled", report.provenance.not_modelled, Tone::neutral);
  return section;
}

}  // namespace

Document MakeDocument(const PredictionReport& report) {
  Document document{report.title, Verdict(report), Good(report) ? Tone::good : Tone::bad, Figures(report), {}, {}};
  if (const RoleReport& worst = report.Worst(); worst.trace) {
    document.sparklines = MemorySparklines({{"memory", &*worst.trace}});
  }
  if (report.capacity) {
    document.sections.push_back(CapacitySection(*report.capacity));
  }
  document.sections.push_back(CategorySection(report.Worst()));
  if (!report.Worst().peak.live.empty()) {
    document.sections.push_back(LiveSection(report.Worst()));
  }
  if (!report.Worst().phases.empty()) {
    document.sections.push_back(PhasesSection(report.Worst()));
  }
  if (!report.instants.empty()) {
    document.sections.push_back(InstantsSection("Named instants", report.Worst(), report.instants));
  }
  if (report.Steps() > 1) {
    document.sections.push_back(StepsSection(report));
  }
  document.sections.push_back(TimeSection(report));
  if (!report.communication.empty()) {
    document.sections.push_back(CommunicationSection(report));
  }
  if (report.roles.size() > 1) {
    document.sections.push_back(RolesSection(report));
  }
  if (report.engines) {
    document.sections.push_back(EnginesSection(report));
  }
  if (!report.lints.empty()) {
    document.sections.push_back(LintsSection(report));
  }
  document.sections.push_back(ProvenanceSection(report));
  return document;
}

}  // namespace tidemark
