// SPDX-License-Identifier: Apache-2.0
#include "reports/render/check_annotations.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostAnnotations = 10;

/// `also`: what separates properties is escaped in them, too.
std::string Escape(std::string_view text, std::string_view also = "") {
  std::string out;
  for (const char c : text) {
    if (c == '%' || c == '\r' || c == '\n' || also.find(c) != std::string_view::npos) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string PathFrom(const std::string& file, const std::string& root, const std::string& here) {
  const auto whole = (std::filesystem::path(here) / file).lexically_normal();
  const std::string relative = whole.lexically_relative(root).generic_string();
  return relative.empty() || relative.starts_with("..") ? file : relative;
}

}  // namespace

std::string CheckAnnotations(const CheckReport& report, const std::string& root, const std::string& here) {
  std::string out;
  for (const auto& [kind, fails] : {std::pair("error", true), std::pair("notice", false)}) {
    std::vector<const CheckedScenario*> told;
    for (const CheckedScenario& scenario : report.scenarios) {
      if (scenario.Fails() == fails && scenario.verdict() != PeakVerdict::pass) {
        told.push_back(&scenario);
      }
    }
    const std::size_t shown = told.size() > kMostAnnotations ? kMostAnnotations - 1 : told.size();
    for (std::size_t i = 0; i < shown; ++i) {
      const CheckedScenario& scenario = *told[i];
      const std::string hint = CheckHint(report, scenario);
      out += fmt::format(
          "::{} file={}{},title={}::{}\n", kind, Escape(PathFrom(scenario.file, root, here), ":,"),
          scenario.line > 0 ? fmt::format(",line={}", scenario.line) : "",
          Escape(fmt::format("{}: {}", scenario.name, Name(scenario.verdict())), ":,"),
          Escape(hint.empty() ? CheckSentence(scenario) : fmt::format("{}\n{}", CheckSentence(scenario), hint)));
    }
    if (told.size() > shown) {
      out += fmt::format("::{} title=peak memory::{} more scenarios; the job summary lists them\n", kind,
                         told.size() - shown);
    }
  }
  return out;
}

}  // namespace tidemark
