// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// One buffer per parameter and block of a stage: its weights, gradients, bucket slots, one rank's part of it, ...
class ParameterTable {
 public:
  enum class Of : std::uint8_t { all, trained };
  /// How many elements a parameter's buffer has; 0: it has none.
  using Elements = std::function<std::int64_t(const Parameter&)>;

  /// Names the buffers "<what> <block>.<parameter>", each as large as its parameter. `resident`: alive when a step
  /// begins; `kept`: when it ends. A tied parameter has no buffer of its own.
  void Declare(Role& role, const std::string& what, Category category, DType dtype, Of of, bool resident, bool kept) {
    const auto elements = [of](const Parameter& parameter) {
      return of == Of::all || parameter.trainable ? parameter.elements : 0;
    };
    Declare(role, what, category, dtype, elements, resident, kept);
  }
  void Declare(Role& role, const std::string& what, Category category, DType dtype, Of of, bool stays) {
    Declare(role, what, category, dtype, of, stays, stays);
  }
  /// `as`: how a buffer holds its parameter; nothing: whole, and behind it padding where the buffer is larger. `born`:
  /// the stream that has its memory; the host's (host_optimizer.h): the host; invalid: the compute stream.
  void Declare(Role& role, const std::string& what, Category category, DType dtype, const Elements& elements_of,
               bool resident, bool kept, const std::optional<Holding>& as = {}, StreamId born = {});
  /// Slices of other buffers: `where` tells which one of which. Only what is trained.
  void DeclareSlices(Role& role, const std::string& what, Category category, DType dtype,
                     const std::function<BufferSlice(const ParameterAt&)>& where);
  bool declared() const { return !buffers_.empty(); }

  BufferRef operator()(const Role& role, const ParameterAt& at) const {
    return {buffers_[role.stage.RunOf(at.position)][at.parameter], {role.At(at.position), Index{}}};
  }

 private:
  std::vector<std::vector<BufferId>> buffers_;  ///< per run and parameter
};

inline const Parameter& ParameterOf(const Role& role, const ParameterAt& at) {
  return role.stage.BlockAt(at.position).parameters[at.parameter];
}

/// Whether this rank holds a gradient of it.
inline bool IsTrained(const Parameter& parameter) { return parameter.trainable && !parameter.tied; }

/// Calls `visit(ParameterAt)` for the trained parameters of one block, in definition order.
template <class Visit>
void ForEachTrained(const Role& role, std::int64_t position, Visit visit) {
  const std::vector<Parameter>& parameters = role.stage.BlockAt(position).parameters;
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    if (IsTrained(parameters[i])) {
      visit(ParameterAt{position, i});
    }
  }
}

/// Writes `body(ParameterAt)` for every trained parameter of the stage, as one loop per run of blocks.
template <class Body>
void EachTrained(Role& role, Body body) {
  role.EachBlock([&](std::int64_t position) { ForEachTrained(role, position, body); });
}

}  // namespace tidemark
