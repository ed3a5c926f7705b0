// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "traces/trace.h"

namespace tidemark {

// Programs under other profilers tell their phases by named stretches of time on the host: PyTorch's record_function,
// NVTX ranges. Words in these names say which phase of which microbatch they are.

/// What the text of an annotation says.
struct AnnotationText {
  enum class Kind {
    phase,  ///< of a step: "microbatch 1 forward", "Optimizer.step#AdamW.step", "microbatch 3"
    step,   ///< one optimizer step: "ProfilerStep#7", "step 7"
    other,  ///< anything else: "layer 3"
  } kind = Kind::other;
  std::string name;          ///< "forward", "backward", "optimizer", "microbatch"; of others the text before its number
  std::int64_t number = -1;  ///< the microbatch; of others the number at the end; -1: none
};

AnnotationText ReadAnnotation(std::string_view text);

/// A named stretch of time. `told`: its writer says outright what it is, and the text need not be read.
struct Annotation {
  std::string text;
  Nanos begin, end;
  bool told = false;
  Span span = {};  ///< where it is told; its times are those above
};

/// The annotations of a process as the phases and steps of its trace.
class Timeline {
 public:
  /// Annotations come in any order, from any thread, with times that do not run backwards. Where there are more than a
  /// trace has spans for, only phases are spans.
  explicit Timeline(std::vector<Annotation> annotations);

  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<StepMark>& steps() const { return steps_; }  ///< without memory_begin
  std::size_t left_out() const { return left_out_; }             ///< beyond what a trace can hold: phases, or too deep

  /// Where an instant lies.
  struct Place {
    std::uint16_t span = kNoSpan;            ///< the innermost phase, else the innermost annotation
    const AnnotationText* inside = nullptr;  ///< the innermost other annotation within that phase
  };

  /// Follows the time line once: the instants that it is asked for do not decrease.
  class Cursor {
   public:
    explicit Cursor(const Timeline& timeline) : timeline_(timeline) {}
    Place At(Nanos instant);

   private:
    const Timeline& timeline_;
    std::size_t next_ = 0;
    std::vector<std::size_t> open_;  // of timeline_.stretches_, in the order in which they began
  };

 private:
  struct Stretch {
    Nanos begin, end;
    AnnotationText text;
    std::uint16_t span = kNoSpan;
  };

  void AddSpan(Annotation annotation, std::span<const std::size_t> open);
  void AddSteps(std::vector<StepMark> of_profiler, std::vector<StepMark> of_program);

  std::vector<Stretch> stretches_;  // by begin, the longer ones first; no steps
  std::vector<Span> spans_;
  std::vector<StepMark> steps_;
  std::size_t left_out_ = 0;
};

}  // namespace tidemark
