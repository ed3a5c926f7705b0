// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tidemark {

/// Each text once; its number is its place in the order of first sight. Of a text that is longer than any name the
/// beginning is kept: many events may each copy the name that they share, and files are hostile.
class StringPool {
 public:
  static constexpr std::size_t kLongest = 1000;  ///< bytes; names of C++ templates are long

  std::uint32_t Intern(std::string_view text) {
    text = text.substr(0, kLongest);
    if (const auto found = ids_.find(text); found != ids_.end()) {
      return found->second;
    }
    const auto id = static_cast<std::uint32_t>(strings_.size());
    ids_.emplace(strings_.emplace_back(text), id);
    return id;
  }

  const std::string& operator[](std::uint32_t id) const { return strings_[id]; }
  std::size_t size() const { return strings_.size(); }

 private:
  std::deque<std::string> strings_;  // which leaves its elements where they are: the keys look into them
  std::unordered_map<std::string_view, std::uint32_t> ids_;
};

}  // namespace tidemark
