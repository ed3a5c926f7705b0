// SPDX-License-Identifier: Apache-2.0
#include "reports/render/lints.h"

#include <fmt/format.h>

namespace tidemark {

nlohmann::ordered_json LintsJson(const std::vector<LintReport>& lints) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const LintReport& lint : lints) {
    array.push_back({{"id", lint.id}, {"severity", lint.severity}, {"message", lint.message}, {"hint", lint.hint}});
  }
  return array;
}

Remark LintRemark(const LintReport& lint) {
  const Tone tone = lint.severity == "error" ? Tone::bad : lint.severity == "warning" ? Tone::warning : Tone::neutral;
  return {fmt::format("{} {}", lint.severity, lint.id), lint.message, lint.hint, tone};
}

std::string ErrorSentence(const std::vector<LintReport>& lints) {
  std::string text;
  for (const LintReport& lint : lints) {
    if (lint.severity == "error") {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ",
                          lint.id == "wrong-gradient" ? "GRADIENTS ARE WRONG" : lint.id, lint.message);
    }
  }
  return text;
}

}  // namespace tidemark
