// SPDX-License-Identifier: Apache-2.0
#include "reports/render/lints.h"

#include <fmt/format.h>

#include "models/findings/findings.h"

namespace tidemark {

nlohmann::ordered_json LintsJson(const std::vector<Lint>& lints) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Lint& lint : lints) {
    const KnownFinding* finding = FindKnownFinding(lint.explained_by());
    array.push_back({{"id", lint.id},
                     {"severity", lint.severity},
                     {"message", lint.message},
                     {"hint", lint.hint},
                     {"cause", lint.explained_by()},
                     {"paragraph", finding == nullptr ? "" : finding->paragraph},
                     {"link", finding == nullptr ? "" : finding->link}});
  }
  return array;
}

Remark LintRemark(const Lint& lint) {
  const Tone tone = lint.severity == "error" ? Tone::bad : lint.severity == "warning" ? Tone::warning : Tone::neutral;
  Remark remark{fmt::format("{} {}", lint.severity, lint.id), lint.message, lint.hint, tone};
  if (const KnownFinding* finding = FindKnownFinding(lint.explained_by()); finding != nullptr) {
    remark.paragraph = finding->paragraph;
    remark.link = finding->link;
  }
  return remark;
}

std::string ErrorSentence(const std::vector<Lint>& lints) {
  std::string text;
  for (const Lint& lint : lints) {
    if (lint.severity == "error") {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ",
                          lint.id == "wrong-gradient" ? "GRADIENTS ARE WRONG" : lint.id, lint.message);
    }
  }
  return text;
}

}  // namespace tidemark
