// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "reports/summarise/comparison.h"

namespace tidemark {
namespace {

using Kind = MemoryCauseKind;

constexpr const char* kOutside = "outside of all phases";
constexpr std::size_t kNamed = 4;  ///< tensors that a sentence names

template <class Quantity>
Quantity Size(Quantity quantity) {
  return quantity < Quantity(0) ? Quantity(0) - quantity : quantity;
}

template <class Quantity>
std::string Signed(Quantity quantity) {
  return (quantity > Quantity(0) ? "+" : "") + Text(quantity);
}

std::string Times(std::int64_t count) { return count == 1 ? "once" : fmt::format("{} times", Grouped(count)); }

std::string Tensor(const MemoryCause& cause) { return fmt::format("{} ({})", cause.tensor, Name(cause.category)); }

/// "a, b, c and 3 more"
std::string Listed(const std::vector<std::string>& names) {
  const std::size_t shown = names.size() > kNamed + 1 ? kNamed : names.size();
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

std::string InPlace(const PhasePlace& place) {
  const std::string text = PlaceInWords(place);
  return text == kOutside ? text : "in " + text;
}

std::string LoneSentence(const MemoryCause& cause) {
  const bool predicted = cause.predicted_bytes > Bytes(0);
  const Bytes bytes = predicted ? cause.predicted_bytes : cause.measured_bytes;
  const std::string what =
      cause.kind == Kind::workspace ? fmt::format("{}, scratch memory of a library,", cause.tensor) : Tensor(cause);
  return fmt::format("{} is {}: {} {}", what,
                     predicted ? "predicted, but was not measured" : "measured, but not predicted",
                     cause.lives == 1 ? Text(bytes) : fmt::format("{} {}, first", Times(cause.lives), Text(bytes)),
                     InPlace(cause.place));
}

std::string MomentText(const MemoryCause::Moment& moment) {
  if (moment.never) {
    return "never";
  }
  return fmt::format("{}{}", InPlace(moment.place),
                     moment.after.empty() ? " before all else" : fmt::format(", after {} is allocated", moment.after));
}

std::string LifetimeSentence(const MemoryCause& cause) {
  const bool freed = cause.kind == Kind::freed_later || cause.kind == Kind::freed_earlier;
  const bool later = cause.kind == Kind::freed_later || cause.kind == Kind::allocated_later;
  return fmt::format("{} is {} {} than predicted ({}): {} instead of {}", Tensor(cause), freed ? "freed" : "allocated",
                     later ? "later" : "earlier", Times(cause.lives), MomentText(cause.measured),
                     MomentText(cause.predicted));
}

std::string SizeSentence(const MemoryCause& cause) {
  if (cause.kind == Kind::dtype) {
    return fmt::format("{} is {} ({}) where {} ({}) was predicted ({})", Tensor(cause), Name(cause.measured_dtype),
                       Text(cause.measured_bytes), Name(cause.predicted_dtype), Text(cause.predicted_bytes),
                       Times(cause.lives));
  }
  return fmt::format("{} has {} bytes where {} were predicted ({})", Tensor(cause),
                     Grouped(cause.measured_bytes.count()), Grouped(cause.predicted_bytes.count()), Times(cause.lives));
}

std::string OtherMomentSentence(const MemoryCause& cause) {
  const bool measured = cause.at_peak < Bytes(0);  // the measured side peaks lower
  return fmt::format("the {} side peaks at another moment than the {} one, which does so {}: {}, it has {} more",
                     measured ? "measured" : "predicted", measured ? "predicted" : "measured",
                     MomentText(measured ? cause.predicted : cause.measured),
                     MomentText(measured ? cause.measured : cause.predicted), Text(Size(cause.at_peak)));
}

std::string SentenceOf(const MemoryCause& cause) {
  switch (cause.kind) {
    case Kind::missing:
    case Kind::extra:
    case Kind::workspace:
      return LoneSentence(cause);
    case Kind::size:
    case Kind::dtype:
      return SizeSentence(cause);
    case Kind::freed_later:
    case Kind::freed_earlier:
    case Kind::allocated_later:
    case Kind::allocated_earlier:
      return LifetimeSentence(cause);
    case Kind::renamed:
      return fmt::format("{} is called {} on the measured side ({}); bytes, dtype and place agree", Tensor(cause),
                         cause.tensor_as, Times(cause.lives));
    case Kind::other_moment:
      return OtherMomentSentence(cause);
    case Kind::unexplained:
      break;
  }
  return "one of the traces names no tensors: only the allocator's totals can be compared";
}

WordedCause WordsOf(const MemoryCause& cause) {
  WordedCause worded{std::string(Name(cause.kind)), "allocated", cause.at_peak, std::nullopt, {}, SentenceOf(cause)};
  if (!cause.tensor.empty()) {
    worded.tensors.push_back(cause.tensor);
  }
  if (!cause.tensor_as.empty()) {
    worded.tensors.push_back(cause.tensor_as);
  }
  worded.sentence += cause.at_peak == Bytes(0) ? "; the peak does not feel it."
                                               : fmt::format("; {} of the peak's error.", Signed(cause.at_peak));
  return worded;
}

WordedCause RoundingWords(const TraceComparison& comparison) {
  WordedCause worded{"rounding", "allocator", comparison.rounding, std::nullopt, comparison.rounded, {}};
  const std::string blocks =
      comparison.rounded.empty() ? "" : fmt::format("; blocks differ of {}", Listed(comparison.rounded));
  worded.sentence =
      fmt::format("the allocator's peak differs by {} beyond the tensors'{}.", Signed(comparison.rounding), blocks);
  return worded;
}

WordedCause FragmentationWords(const TraceComparison& comparison) {
  return {"fragmentation",
          "reserved",
          comparison.fragmentation,
          std::nullopt,
          {},
          fmt::format("reserved memory differs by {} beyond the allocator's blocks: {} was held between and behind "
                      "them than predicted.",
                      Signed(comparison.fragmentation), comparison.fragmentation < Bytes(0) ? "more" : "less")};
}

WordedCause WordsOf(const TimeCause& cause) {
  const bool slower = cause.error < Nanos(0);
  const std::string amount = Text(Size(cause.error));
  const std::string of = cause.operators.empty() ? "" : fmt::format(", most of all {}", Listed(cause.operators));
  std::string sentence =
      cause.kind == "kernels"
          ? fmt::format("kernels took {} {} than predicted{}.", amount, slower ? "longer" : "less", of)
      : cause.kind == "contention"
          ? fmt::format("kernels took {} longer while a collective ran beside them{}.", amount, of)
      : cause.kind == "operators" ? fmt::format("operators that one side runs more often make {} of {}{}.", amount,
                                                slower ? "extra time" : "time less", of)
      : cause.kind == "waiting"
          ? fmt::format(
                "between its kernels the compute stream waited {} {} than predicted, for communication, other "
                "stages or the host.",
                amount, slower ? "longer" : "less")
          : fmt::format("the step took {} {} than predicted; one of the traces has no kernels to say why.", amount,
                        slower ? "longer" : "less");
  return {cause.kind, "time", std::nullopt, cause.error, cause.operators, std::move(sentence)};
}

}  // namespace

std::string PlaceInWords(const PhasePlace& place) {
  const std::string text = PhaseText(place.phase, place.microbatch, place.step, place.side);
  return text.empty() ? kOutside : text;
}

std::vector<WordedCause> CausesInWords(const TraceComparison& comparison) {
  std::vector<WordedCause> causes, silent;
  for (const MemoryCause& cause : comparison.memory) {
    (cause.at_peak == Bytes(0) ? silent : causes).push_back(WordsOf(cause));
  }
  if (comparison.rounding != Bytes(0)) {
    causes.push_back(RoundingWords(comparison));
  }
  if (comparison.fragmentation != Bytes(0)) {
    causes.push_back(FragmentationWords(comparison));
  }
  for (const TimeCause& cause : comparison.time) {
    causes.push_back(WordsOf(cause));
  }
  causes.insert(causes.end(), std::make_move_iterator(silent.begin()), std::make_move_iterator(silent.end()));
  return causes;
}

}  // namespace tidemark
