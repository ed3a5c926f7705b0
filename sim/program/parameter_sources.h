// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "sim/program/gradient_value.h"
#include "sim/program/program.h"

namespace tidemark {

/// Which parameter each source's gradient is of: the one that the buffer holds that a backward kernel writes it to
/// (Buffer::holds, or what its name ends in: "gradient of layer.wq"). Of a buffer with those of many parameters a copy
/// to one parameter's takes what is that parameter's.
class ParameterSources {
 public:
  explicit ParameterSources(const Program& program) {
    for (const Buffer& buffer : program.buffers) {
      of_buffer_.push_back(ParameterIn(buffer));
    }
  }

  void Made(std::int64_t source, BufferId buffer) { of_source_[source] = of_buffer_[buffer.index]; }
  /// What of `value` a copy to `buffer` takes.
  GradientValue PartFor(BufferId buffer, const GradientValue& value) const {
    const std::string_view parameter = of_buffer_[buffer.index];
    GradientValue part = value;
    if (!parameter.empty()) {
      part.KeepSources([&](std::int64_t source) {
        const auto found = of_source_.find(source);
        return found == of_source_.end() || found->second.empty() || found->second == parameter;
      });
    }
    return part;
  }

 private:
  /// "layer.wq" of "stage 2 gradient of layer.wq"; nothing of "scatter input of layer".
  static std::string_view ParameterIn(const Buffer& buffer) {
    const bool says = buffer.holds.size() == 1 && buffer.holds.front().of.size() == 1;
    const std::string_view name = says ? buffer.holds.front().of.front().name : buffer.name;
    const std::string_view last = name.substr(name.rfind(' ') + 1);
    return last.find('.') == std::string_view::npos ? std::string_view() : last;
  }

  std::vector<std::string_view> of_buffer_;
  std::map<std::int64_t, std::string_view> of_source_;
};

}  // namespace tidemark
