// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/annotations.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace tidemark {
namespace {

constexpr std::size_t kDeepest = 256;  ///< annotations within annotations; deeper ones are left out

enum class Letter { none, alpha, digit };

Letter LetterOf(char c) {
  const auto code = static_cast<unsigned char>(c);
  return std::isdigit(code) != 0 ? Letter::digit : std::isalpha(code) != 0 ? Letter::alpha : Letter::none;
}

/// In lower case; digits are words of their own: "mb3/ForwardStep" is mb, 3, forwardstep.
std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  Letter last = Letter::none;
  for (const char c : text) {
    const Letter letter = LetterOf(c);
    if (letter != Letter::none) {
      if (letter != last) {
        words.emplace_back();
      }
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    last = letter;
  }
  return words;
}

/// -1 where it is none, or none that counts anything.
std::int64_t NumberOf(std::string_view word) {
  std::int32_t number = -1;
  const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), number);
  return fault == std::errc() && end == word.data() + word.size() && number >= 0 ? number : -1;
}

/// The number behind "microbatch", "micro batch" or "mb".
std::int64_t MicrobatchOf(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool named = words[i - 1] == "microbatch" || words[i - 1] == "mb" ||
                       (i >= 2 && words[i - 2] == "micro" && words[i - 1] == "batch");
    if (named && NumberOf(words[i]) >= 0) {
      return NumberOf(words[i]);
    }
  }
  return -1;
}

std::string PhaseOf(const std::vector<std::string>& words, std::int64_t microbatch) {
  const auto has = [&](std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  for (const char* phase : {"forward", "backward"}) {
    if (has(phase)) {
      return phase;
    }
  }
  if (has("optimizer") && !has("zero")) {  // Optimizer.zero_grad is no step of it
    return "optimizer";
  }
  return microbatch >= 0 ? "microbatch" : "";
}

AnnotationText OtherText(std::string_view text) {
  AnnotationText other;
  std::size_t digits = text.size();
  while (digits > 0 && LetterOf(text[digits - 1]) == Letter::digit) {
    --digits;
  }
  std::size_t name = digits;
  while (name > 0 && LetterOf(text[name - 1]) == Letter::none) {
    --name;
  }
  if (digits < text.size() && name > 0 && NumberOf(text.substr(digits)) >= 0) {
    other.number = NumberOf(text.substr(digits));
    text = text.substr(0, name);
  }
  other.name = text;
  return other;
}

bool StartsBefore(const Nanos& a_begin, const Nanos& a_end, const Nanos& b_begin, const Nanos& b_end) {
  return a_begin != b_begin ? a_begin < b_begin : a_end > b_end;
}

}  // namespace

AnnotationText ReadAnnotation(std::string_view text) {
  const std::vector<std::string> words = WordsOf(text);
  if (words.size() == 2 && (words[0] == "profilerstep" || words[0] == "step") && NumberOf(words[1]) >= 0) {
    return {AnnotationText::Kind::step, words[0], NumberOf(words[1])};
  }
  const std::int64_t microbatch = MicrobatchOf(words);
  if (std::string phase = PhaseOf(words, microbatch); !phase.empty()) {
    return {AnnotationText::Kind::phase, std::move(phase), microbatch};
  }
  return OtherText(text);
}

Timeline::Timeline(std::vector<Annotation> annotations) {
  std::stable_sort(annotations.begin(), annotations.end(), [](const Annotation& a, const Annotation& b) {
    return StartsBefore(a.begin, a.end, b.begin, b.end);
  });
  std::vector<AnnotationText> texts;
  std::vector<StepMark> of_profiler, of_program;
  for (const Annotation& annotation : annotations) {
    texts.push_back(annotation.told
                        ? AnnotationText{AnnotationText::Kind::phase, annotation.span.phase, annotation.span.microbatch}
                        : ReadAnnotation(annotation.text));
    if (texts.back().kind == AnnotationText::Kind::step) {
      (texts.back().name == "step" ? of_program : of_profiler).push_back({"", annotation.begin, annotation.end, 0});
    }
  }
  const bool room_for_all = annotations.size() - of_profiler.size() - of_program.size() <= kNoSpan;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < annotations.size(); ++i) {
    if (texts[i].kind == AnnotationText::Kind::step) {
      continue;
    }
    std::erase_if(open, [&](std::size_t at) { return stretches_[at].end <= annotations[i].begin; });
    if (open.size() >= kDeepest) {
      ++left_out_;
      continue;
    }
    open.push_back(stretches_.size());
    const bool is_phase = texts[i].kind == AnnotationText::Kind::phase;
    stretches_.push_back({annotations[i].begin, annotations[i].end, std::move(texts[i]), kNoSpan});
    if (is_phase || room_for_all) {
      AddSpan(std::move(annotations[i]), open);
    }
  }
  AddSteps(std::move(of_profiler), std::move(of_program));
}

/// The span of the innermost open stretch.
void Timeline::AddSpan(Annotation annotation, std::span<const std::size_t> open) {
  if (spans_.size() >= kNoSpan) {
    ++left_out_;
    return;
  }
  Stretch& stretch = stretches_[open.back()];
  Span span = std::move(annotation.span);
  if (!annotation.told) {
    const bool is_phase = stretch.text.kind == AnnotationText::Kind::phase;
    span.phase = is_phase ? stretch.text.name : std::move(annotation.text);
    span.microbatch = is_phase ? stretch.text.number : -1;
    for (std::size_t i = open.size() - 1; span.microbatch < 0 && i-- > 0;) {  // what surrounds it knows which one
      const std::uint16_t outer = stretches_[open[i]].span;
      span.microbatch = outer == kNoSpan ? -1 : spans_[outer].microbatch;
    }
  }
  span.begin = annotation.begin;
  span.end = annotation.end;
  stretch.span = static_cast<std::uint16_t>(spans_.size());
  spans_.push_back(std::move(span));
}

/// The profiler's own steps where there are any. A step ends where the next one begins.
void Timeline::AddSteps(std::vector<StepMark> of_profiler, std::vector<StepMark> of_program) {
  for (StepMark& step : of_profiler.empty() ? of_program : of_profiler) {
    if (!steps_.empty() && step.begin < steps_.back().end && step.end <= steps_.back().end) {
      continue;  // of another thread, or inside
    }
    if (!steps_.empty()) {
      steps_.back().end = step.begin;
    }
    steps_.push_back(std::move(step));
  }
}

Timeline::Place Timeline::Cursor::At(Nanos instant) {
  const std::vector<Stretch>& all = timeline_.stretches_;
  for (; next_ < all.size() && all[next_].begin <= instant; ++next_) {
    if (open_.size() >= kDeepest) {  // no more can be open, but for those of no length that are over at once
      std::erase_if(open_, [&](std::size_t at) { return all[at].end <= all[next_].begin; });
    }
    if (open_.size() < kDeepest) {
      open_.push_back(next_);
    }
  }
  std::erase_if(open_, [&](std::size_t at) { return all[at].end < instant; });
  Place place;
  for (std::size_t i = open_.size(); i-- > 0;) {
    const Stretch& stretch = all[open_[i]];
    if (stretch.text.kind == AnnotationText::Kind::phase) {
      return {stretch.span, place.inside};
    }
    if (place.inside == nullptr) {
      place.inside = &stretch.text;
      place.span = stretch.span;
    }
  }
  place.inside = nullptr;  // it is the place itself
  return place;
}

}  // namespace tidemark
