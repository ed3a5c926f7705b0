// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/quantity.h"
#include "sim/program/program.h"

namespace tidemark {

/// What a rank does now, for whoever watches the process: a step, a phase of it, an operation of the phase.
struct Annotation {
  std::string_view name;
  std::optional<Phase> phase{};  ///< nothing: outside of all phases
  std::int64_t microbatch = -1;  ///< -1: of the whole step
};

/// Tells a tool outside what a rank does, while it does it: ranges of the calling thread's time, which nest, and of
/// what the allocator takes from the device ("heap") the parts that tensors lie in ("regions"). A tool that checks
/// memory then knows what it could not see below an allocator that keeps memory: that an access misses every tensor.
class Annotations {
 public:
  virtual ~Annotations() = default;

  virtual void Begin(const Annotation& what) = 0;
  /// Of the range that was begun last.
  virtual void End() = 0;

  virtual void HeapComes(std::uint64_t address, Bytes bytes) = 0;
  virtual void HeapGoes(std::uint64_t address) = 0;
  /// Inside a heap, before anything is written there.
  virtual void RegionComes(std::uint64_t address, Bytes bytes) = 0;
  virtual void RegionGoes(std::uint64_t address) = 0;
  /// What lies in a region: its tensor's name.
  virtual void NameRegion(std::uint64_t address, std::string_view name) = 0;
};

/// A range from its construction until it goes. Of nobody (nullptr) it is nothing.
class AnnotatedRange {
 public:
  AnnotatedRange(Annotations* to, const Annotation& what) : to_(to) {
    if (to_ != nullptr) {
      to_->Begin(what);
    }
  }
  AnnotatedRange(AnnotatedRange&& other) noexcept : to_(std::exchange(other.to_, nullptr)) {}
  AnnotatedRange& operator=(AnnotatedRange&&) = delete;
  ~AnnotatedRange() {
    if (to_ != nullptr) {
      to_->End();
    }
  }

 private:
  Annotations* to_;
};

}  // namespace tidemark
