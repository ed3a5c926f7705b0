// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reports/summarise/explanation.h"
#include "reports/summarise/explanation_causes.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostCauses = 3;

Bytes Size(Bytes bytes) { return bytes < Bytes(0) ? Bytes(0) - bytes : bytes; }

/// What a key of the job means, for those who do not know it. A key that is not here explains itself or is left alone.
std::string_view Meaning(std::string_view key, bool pipeline) {
  if (pipeline && key == "accumulation_steps") {
    return "how many microbatches go through the pipeline, their gradients added up, before the weights change once";
  }
  constexpr std::array kMeanings = {
      std::pair("accumulation_steps",
                "how many microbatches a GPU works through, adding up their gradients, before the weights change once"),
      std::pair("micro_batch_size", "how many sequences a GPU works through at a time"),
      std::pair("precision.accumulate", "the number format in which gradients are added up"),
      std::pair("layout.dp", "how many GPUs work on different data"),
      std::pair("layout.tp", "how many GPUs share each layer"),
      std::pair("layout.pp", "how many groups of GPUs share the layers among them"),
      std::pair("strategy", "the way in which GPUs share weights and exchange gradients")};
  const auto found =
      std::find_if(kMeanings.begin(), kMeanings.end(), [&](const auto& entry) { return entry.first == key; });
  return found == kMeanings.end() ? std::string_view() : found->second;
}

std::string_view NounOf(Category category) {
  switch (category) {
    case Category::parameter:
      return "weights";
    case Category::gradient:
      return "gradients";
    case Category::accumulator:
      return "the running sum of gradients";
    case Category::optimizer:
      return "the optimizer's state";
    case Category::activation:
      return "activations (results of the forward pass that the backward pass needs)";
    case Category::tp_gather:
      return "inputs gathered from the GPUs that share a layer";
    case Category::bucket:
      return "communication buffers";
    case Category::logits:
      return "logits (a score for each word of the vocabulary, for each token)";
    case Category::representation_cache:
      return "cached representations";
    case Category::rng:
      return "states of the random generator";
    case Category::workspace:
      return "scratch memory";
    case Category::input:
      break;
  }
  return "inputs";
}

/// "first" of 0, "21st" of 20.
std::string Ordinal(std::int64_t number) {
  constexpr std::array<const char*, 10> kWords = {"first", "second",  "third",  "fourth", "fifth",
                                                  "sixth", "seventh", "eighth", "ninth",  "tenth"};
  if (number < static_cast<std::int64_t>(kWords.size())) {
    return kWords.at(static_cast<std::size_t>(number));
  }
  const std::int64_t nth = number + 1, last = nth / 10 % 10 == 1 ? 0 : nth % 10;
  return fmt::format("{}{}", nth, last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

/// "the backward pass of the first microbatch", "the optimizer's update". `count` microbatches make a step.
std::string PlaceText(const PhasePlace& place, std::int64_t count) {
  const std::string& phase = place.phase;
  const std::string what = phase == "forward"      ? "the forward pass"
                           : phase == "backward"   ? "the backward pass"
                           : phase == "optimizer"  ? "the optimizer's update"
                           : phase == "load"       ? "the loading"
                           : phase == "reduce"     ? "the reduction of gradients"
                           : phase == "gather"     ? "the gathering of weights"
                           : phase == "A_forward"  ? "the forward pass that only makes representations"
                           : phase == "B_loss"     ? "the loss"
                           : phase == "C_forward"  ? "the forward pass done again"
                           : phase == "C_backward" ? "the backward pass"
                                                   : "the phase " + phase;
  if (place.microbatch < 0) {
    return what;
  }
  if (!place.side.empty()) {
    return fmt::format("{} of the {} chunk of {} inputs", what, Ordinal(place.microbatch), place.side);
  }
  const bool last = count > 1 && place.microbatch == count - 1;
  return count == 1 ? what + " of the only microbatch"
                    : fmt::format("{} of the {} microbatch", what, last ? "last" : Ordinal(place.microbatch));
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
      const auto value = [](const std::string& text) { return text == "-" ? std::string("no value") : text; };
      parts.push_back(fmt::format("{} {} instead of {}{}", change.key, value(change.values[1]), value(change.values[0]),
                                  meaning.empty() ? "" : fmt::format(" ({})", meaning)));
    }
    return "With " + fmt::format("{}", fmt::join(parts, " and "));
  }

  std::string FitText() const {
    const bool fitted = before_.report.Fits(), fits = after_.report.Fits();
    const Bytes memory = after_.report.device_memory, need = after_.report.Worst().device.high;
    const std::string need_text = fmt::format("up to {} with the driver and the allocator's cache, on a device of {}",
                                              tidemark::Text(need), tidemark::Text(memory));
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
    return fmt::format(
        "{}, the fullest GPU needs {} {} memory: {} for tensors at its fullest moment instead of {}, and {}.",
        ChangeText(), tidemark::Text(Size(after - before)), after > before ? "more" : "less", tidemark::Text(after),
        tidemark::Text(before), FitText());
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
    return fmt::format("alive from {} {}", born.empty() ? "before the step" : born,
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
    return copies != fewer && fewer > 0 ? fmt::format("{}, those of {}", tidemark::Text(less), fewer)
                                        : tidemark::Text(less);
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
        return Nanos(side.report.time.step.count() / std::max<std::int64_t>(1, side.microbatches));
      };
      const double tokens = after_.tokens / before_.tokens;
      text += before_.microbatches == after_.microbatches
                  ? fmt::format(", for {:.3g} times the tokens", tokens)
                  : fmt::format(", for {:.3g} times the tokens: {} for each microbatch instead of {}", tokens,
                                tidemark::Text(per(after_)), tidemark::Text(per(before_)));
      return text + ".";
    }
    return text + fmt::format(" for the same tokens, {}.", WhatTakesTime());
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
      told.push_back(
          fmt::format("{} ({} instead of {})", time.cause, tidemark::Text(time.after), tidemark::Text(time.before)));
    }
    return fmt::format("most of the difference in {}", fmt::join(told, " and "));
  }

  /// What a remark on the second job advises that the first did not need, else what was tried and found to help.
  std::string TrySentence() const {
    for (const Lint& lint : after_.report.lints) {
      const bool old = std::any_of(before_.report.lints.begin(), before_.report.lints.end(),
                                   [&](const Lint& other) { return other.id == lint.id; });
      if (!old && !lint.hint.empty() && lint.severity != "note") {
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
