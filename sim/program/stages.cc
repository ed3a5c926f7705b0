// SPDX-License-Identifier: Apache-2.0
#include "sim/program/stages.h"

#include <algorithm>
#include <charconv>

namespace tidemark {
namespace {

constexpr std::string_view kStage = "stage ";

struct Told {
  std::int64_t stage = 0;
  std::size_t end = 0;  ///< of "stage 2 "
};

/// What stands at `at`, if it is the name of a stage.
std::optional<Told> ToldAt(std::string_view name, std::size_t at) {
  if (name.substr(at, kStage.size()) != kStage) {
    return std::nullopt;
  }
  const char* const begin = name.data() + at + kStage.size();
  const char* const end = name.data() + name.size();
  Told told;
  const auto read = std::from_chars(begin, end, told.stage);
  if (read.ec != std::errc() || read.ptr == end || *read.ptr != ' ') {
    return std::nullopt;
  }
  told.end = static_cast<std::size_t>(read.ptr - name.data()) + 1;
  return told;
}

}  // namespace

std::optional<std::int64_t> StageIn(std::string_view name) {
  for (std::size_t at = 0; at != std::string_view::npos; at = name.find(kStage, at + 1)) {
    const auto told = at == 0 || name[at - 1] == ' ' ? ToldAt(name, at) : std::nullopt;
    if (told) {
      return told->stage;
    }
  }
  return std::nullopt;
}

std::string_view WithoutStage(std::string_view name) {
  const auto told = ToldAt(name, 0);
  return told ? name.substr(told->end) : name;
}

std::vector<std::int64_t> StagesOf(const Program& program) {
  std::vector<std::int64_t> stages;
  for (const Buffer& buffer : program.buffers) {
    const auto stage = StageIn(buffer.name);
    if (stage && std::find(stages.begin(), stages.end(), *stage) == stages.end()) {
      stages.push_back(*stage);
    }
  }
  return stages.empty() ? std::vector<std::int64_t>{program.role_index} : stages;
}

}  // namespace tidemark
