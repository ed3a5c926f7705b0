// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tidemark {

enum class Pass : std::uint8_t {
  forward,          ///< loads its input first
  backward,         ///< gradients of inputs and weights
  backward_input,   ///< gradients of inputs; those of the linear layers' weights wait
  backward_weight,  ///< the gradients that waited
  load,             ///< from here on GradCache's: copies one chunk of one side to the device
  represent,        ///< forward without saving anything
  join,             ///< concatenates a side's representations
  loss,             ///< of all representations, and its gradient
  again,            ///< forward, with the random numbers of the first time, and the surrogate loss
  surrogate,        ///< backward, from the cached gradient of the representations
};

/// One pass over one microbatch, in iteration i of its run microbatch `offset` + i * advance.
struct Slot {
  Pass pass = Pass::forward;
  std::int64_t offset = 0;
  std::int64_t side = 0;   ///< of a dual encoder, which of its two inputs
  std::int64_t chunk = 0;  ///< which of the stages that this rank holds
  bool held = false;       ///< what it hands on is sent behind the next pass

  /// Whether it matters where the microbatch stands in its window.
  bool in_window() const {
    return pass == Pass::forward || pass == Pass::backward || pass == Pass::backward_input ||
           pass == Pass::backward_weight || pass == Pass::again || pass == Pass::surrogate;
  }
};

/// `count` iterations of the same slots, the microbatches advancing by `advance` each time.
struct SlotRun {
  std::int64_t count = 0;
  std::vector<Slot> slots;
  std::int64_t advance = 1;
  bool reversed = false;  ///< the microbatches go down, from count - 1
};

}  // namespace tidemark
