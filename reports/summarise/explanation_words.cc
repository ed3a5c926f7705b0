// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "models/findings/findings.h"
#include "models/job/key_meanings.h"
#include "reports/summarise/explanation.h"
#include "reports/summarise/explanation_causes.h"
#include "reports/summarise/explanation_phrases.h"
#include "traces/place.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostCauses = 3;

Bytes Size(Bytes bytes) { return bytes < Bytes(0) ? Bytes(0) - bytes : bytes; }

std::string_view Meaning(std::string_view key, bool pipeline) {
  return pipeline && key == "accumulation_steps"
             ? "how many microbatches go through the pipeline, their gradients added up, before the weights change once"
             : MeaningOf(key);
}

class Words {
 public:
  explicit Words(const Explanation& explanation)
      : explanation_(explanation),
        before_(explanation.before),
        after_(explanation.after),
        causes_(before_.peak(), after_.peak()) {}

  std::string Text() const {
    std::string text = ChangeSentence();
    for (const std::string& sentence : {WhySentence(), MomentSentence(), TimeSentence(), TrySentence()}) {
      text += sentence.empty() ? "" : " " + sentence;
    }
    return text;
  }

 private:
  /// "4"; what another spelling of the key says on a side that does not have it: sequence_length for its mean, and the
  /// other way round.
  std::string ValueOf(const JobDifference& change, std::size_t side) const {
    if (change.values[side] != "-") {
      return change.values[side];
    }
    std::vector<std::string> parts;
    for (const JobDifference& other : explanation_.changes) {
      const bool whole = change.key.starts_with(other.key + "."), part = other.key.starts_with(change.key + ".");
      if ((whole || part) && other.values[side] != "-") {
        parts.push_back(whole ? other.values[side]
                              : fmt::format("{} {}", other.key.substr(change.key.size() + 1), other.values[side]));
      }
    }
    return parts.empty() ? "no value" : fmt::format("{}", fmt::join(parts, ", "));
  }

