// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/role_sections.h"

namespace tidemark {
namespace {

std::string ChangeText(const SolvedOption& option) {
  return option.change.empty() ? "the job as it is" : option.change;
}

std::string Ways(std::int64_t count) { return Counted(count, "way"); }

/// What the fastest way may fill, or else what needs least, or the job itself.
std::string MemoryText(const Solution& solution) {
  const Bytes usable = !solution.options.empty() ? solution.options.front().cost.usable
                       : solution.nearest        ? solution.nearest->cost.usable
                       : solution.now            ? solution.now->usable
                                                 : solution.memory;
  return UsableMemoryText(usable, solution.memory);
}

std::string NothingFits(const Solution& solution) {
  if (solution.refused == solution.size && !solution.refusals.empty()) {
    return fmt::format("NOTHING TO CHOOSE FROM: {} tried, and refused; most often: {}", Ways(solution.size),
                       solution.refusals.front().reason);
  }
  const std::string nearest = solution.nearest ? fmt::format("; {} needs least, {}", ChangeText(*solution.nearest),
                                                             Text(solution.nearest->cost.device.high))
                                               : "";
  const std::string refused = solution.refused > solution.size / 2
                                  ? fmt::format("; {} of {} ways are refused, see the remarks",
                                                Grouped(solution.refused), Grouped(solution.size))
                                  : "";
  return fmt::format("NOTHING FITS in {}{}{}{}", MemoryText(solution),
                     solution.altering > 0 ? " that computes the job's numbers" : "", nearest, refused);
}

std::string Verdict(const Solution& solution) {
  const std::string cut_short = solution.complete ? "" : "INTERRUPTED, so far: ";
  if (solution.options.empty()) {
    const std::int64_t may_fit = solution.fit + solution.near;
    return !solution.complete && may_fit > 0
               ? fmt::format("INTERRUPTED before the fastest was found; fit in {}, or may: {}", MemoryText(solution),
                             Ways(may_fit))
               : cut_short + NothingFits(solution);
  }
  const SolvedOption& best = solution.options.front();
  return fmt::format("{}FITS in {}: {}, {} a step", cut_short, MemoryText(solution), ChangeText(best),
                     Text(best.cost.step));
}

std::vector<Figure> Figures(const Solution& solution) {
  std::vector<Figure> figures;
  if (!solution.options.empty()) {
    const SolvedOption& best = solution.options.front();
    figures = {{"fastest step", Text(best.cost.step),
                fmt::format("{} tokens/s per GPU", Grouped(std::llround(best.tokens_per_s_per_gpu)))},
               {"peak of tensors", Text(best.cost.allocated), AllDigits(best.cost.allocated)},
               {"device used", Text(best.cost.device.expected), BandText(best.cost.device)}};
  }
  if (solution.now) {
    figures.push_back({"the job as it is", Text(solution.now->step),
                       fmt::format("{} of tensors, {}{}", Text(solution.now->allocated),
                                   !solution.now->fits ? "does not fit"
                                   : solution.begins   ? "fits"
                                                       : "fits, but for its first steps",
                                   solution.same_batch ? "" : "; of another global batch")});
  } else {
    figures.push_back({"the job as it is", "refused", solution.refusal});
  }
  figures.push_back(
      {"ways looked at", Grouped(solution.size),
       fmt::format("{} fit, {} may, {} do not, {} refused, in {:.1f} s", Grouped(solution.fit), Grouped(solution.near),
                   Grouped(solution.too_large), Grouped(solution.refused), solution.seconds)});
  return figures;
}

Section OptionsSection(const Solution& solution) {
  Section section{"The fastest, and the next best of other kinds", "each differs from the first in other keys", {}, {}};
  section.table.wide = true;
  section.table.columns = {
      {"", true, false},     {"change to the job", false, true}, {"peak", true, false},      {"device", true, false},
      {"step", true, false}, {"tokens/s per GPU", true, false},  {"differs in", false, true}};
  for (const SolvedOption& option : solution.options) {
    const std::string label = std::to_string(section.table.rows.size() + 1);
    section.table.rows.push_back(
        {{label, ChangeText(option), Text(option.cost.allocated), Text(option.cost.device.high), Text(option.cost.step),
          Grouped(std::llround(option.tokens_per_s_per_gpu)), fmt::format("{}", fmt::join(option.differs_in, ", "))},
         std::nullopt});
    const bool warned = !option.lints.empty();
    Remark remark{label, ChangeText(option),
                  warned ? fmt::format("new warnings: {}", fmt::join(option.lints, ", ")) : "",
                  warned ? Tone::warning : Tone::neutral};
    remark.command = option.command;
    section.remarks.push_back(std::move(remark));
  }
  return section;
}

Section Hints(const Solution& solution) {
  Section section{"Remarks", "", {}, {}};
  section.remarks.push_back({"searched",
                             fmt::format("{} at {} ranks and a global batch of {}", fmt::join(solution.varied, ", "),
                                         Grouped(solution.ranks), Grouped(solution.global_batch)),
                             "--keep KEY leaves one as it is, --vary adds another; all else is the job's",
                             Tone::neutral});
  if (solution.altering > 0) {
    section.remarks.push_back(
        {"other numbers",
         fmt::format("left out: {} that fit but sum gradients in another dtype, or are known to be wrong",
                     Ways(solution.altering)),
         "tidemark sweep lists them", Tone::neutral});
  }
  if (solution.tight > 0) {
    section.remarks.push_back(
        {"too tight",
         fmt::format("left out: {} that fit but for what the allocator keeps in its cache, or but for the first steps",
                     Ways(solution.tight)),
         "tidemark predict says how much that is; allocator.expandable_segments may save it", Tone::neutral});
  }
  for (const SweepRefusal& refusal : solution.refusals) {
    section.remarks.push_back(
        {"refused", fmt::format("{}: {}", Ways(refusal.count), refusal.reason), "", Tone::neutral});
  }
  return section;
}

}  // namespace

Document MakeDocument(const Solution& solution) {
  const Tone tone = solution.options.empty() ? Tone::bad : Tone::good;
  Document document{solution.title, Verdict(solution), tone, Figures(solution), {}, {}};
  if (!solution.options.empty()) {
    document.sections.push_back(OptionsSection(solution));
  }
  document.sections.push_back(Hints(solution));
  return document;
}

}  // namespace tidemark
