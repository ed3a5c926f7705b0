// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/role_sections.h"

namespace tidemark {
namespace {

std::string Verdict(const Advice& advice) {
  const std::string now = fmt::format("{} in {}", advice.now.fits ? "FITS" : "DOES NOT FIT",
                                      UsableMemoryText(advice.now.usable, advice.memory));
  if (advice.saves == 0) {
    return now + "; no single change saves memory";
  }
  return advice.now.fits ? fmt::format("{}; single changes that save memory: {}", now, Grouped(advice.saves))
                         : fmt::format("{}; {} of {} single changes that save memory make it fit", now,
                                       Grouped(advice.saves_and_fits), Grouped(advice.saves));
}

std::vector<Figure> Figures(const Advice& advice) {
  return {{"peak of tensors", Text(advice.now.allocated), AllDigits(advice.now.allocated)},
          {"device used", Text(advice.now.device.expected), BandText(advice.now.device)},
          {"step time", Text(advice.now.step), "steady step"},
          {"changes tried", Grouped(advice.tried),
           fmt::format("{} refused, {} with wrong numbers, {} without effect, {} of no use", Grouped(advice.refused),
                       Grouped(advice.wrong), Grouped(advice.no_effect), Grouped(advice.worse))}};
}

std::string Notes(const AdvisedOption& option) {
  std::vector<std::string> notes = option.lints;
  if (option.alters && option.saved <= Bytes(0)) {  // those that save have a table of their own
    notes.insert(notes.begin(), "other numbers");
  }
  return fmt::format("{}", fmt::join(notes, ", "));
}

std::string RateText(const AdvisedOption& option) {
  const auto rate = option.SavedPerMillisecond();
  return rate ? fmt::format("{}/ms", Text(Bytes(std::llround(*rate)))) : "free";
}

/// What a table says of its options beyond peak and step.
struct Shown {
  std::string title, subtitle;
  bool rate = false;
};

Section OptionsSection(Shown shown, const std::vector<AdvisedOption>& options) {
  Section section{std::move(shown.title), std::move(shown.subtitle), {}, {}};
  const bool notes =
      std::any_of(options.begin(), options.end(), [](const AdvisedOption& option) { return !Notes(option).empty(); });
  section.table.wide = true;
  section.table.columns = {{"", true, false},           {"change", false, true}, {"peak", true, false},
                           {"difference", true, false}, {"step", true, false},   {"difference", true, false}};
  if (shown.rate) {
    section.table.columns.push_back({"saved for", true, false});
  }
  section.table.columns.push_back({"fits", false, false});
  if (notes) {
    section.table.columns.push_back({"note", false, true});
  }
  for (const AdvisedOption& option : options) {
    const std::string label = std::to_string(section.table.rows.size() + 1);
    std::vector<std::string> cells = {label,
                                      option.change,
                                      Text(option.cost.allocated),
                                      Signed(Bytes() - option.saved),
                                      Text(option.cost.step),
                                      Signed(option.lost)};
    if (shown.rate) {
      cells.push_back(RateText(option));
    }
    cells.push_back(fmt::format("{}{}", option.cost.fits ? "yes" : "no", option.cost.simulated ? "" : "?"));
    if (notes) {
      cells.push_back(Notes(option));
    }
    section.table.rows.push_back({std::move(cells), std::nullopt});
    Remark remark{label, option.change, "", Tone::neutral};
    remark.command = option.command;
    section.remarks.push_back(std::move(remark));
  }
  return section;
}

void AddOptions(Shown shown, const std::vector<AdvisedOption>& options, Document& document) {
  if (!options.empty()) {
    document.sections.push_back(OptionsSection(std::move(shown), options));
  }
}

Section HintsSection(const Advice& advice) {
  Section section{"Remarks", "", {}, {}};
  const auto any = [&](auto says) {
    return std::any_of(advice.saving.begin(), advice.saving.end(), says) ||
           std::any_of(advice.faster.begin(), advice.faster.end(), says);
  };
  if (any([](const AdvisedOption& option) { return option.alters; })) {
    section.remarks.push_back({"other numbers", "dtypes, loss or optimizer are others with it",
                               "see whether the loss still falls as it should", Tone::warning});
  }
  if (any([](const AdvisedOption& option) { return !option.lints.empty(); })) {
    section.remarks.push_back({"warnings", "a note in the last column is a warning that the job does not have now",
                               "the option's command tells what it is about", Tone::warning});
  }
  if (!advice.now.simulated || any([](const AdvisedOption& option) { return !option.cost.simulated; })) {
    section.remarks.push_back(
        {"yes? no?", "a step of so many microbatches was priced by the closed form, without its allocator's waste",
         "near the limit the option's command, which simulates, may say otherwise", Tone::neutral});
  }
  if (advice.left_out > 0) {
    section.remarks.push_back({"left out", fmt::format("{} more changes of these kinds", Grouped(advice.left_out)),
                               "--top shows more", Tone::neutral});
  }
  section.remarks.push_back({"together", "each change is priced alone; two of them need not save the sum of both",
                             "add --set of the one you take to tidemark advise, and ask again", Tone::neutral});
  return section;
}

}  // namespace

Document MakeDocument(const Advice& advice) {
  Document document{advice.title, Verdict(advice), advice.now.fits ? Tone::good : Tone::bad, Figures(advice), {}, {}};
  std::vector<AdvisedOption> alike = advice.saving;
  const auto altering =
      std::stable_partition(alike.begin(), alike.end(), [](const AdvisedOption& o) { return !o.alters; });
  const std::vector<AdvisedOption> other(altering, alike.end());
  alike.erase(altering, alike.end());
  const std::string order = "what costs no time first, then by bytes saved for time lost";
  AddOptions({"Less memory", order, true}, alike, document);
  AddOptions({"Less memory, with other numbers", order, true}, other, document);
  AddOptions({"Faster, for as much or more memory", "those that fit first, then by time won for bytes needed", false},
             advice.faster, document);
  document.sections.push_back(HintsSection(advice));
  return document;
}

}  // namespace tidemark