  /// "With accumulation_steps 4 instead of 1 (...)"
  std::string ChangeText() const {
    if (explanation_.changes.empty()) {
      return "Between two equal jobs";
    }
    if (explanation_.asked == 0) {
      return fmt::format("From '{}' to '{}'", before_.report.title, after_.report.title);
    }
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < explanation_.asked; ++i) {
      const JobDifference& change = explanation_.changes[i];
      const std::string_view meaning = Meaning(change.key, after_.stages > 1);
      parts.push_back(fmt::format("{} {} instead of {}{}", change.key, ValueOf(change, 1), ValueOf(change, 0),
                                  meaning.empty() ? "" : fmt::format(" ({})", meaning)));
    }
    return "With " + fmt::format("{}", fmt::join(parts, " and "));
  }

  std::string FitText() const {
    const bool fitted = before_.report.Fits(), fits = after_.report.Fits();
    const Bytes need = after_.report.Worst().device.high;
    const std::string need_text =
        fmt::format("up to {} with the driver and the allocator's cache, on a device of {}", tidemark::Text(need),
                    UsableMemoryText(after_.report.usable_memory, after_.report.device_memory));
    if (fitted == fits) {
      return fits ? fmt::format("it still fits ({})", need_text)
                  : fmt::format("it does not fit, as before ({})", need_text);
    }
    return fits ? fmt::format("it now fits ({})", need_text) : fmt::format("it no longer fits ({})", need_text);
  }

  std::string ChangeSentence() const {
    const Bytes before = before_.peak().allocated, after = after_.peak().allocated;
    if (before == after) {
      return fmt::format(
          "{}, the fullest GPU needs exactly as much memory: {} for tensors at its fullest moment, and {}.",
          ChangeText(), tidemark::Text(after), FitText());
    }
    const bool alike = tidemark::Text(after) == tidemark::Text(before);
    return fmt::format("{}, the fullest GPU needs {} {} memory: {} for tensors at its fullest moment{}, and {}.",
                       ChangeText(), tidemark::Text(Size(after - before)), after > before ? "more" : "less",
                       tidemark::Text(after),
                       alike ? ", to three digits as before" : " instead of " + tidemark::Text(before), FitText());
  }

  /// 16 of "1/2 over tp, 1/8 over dp".
  static std::int64_t PartsOf(const std::string& sharding) {
    std::int64_t parts = 1;
    for (std::size_t at = sharding.find("1/"); at != std::string::npos; at = sharding.find("1/", at + 1)) {
      parts *= std::max<std::int64_t>(1, std::strtoll(sharding.c_str() + at + 2, nullptr, 10));
    }
    return parts;
  }

  /// ", whole on every GPU": where a tensor has a whole.
  static std::string ShardingText(const std::string& sharding, const ExplainedSide& side) {
    if (sharding == "whole") {
      return side.stages > 1 ? ", whole for all layers that the GPU holds" : ", whole on every GPU";
    }
    if (sharding.empty() || sharding == "own") {
      return {};
    }
    return sharding == "part" ? ", a part on each GPU" : fmt::format(", 1/{} on each GPU", PartsOf(sharding));
  }

  static std::string LifeText(const Cause& cause, std::int64_t microbatches) {
    const std::string born = cause.born.phase.empty() ? "" : PlaceText(cause.born, microbatches);
    const std::string died = cause.died.phase.empty() ? "" : PlaceText(cause.died, microbatches);
    if (born.empty() && !cause.until) {
      return "there all the time";
    }
    if (born == died && !born.empty()) {
      return "alive within " + born;
    }
    return fmt::format("alive from {} {}", born.empty() ? kBeforeStep : born,
                       !cause.until   ? "on, beyond the step"
                       : died.empty() ? "to the end of the step"
                                      : "to " + died);
  }

  static std::string CopiesText(std::int64_t copies) {
    return copies > 1 ? fmt::format(", those of {} microbatches at once", copies) : "";
  }

  /// What the side that has less of it has.
  std::string ThanText(const Cause& cause) const {
    const bool grows = cause.grows();
    const Bytes less = grows ? cause.before : cause.after;
    const std::int64_t copies = grows ? cause.copies_after : cause.copies_before;
    const std::int64_t fewer = grows ? cause.copies_before : cause.copies_after;
    if (less == Bytes(0)) {
      return "none";
    }
    if (cause.changes()) {
      return fmt::format("{} in {}{}", tidemark::Text(less), grows ? cause.dtype_before : cause.dtype_after,
                         ShardingText(grows ? cause.sharding_before : cause.sharding_after, grows ? before_ : after_));
    }
    if (copies != fewer && fewer > 0) {
      return fmt::format("{}, those of {}", tidemark::Text(less), fewer);
    }
    const Bytes more = grows ? cause.after : cause.before;
    return tidemark::Text(less) == tidemark::Text(more) ? tidemark::Text(more - less) + " less" : tidemark::Text(less);
  }

  std::string CauseText(const Cause& cause) const {
    const bool grows = cause.grows();
    const ExplainedSide& side = grows ? after_ : before_;
    return fmt::format("{}, {} in {}{}{}, {} (at the fullest moment {}: {})", NounOf(cause.category),
                       tidemark::Text(grows ? cause.after : cause.before), cause.dtype(),
                       ShardingText(cause.sharding(), side),
                       CopiesText(grows ? cause.copies_after : cause.copies_before), LifeText(cause, side.microbatches),
                       grows ? "before" : "now", ThanText(cause));
  }

  /// The largest causes, until they make up most of the difference.
  std::vector<std::string> CausesThat(bool grow, Bytes most) const {
    std::vector<std::string> texts;
    Bytes told;
    for (const Cause* cause : causes_.ThatGrow(grow)) {
      const bool small = told * 10 > most * 9 || Size(cause->delta()) * 20 < most;
      if (texts.size() == kMostCauses || (small && !texts.empty())) {
        break;
      }
      told += Size(cause->delta());
      texts.push_back(CauseText(*cause));
    }
    return texts;
  }

  Bytes SumOf(bool grow) const {
    Bytes sum;
    for (const Cause* cause : causes_.ThatGrow(grow)) {
      sum += Size(cause->delta());
    }
    return sum;
  }

  std::string WhySentence() const {
    const Bytes up = SumOf(true), down = SumOf(false);
    if (up == Bytes(0) && down == Bytes(0)) {
      return "At that moment as much of each kind of tensor is alive." + UnchangedSentence();
    }
    const bool grows = up >= down;
    std::string text = fmt::format("What is {}: {}.", grows ? "added" : "saved",
                                   fmt::join(CausesThat(grows, grows ? up : down), "; "));
    const Bytes against = grows ? down : up, most = grows ? up : down;
    if (against * 4 > most) {
      text += fmt::format(" Against that, {}: {}.", grows ? "there is less of" : "there is more of",
                          fmt::join(CausesThat(!grows, against), "; "));
    }
    return text + UnchangedSentence();
  }

  /// With another number of microbatches a reader looks for sums of gradients: where they are there in both, it says
  /// so.
  std::string UnchangedSentence() const {
    if (before_.microbatches == after_.microbatches) {
      return {};
    }
    std::vector<std::string> texts;
    for (const Cause* cause : causes_.Unchanged()) {
      const bool sums = cause->category == Category::gradient || cause->category == Category::accumulator;
      if (sums && cause->after * 20 > after_.peak().allocated) {
        texts.push_back(fmt::format("{}, {} in {}{}, {}", NounOf(cause->category), tidemark::Text(cause->after),
                                    cause->dtype(), ShardingText(cause->sharding(), after_),
                                    LifeText(*cause, after_.microbatches)));
      }
    }
    return texts.empty() ? "" : fmt::format(" There in both: {}.", fmt::join(texts, "; "));
  }

  std::string MomentOf(const ExplainedSide& side) const {
    const Peak& peak = side.peak();
    const std::string place = PlaceText({peak.phase, peak.microbatch, -1, peak.side}, side.microbatches);
    return side.report.roles.size() > 1
               ? fmt::format("{}, on the GPUs of {} of the pipeline", place, side.report.Worst().role)
               : place;
  }

  std::string MomentSentence() const {
    const std::string before = MomentOf(before_), after = MomentOf(after_);
    return before == after ? fmt::format("Memory is fullest in {}, in both.", after)
                           : fmt::format("Memory is fullest in {}; before, in {}.", after, before);
  }

  std::string TimeSentence() const {
    const Nanos before = before_.report.time.step, after = after_.report.time.step;
    if (tidemark::Text(before) == tidemark::Text(after)) {
      return fmt::format("A step takes as long: {}.", tidemark::Text(after));
    }
    std::string text = fmt::format("A step takes {} instead of {}", tidemark::Text(after), tidemark::Text(before));
    constexpr double kRounding = 1e-9;
    if (std::abs(after_.tokens - before_.tokens) > kRounding * before_.tokens && before_.tokens > 0) {
      const auto per = [](const ExplainedSide& side) {
        return tidemark::Text(Nanos(side.report.time.step.count() / std::max<std::int64_t>(1, side.microbatches)));
      };
      const double tokens = after_.tokens / before_.tokens;
      text += before_.microbatches == after_.microbatches
                  ? fmt::format(", for {:.3g} times the tokens", tokens)
                  : fmt::format(", for {:.3g} times the tokens: {} for each microbatch{}", tokens, per(after_),
                                per(after_) == per(before_) ? " as before" : " instead of " + per(before_));
      return text + ".";
    }
    // Times by cause are those of the role that ends a step: the difference between two stages has no cause.
    const std::string &old_role = before_.report.time.role, &role = after_.report.time.role;
    const bool pipelines = before_.report.roles.size() > 1 && after_.report.roles.size() > 1;
    return text + (pipelines && role != old_role
                       ? fmt::format(" for the same tokens. It ends on {}; before, on {}: their times by cause tell "
                                     "nothing of the difference.",
                                     role, old_role)
                       : fmt::format(" for the same tokens, {}.", WhatTakesTime()));
  }

  /// The causes whose time changed as the step's did, largest first, up to more than half of the difference.
  std::string WhatTakesTime() const {
    const auto size = [](const ExplainedTime& time) { return std::abs(time.delta().count()); };
    const bool longer = explanation_.step_delta() > Nanos(0);
    std::vector<ExplainedTime> same;
    std::int64_t other_way = 0;
    for (const ExplainedTime& time : explanation_.times) {
      if ((time.delta() > Nanos(0)) == longer && time.delta() != Nanos(0)) {
        same.push_back(time);
      } else {
        other_way += size(time);
      }
    }
    std::stable_sort(same.begin(), same.end(), [&](const auto& a, const auto& b) { return size(a) > size(b); });
    std::vector<std::string> told;
    std::int64_t sum = 0;
    const std::int64_t all = std::abs(explanation_.step_delta().count()) + other_way;
    for (const ExplainedTime& time : same) {
      if (2 * sum > all) {
        break;
      }
      sum += size(time);
      told.push_back(fmt::format("{} ({})", time.cause, InsteadOf(time.after, time.before)));
    }
    return fmt::format("most of the difference in {}", fmt::join(told, " and "));
  }

  /// What a remark on the second job's memory advises that the first did not need, else what was tried and found to
  /// help.
  std::string TrySentence() const {
    for (const Lint& lint : after_.report.lints) {
      const bool old = std::any_of(before_.report.lints.begin(), before_.report.lints.end(),
                                   [&](const Lint& other) { return other.id == lint.id; });
      const KnownFinding* finding = FindKnownFinding(lint.id);
      if (!old && !lint.hint.empty() && lint.severity != "note" && finding != nullptr && finding->about_memory) {
        return fmt::format("To try: {}.", lint.hint);
      }
    }
    if (!explanation_.suggestion) {
      return {};
    }
    const Suggestion& suggestion = *explanation_.suggestion;
    return fmt::format("To try: {} brings the fullest moment down to {}, at {} a step.", suggestion.change,
                       tidemark::Text(suggestion.allocated), tidemark::Text(suggestion.step));
  }

  const Explanation& explanation_;
  const ExplainedSide &before_, &after_;
  Causes causes_;
};

}  // namespace

std::string ExplainInWords(const Explanation& explanation) { return Words(explanation).Text(); }

}  // namespace tidemark
