// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/explanation_phrases.h"

#include <fmt/format.h>

#include <array>

namespace tidemark {
namespace {

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

}  // namespace

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
      return "inputs (token ids, labels, and tables that layers have)";
    case Category::unknown:
      break;
  }
  return "tensors of unknown purpose";
}

std::string PlaceText(const PhasePlace& place, std::int64_t count) {
  const std::string& phase = place.phase;
  std::string what = phase == "forward"      ? "the forward pass"
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

}  // namespace tidemark
