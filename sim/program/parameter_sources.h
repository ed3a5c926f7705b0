// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "sim/program/gradient_value.h"
#include "sim/program/program.h"

namespace tidemark {

/// Which parameter each source's gradient is of: the one that the first buffer holds that has it and says so
/// (Buffer::holds, or what its name ends in: "gradient of layer.wq"). Of a buffer with those of many parameters a copy
/// to one parameter's takes what is that parameter's. A block's own name may have a dot ("encoder.pool"): it stands for
/// all of its parameters.
class ParameterSources {
 public:
  explicit ParameterSources(const Program& program) {
    for (const Buffer& buffer : program.buffers) {
      of_buffer_.push_back(ParameterIn(buffer));
    }
  }

  /// A kernel has written these gradients to a buffer.
  void Written(const GradientValue& value, BufferId buffer) {
    const std::string_view parameter = of_buffer_[buffer.index];
    for (auto term = value.terms().begin(); !parameter.empty() && term != value.terms().end(); ++term) {
      of_source_.try_emplace(term->source, parameter);
    }
  }
  /// What of `value` a copy to `buffer` takes.
  GradientValue PartFor(BufferId buffer, const GradientValue& value) const {
    const std::string_view parameter = of_buffer_[buffer.index];
    GradientValue part = value;
    if (!parameter.empty()) {
      part.KeepSources([&](std::int64_t source) {
        const auto found = of_source_.find(source);
        return found == of_source_.end() || Contains(found->second, parameter) || Contains(parameter, found->second);
      });
    }
    return part;
  }

 private:
  /// "layer.wq" of "stage 2 gradient of layer.wq"; nothing of "scatter input of layer" and of "layer.d_wq".
  static std::string_view ParameterIn(const Buffer& buffer) {
    constexpr std::string_view kOf = " of ";
    if (buffer.holds.size() == 1 && buffer.holds.front().of.size() == 1) {
      return WithBlock(buffer.holds.front().of.front().name);
    }
    const std::string_view name = buffer.name;
    const std::size_t of = name.rfind(kOf);
    return buffer.holds.empty() && of != std::string_view::npos ? WithBlock(name.substr(of + kOf.size()))
                                                                : std::string_view();
  }
  static bool Contains(std::string_view name, std::string_view part) {
    return part.starts_with(name) && (part.size() == name.size() || part[name.size()] == '.');
  }
  static std::string_view WithBlock(std::string_view name) {
    return name.find('.') == std::string_view::npos ? std::string_view() : name;
  }

  std::vector<std::string_view> of_buffer_;
  std::map<std::int64_t, std::string_view> of_source_;
};

}  // namespace tidemark
